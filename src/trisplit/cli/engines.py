"""Puts an engine together, one process or a mesh, behind the same few doors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from trisplit.cli.drafted import drafting_for, source_asked, source_of_itself
from trisplit.cli.measuring import measured, ordered
from trisplit.cli.overlap import Overlap, ahead_typed, overlap_in
from trisplit.cli.progress import bars
from trisplit.cli.settings import Settings
from trisplit.errors import RequestProblem
from trisplit.machine import free_cores
from trisplit.mesh.ahead import overlapping, refuse_with_drafts, refuse_with_failover
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.distances import Distances
from trisplit.mesh.drafting import DraftedAnswer, Drafting, Gain
from trisplit.mesh.facts import StationFacts, of_this_process
from trisplit.mesh.fleet import local_stations
from trisplit.mesh.plan import Plan
from trisplit.mesh.room import Room
from trisplit.mesh.streams import Stream
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Piece
from trisplit.models.model import Model, context_for
from trisplit.table import size


class Engine(Protocol):
    """What answers: a decoder in this process, or a coordinator with its stations."""

    @property
    def context(self) -> int:
        """Longest sequence there is room for."""

    @property
    def legs_per_token(self) -> int:
        """One-way network trips between a token and the next."""

    @property
    def threads(self) -> int:
        """Threads each process computes with."""

    @property
    def spares(self) -> Sequence[str]:
        """Stations that hold nothing."""

    @property
    def overlap(self) -> Overlap | None:
        """Layers that overlap; None where none do and nobody has asked."""

    @property
    def gain(self) -> Gain | None:
        """What drafts have done for the last answer; None where there were none."""

    async def start(self) -> None:
        """Makes room for a sequence; the one before is forgotten."""

    def generate(self, answer: Generation) -> AsyncGenerator[Piece, None]:
        """The pieces of an answer as they come."""

    async def facts(self) -> list[StationFacts]:
        """One row per process that holds stages."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A decoder in this process."""

    decoder: Decoder
    threads: int
    legs_per_token: int = 0
    spares: tuple[str, ...] = ()
    overlap: None = None
    gain: None = None

    @property
    def context(self) -> int:
        return self.decoder.context

    async def start(self) -> None:
        """Nothing to do: the one sequence is overwritten."""

    async def generate(self, answer: Generation) -> AsyncGenerator[Piece, None]:
        for piece in self.decoder.generate(answer):
            yield piece

    async def facts(self) -> list[StationFacts]:
        return [
            of_this_process(
                "this process",
                f"embed, layers 0-{self.decoder.config.layers - 1}, head",
                self.decoder.session.weight_bytes,
                self.decoder.session.kv_bytes,
            )
        ]


@dataclass(slots=True)
class Mesh:
    """A coordinator and its stations."""

    coordinator: Coordinator
    context: int
    threads: int
    overlap: Overlap | None
    drafting: Drafting | None = None
    stream: Stream | None = None
    last: DraftedAnswer | None = None

    @property
    def legs_per_token(self) -> int:
        return self.coordinator.plan.legs_per_token

    async def start(self) -> None:
        if self.stream is not None:
            await self.coordinator.close(self.stream)
        self.stream = await self.coordinator.open()

    @property
    def spares(self) -> Sequence[str]:
        return self.coordinator.plan.spares

    @property
    def gain(self) -> Gain | None:
        return self.last.gain if self.last is not None else None

    def generate(self, answer: Generation) -> AsyncGenerator[Piece, None]:
        assert self.stream is not None  # start makes one
        self.last = DraftedAnswer(self.coordinator, self.stream, answer, self.drafting)
        return self.last.pieces()

    async def facts(self) -> list[StationFacts]:
        return [*await self.coordinator.facts(), self.coordinator.own_facts()]


@asynccontextmanager
async def engine(model: Model, s: Settings) -> AsyncIterator[Engine]:
    """Loads what the settings ask for, with progress bars; ends what it started."""
    if s.addresses or s.processes:
        async with meshed(model, s) as mesh:
            yield mesh
    else:
        yield alone(model, s)


def alone(model: Model, s: Settings) -> Alone:
    """The whole model in this process."""
    threads, context = s.threads or free_cores(), context_for(model.config, s.context)
    model.refuse_if_short(model.stages, s.dtype, context)
    with bars() as show:
        files = list(show.over(model.files(model.stages, s.dtype), "weights", len(model.stages)))
    return Alone(Decoder(model.config, files, context=context, threads=threads), threads)


@asynccontextmanager
async def meshed(model: Model, s: Settings) -> AsyncIterator[Mesh]:
    """The stations of the settings, found or started, and loaded."""
    context = context_for(model.config, s.context)
    drawn = _planned(model, s, context, await _distances(s))
    if s.addresses:
        async with loaded(model, s, drawn, s.addresses, context) as mesh:
            yield mesh
        return
    model.refuse_if_short(model.stages, s.dtype, context * s.sessions)  # all of it is on this machine
    used = [share.station for share in drawn.shares] + s.names[len(s.names) - s.spares :]
    async with local_stations(used, secret=s.trust.secret) as addresses:
        here = replace(drawn, spares=tuple(name for name in drawn.spares if name in addresses))
        async with loaded(model, s, here, addresses, context) as mesh:
            yield mesh


async def _distances(s: Settings) -> Distances | None:
    """What the stations measure, if their order is to follow from it; spares are not in it."""
    if s.order != "measured":
        return None
    if not s.addresses:
        what = "stations that are started here are all as near as each other"
        raise RequestProblem(what, fix="name running ones by their addresses, or leave --order measured out")
    names = s.names[: len(s.names) - s.spares]
    return await measured({name: s.addresses[name] for name in names}, s.trust)


def _planned(model: Model, s: Settings, context: int, seen: Distances | None) -> Plan:
    names, count = s.names, len(s.names) - s.spares
    limits = s.limits
    rooms = [Room(name, limits[name]) for name in names[:count]]
    how = {"cut": s.cut, "topology": s.topology}
    tokens = context * s.sessions
    if seen is None:
        drawn = plan_model(model, rooms, dtype=s.dtype, context=tokens, **how)
    else:
        drawn = ordered(model, rooms, seen, dtype=s.dtype, context=tokens, **how)
    drawn = overlapping(drawn, ahead_typed(s.overlap, model.config.layers, model, s.dtype))
    refuse_with_failover(drawn, recovers=s.recovers)
    if s.names_draft:
        refuse_with_drafts(drawn)
    return replace(drawn, spares=(*drawn.spares, *names[count:]))


@asynccontextmanager
async def loaded(
    model: Model, s: Settings, drawn: Plan, addresses: Mapping[str, str], context: int
) -> AsyncIterator[Mesh]:
    """A mesh by this plan, of stations at these addresses, with progress bars."""
    threads, source = s.threads or 1, source_asked(model, s, context)
    ends = _ends(model, s, threads) if s.topology != "ring" else None
    async with Coordinator(
        model,
        ends,
        drawn,
        addresses,
        sessions=s.sessions,
        recovers=s.recovers,
        limits=s.limits,
        trust=s.trust,
    ) as coordinator:
        load = coordinator.load(s.dtype, context=context, threads=threads, weights=s.weights)
        # Closed here: left to the event loop, which closes all at once, they would be in each other's way.
        with bars() as show:
            async with aclosing(load):
                async for step in load:
                    what = f"{size(step.done_bytes)} of {size(step.total_bytes)}, {step.what}"
                    show.advance(f"station {step.station}", step.done_bytes, step.total_bytes, what)
        if source is None and drawn.ahead is None:
            source = source_of_itself(model, s, context, await coordinator.leg_ms())
        drafting = drafting_for(source, s)
        yield Mesh(coordinator, context, threads, overlap_in(drawn, s.overlap), drafting)


def _ends(model: Model, s: Settings, threads: int) -> Ends:
    """What a coordinator that is no mere listener keeps."""
    with bars() as show:
        files = list(show.over(model.files(model.ends, s.dtype), "coordinator", len(model.ends)))
    return Ends(model.config, *files, threads=threads)
