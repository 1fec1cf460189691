"""Puts an engine together, one process or a mesh, behind the same few doors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from trisplit.cli.measuring import measured, ordered
from trisplit.cli.overlap import NONE, Overlap, ahead_typed, overlap_in
from trisplit.cli.progress import bars
from trisplit.cli.typed import addresses_typed
from trisplit.errors import RequestProblem, UnknownName
from trisplit.machine import free_cores, usable_cores
from trisplit.mesh.ahead import overlapping, refuse_with_failover
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.distances import Distances
from trisplit.mesh.facts import StationFacts, of_this_process
from trisplit.mesh.fleet import local_stations
from trisplit.mesh.plan import Plan
from trisplit.mesh.pushing import WEIGHTS, Weights
from trisplit.mesh.room import Room
from trisplit.mesh.streams import Stream
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.mesh.trust import NOBODY, Trust, read_trust
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Piece
from trisplit.models.model import Model, context_for
from trisplit.table import size

MOST_STATIONS = 1000
ORDERS = ("named", "measured")  # of stations: as they were named, or as their links are short


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a model is run, whatever it is asked. `stations` is a number of local processes, or addresses.

    `spares` are started beside that number, or are the last of those addresses. What `recovers` goes on
    when a station is lost. `overlap` says which layers start ahead: see `ahead_typed`. `memory` is what each
    station offers for weights and KV, or all of them if it is one; none, no limit. `order` is one of ORDERS.
    """

    stations: str = "0"
    cut: str = "layers"
    topology: str = "ring"
    dtype: Dtype = "f32"
    weights: Weights = "auto"
    threads: int | None = None
    context: int | None = None
    overlap: str = NONE
    sessions: int = 1
    spares: int = 0
    recovers: bool = False
    memory: tuple[int, ...] = ()
    order: str = "named"
    trust: Trust = NOBODY

    @property
    def addresses(self) -> Mapping[str, str]:
        """Name → address of stations already running; empty when processes are to be started."""
        return addresses_typed(self.stations)

    @property
    def processes(self) -> int:
        """Station processes to start here."""
        if ":" in self.stations:
            return 0
        if not (self.stations.isascii() and self.stations.isdecimal()):
            raise RequestProblem(
                f"--stations {self.stations!r} is neither a number nor addresses",
                fix="write --stations 4, or --stations 127.0.0.1:4001,127.0.0.1:4002",
            )
        if int(self.stations[:9]) + self.spares > MOST_STATIONS:
            beside = f" and --spares {self.spares}" if self.spares else ""
            raise RequestProblem(
                f"--stations {self.stations}{beside} are too many processes for one machine",
                fix=f"use {MOST_STATIONS} at most",
            )
        return int(self.stations)

    @property
    def names(self) -> list[str]:
        """All stations, spares last. RequestProblem when there would be spares alone."""
        names = [*self.addresses] or [f"s{i + 1}" for i in range(self.processes + self.spares)]
        if len(names) <= self.spares:
            what = f"--spares {self.spares} of {len(names)} stations leave none to hold the model"
            raise RequestProblem(what, fix=f"name more stations with --stations, {self.spares + 1} at least")
        return names

    @property
    def limits(self) -> dict[str, int | None]:
        """What each station offers, in bytes. RequestProblem when limits and stations are not as many."""
        names, limits = self.names, self.memory
        if len(limits) not in (0, 1, len(names)):
            what = f"--memory states {len(limits)} limits for {len(names)} stations"
            raise RequestProblem(what, fix="state one for all of them, or one for each, spares last")
        return dict.fromkeys(names, *limits) if len(limits) < 2 else dict(zip(names, limits))


def settings(
    *,
    stations: str,
    cut: str,
    dtype: str,
    threads: int | None,
    context: int | None,
    weights: str = "auto",
    topology: str = "ring",
    overlap: str = NONE,
    secret_file: Path | None = None,
    ca: Path | None = None,
) -> Settings:
    """Checks the words a person typed."""
    for kind, name, names in (("cut", cut, CUTS), ("topology", topology, TOPOLOGIES)):
        if name not in names:
            raise UnknownName(kind, name, names)
    known = next((d for d in DTYPES if d == dtype), None)
    if known is None:
        raise UnknownName("dtype", dtype, DTYPES)
    where = next((w for w in WEIGHTS if w == weights), None)
    if where is None:
        raise UnknownName("way to get weights", weights, WEIGHTS)
    if threads is not None and not 1 <= threads <= usable_cores():
        cores = usable_cores()
        raise RequestProblem(f"--threads {threads} on {cores} cores", fix=f"use 1 to {cores}")
    chosen = Settings(
        stations=stations,
        cut=cut,
        topology=topology,
        dtype=known,
        weights=where,
        threads=threads,
        context=context,
        overlap=overlap,
        trust=read_trust(secret_file, ca),
    )
    if not (chosen.addresses or chosen.processes) and overlap != NONE:
        what = "in one process no layer starts ahead of the one before"
        raise RequestProblem(what, fix="split it with --stations and --cut thirds, or leave --overlap out")
    return chosen


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

    async def start(self) -> None:
        """Makes room for a sequence; the one before is forgotten."""

    def generate(self, answer: Generation) -> AsyncIterator[Piece]:
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

    @property
    def context(self) -> int:
        return self.decoder.context

    async def start(self) -> None:
        """Nothing to do: the one sequence is overwritten."""

    async def generate(self, answer: Generation) -> AsyncIterator[Piece]:
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
    stream: Stream | None = None

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

    def generate(self, answer: Generation) -> AsyncIterator[Piece]:
        assert self.stream is not None  # start makes one
        return self.coordinator.generate(self.stream, answer)

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
    return replace(drawn, spares=(*drawn.spares, *names[count:]))


@asynccontextmanager
async def loaded(
    model: Model, s: Settings, drawn: Plan, addresses: Mapping[str, str], context: int
) -> AsyncIterator[Mesh]:
    """A mesh by this plan, of stations at these addresses, with progress bars."""
    threads = s.threads or 1
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
        with bars() as show:
            load = coordinator.load(s.dtype, context=context, threads=threads, weights=s.weights)
            async for step in load:
                what = f"{size(step.done_bytes)} of {size(step.total_bytes)}, {step.what}"
                show.advance(f"station {step.station}", step.done_bytes, step.total_bytes, what)
        yield Mesh(coordinator, context, threads, overlap_in(drawn, s.overlap))


def _ends(model: Model, s: Settings, threads: int) -> Ends:
    """What a coordinator that is no mere listener keeps."""
    with bars() as show:
        files = list(show.over(model.files(model.ends, s.dtype), "coordinator", len(model.ends)))
    return Ends(model.config, *files, threads=threads)
