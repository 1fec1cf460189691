"""A process that holds stages and answers frames: empty until a coordinator loads it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import onnxruntime

from trisplit.errors import CheckpointProblem, OwnProblem, PeerProblem, Problem
from trisplit.machine import cpu_kind, gather_into_huge_pages, return_free_memory, rss_bytes
from trisplit.mesh.address import host_and_port
from trisplit.mesh.link import Link, connect
from trisplit.mesh.server import listen
from trisplit.models.config import ModelConfig, Stage
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.model import Model, open_model
from trisplit.models.session import Floats, StageSession, Track
from trisplit.wire.frame import ROW_BY_ROW, SAME_VERSION, Activation
from trisplit.wire.messages import (
    VERSION,
    Ask,
    Close,
    Closed,
    Facts,
    Fault,
    GroupSpec,
    Hello,
    Join,
    Joined,
    Load,
    Loaded,
    Loading,
    Message,
    Open,
    Opened,
    Welcome,
)

CONNECT_DEADLINE_S: Final = 10.0

_SEE_OUTPUT: Final = "see the station's output"


@dataclass(frozen=True, slots=True)
class Stop:
    """A stage group as this station runs it: its session, and where what it leaves goes."""

    number: int
    session: StageSession

    @property
    def main(self) -> str:
        """The input that is not the residual beside it: x, r or h."""
        return next(iter(self.session.takes))

    @property
    def joins(self) -> bool:
        """Whether two frames meet here: the widened rows, and the residual that went past them."""
        return len(self.session.takes) == 2

    @property
    def sends_residual(self) -> bool:
        """Whether the residual also goes past the next group, straight to the one after it."""
        return self.session.leaves[0] == "r"


@dataclass(slots=True)
class Stream:
    """One sequence on this station: a track per group, and rows waiting for their other half."""

    tracks: dict[int, Track]
    halves: dict[tuple[int, int, bool], Floats] = field(default_factory=dict)


@dataclass(slots=True)
class Held:
    """What a coordinator has loaded here."""

    config: ModelConfig
    stops: dict[int, Stop]
    rows_equal: bool
    frames: int = 0
    busy_ms: float = 0.0


class Station:
    """Holds stages for one coordinator at a time and passes frames along."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._coordinator: Link | None = None
        self._held: Held | None = None
        self._streams: dict[int, Stream] = {}
        self._links: dict[str, Link] = {}
        self._ways: dict[int, Callable[[Activation], None]] = {}

    async def accept(self, link: Link) -> None:
        """Serves one connection until it ends: a coordinator's orders, or a station's frames."""
        if link.hello is not None and link.hello.role == "station":
            link.on_activation = self._take
            await link.wait_closed()
        elif self._coordinator is not None:
            await link.close_with(
                PeerProblem(
                    f"station {self.name} already works for another coordinator",
                    fix="wait until it is done, or use another station",
                )
            )
        else:
            await self._obey(link)

    async def _obey(self, link: Link) -> None:
        self._coordinator = link
        link.on_activation = self._take
        try:
            while True:
                await self._answer(link, await link.receive(None))
        except PeerProblem:
            pass  # the coordinator is gone, in good order or not: be empty again for the next
        except Problem as problem:
            await link.close_with(problem)
        finally:
            self._coordinator, self._held = None, None
            self._streams.clear()
            await self._leave()
            await link.close("the station is empty again")

    async def _answer(self, link: Link, said: Message | Activation) -> None:
        match said:
            case Load():
                link.send(await self._load(link, said))
            case Join():
                await self._join(link, said)
                link.send(Joined())
            case Open():
                self._streams[said.stream] = self._open()
                link.send(Opened(said.stream))
            case Close():
                self._streams.pop(said.stream, None)
                link.send(Closed(said.stream))
            case Ask() if self._held:
                link.send(Facts(rss_bytes(), self._held.frames, self._held.busy_ms))
            case _:
                raise PeerProblem(
                    f"it said {type(said).__name__}, which no station answers", fix=SAME_VERSION
                )

    # --- loading ---

    async def _load(self, link: Link, order: Load) -> Loaded:
        """Builds the sessions asked for, telling the coordinator how far it is."""
        self._held = None
        config, dtype = _facts(order)
        model = await asyncio.to_thread(open_model, Path(order.checkpoint))
        for group in order.groups:
            if not group.stages or any(stage.layer >= config.layers for stage in group.stages):
                raise PeerProblem(
                    f"group {group.number} names stages the model does not have", fix=SAME_VERSION
                )
        if model.checkpoint.digest != order.digest:
            raise CheckpointProblem(
                f"{order.checkpoint} is not the file the coordinator opened", fix="give both the same model"
            )
        stages = [stage for group in order.groups for stage in _stages(group)]
        model.refuse_if_short(stages, dtype, order.context)
        stops: dict[int, Stop] = {}
        for done, group in enumerate(order.groups):
            link.send(Loading(done, len(order.groups), _label(group)))
            stops[group.number] = await asyncio.to_thread(_build, model, config, group, order, dtype)
        equal = all(stop.session.rows_equal() for stop in stops.values())
        return_free_memory()  # what converting has used is of no use any more
        gather_into_huge_pages()
        self._held = Held(config, stops, equal)
        weights = sum(stop.session.weight_bytes for stop in stops.values())
        return Loaded(weights, model.kv_bytes(stages, 1), rss_bytes(), equal)

    # --- ways on ---

    async def _join(self, link: Link, order: Join) -> None:
        """Connects to every successor; frames for our own groups stay here."""
        held = self._holding()
        await self._leave()
        for hop in order.hops:
            if hop.group in held.stops:
                self._ways[hop.group] = self._take
            elif hop.address:
                self._ways[hop.group] = (await self._link_to(hop.address)).send
            else:
                self._ways[hop.group] = link.send

    async def _link_to(self, address: str) -> Link:
        if address not in self._links:
            hello = Hello(VERSION, mesh="", role="station", name=self.name)
            self._links[address] = await connect(address, hello=hello, deadline_s=CONNECT_DEADLINE_S)
        return self._links[address]

    async def _leave(self) -> None:
        self._ways.clear()
        while self._links:
            await self._links.popitem()[1].close()

    # --- streams and frames ---

    def _open(self) -> Stream:
        return Stream({number: Track(stop.session) for number, stop in self._holding().stops.items()})

    def _holding(self) -> Held:
        if self._held is None:
            raise PeerProblem(f"station {self.name} holds no stages", fix="load it first")
        return self._held

    def _take(self, said: Activation) -> None:
        """Runs the group a frame is for and sends on what it leaves; called straight from the socket.

        A frame that makes no sense ends the link it came by; whatever stops a frame, the coordinator
        hears of it at once and need not wait for a deadline.
        """
        try:
            self._run(said)
        except Problem as problem:
            self._report(problem, said.stream)
            raise
        except Exception as error:  # the engine's own: out of memory, above all
            ours = OwnProblem(
                f"station {self.name} could not run group {said.group}: {error}", fix=_SEE_OUTPUT
            )
            self._report(ours, said.stream)
            raise ours from error

    def _run(self, said: Activation) -> None:
        held, stream = self._holding(), self._streams.get(said.stream)
        if stream is None:
            return  # closed while this frame was on its way
        stop = held.stops.get(said.group)
        if stop is None:
            raise PeerProblem(
                f"a frame for group {said.group}, which station {self.name} does not hold", fix=SAME_VERSION
            )
        inputs = _inputs(stop, stream, said, _rows(stop, said))
        if inputs is None:
            return
        began = time.perf_counter()
        track = stream.tracks[stop.number]
        try:
            if said.flags & ROW_BY_ROW:
                out = track.step(inputs, said.position, batch=held.rows_equal)
            else:
                out = track.run(inputs, said.position)
        except OwnProblem as problem:  # positions that do not follow are the sender's doing
            raise PeerProblem(problem.what, fix=SAME_VERSION) from None
        held.frames += 1
        held.busy_ms += (time.perf_counter() - began) * 1e3
        self._pass_on(stop, said, out)

    def _pass_on(self, stop: Stop, said: Activation, out: Floats) -> None:
        payload = out.data.cast("B")
        targets = [(stop.number + 1, False)]
        if stop.sends_residual:
            targets.append((stop.number + 2, True))
        for group, residual in targets:
            on = msgspec.structs.replace(said, group=group, payload=payload, residual=residual)
            way = self._ways.get(group)
            if way is None:
                raise PeerProblem(f"no way to group {group} from station {self.name}", fix=SAME_VERSION)
            way(on)

    def _report(self, problem: Problem, stream: int) -> None:
        """Tells the coordinator what went wrong on the way on."""
        if self._coordinator is not None:
            with contextlib.suppress(Problem):  # its link has ended too
                self._coordinator.send(Fault(problem.what, problem.fix, stream))


def _facts(order: Load) -> tuple[ModelConfig, Dtype]:
    try:
        config = msgspec.msgpack.decode(order.config, type=ModelConfig)
    except msgspec.DecodeError as error:
        raise PeerProblem(f"a model description that cannot be read: {error}", fix=SAME_VERSION) from None
    dtype = next((d for d in DTYPES if d == order.dtype), None)
    if dtype is None:
        raise PeerProblem(f"dtype {order.dtype!r} is not one of {', '.join(DTYPES)}", fix=SAME_VERSION)
    return config, dtype


def _stages(group: GroupSpec) -> tuple[Stage, ...]:
    return tuple(Stage(s.layer, s.kind) for s in group.stages)


def _label(group: GroupSpec) -> str:
    stages = _stages(group)
    return str(stages[0]) if len(stages) == 1 else f"{stages[0]} to {stages[-1]}"


def _build(model: Model, config: ModelConfig, group: GroupSpec, order: Load, dtype: Dtype) -> Stop:
    stages = _stages(group)
    files = list(model.files(stages, dtype))
    session = StageSession(config, files, context=order.context, threads=order.threads, spin=False)
    return Stop(group.number, session)


def _rows(stop: Stop, said: Activation) -> Floats:
    """The payload as [rows, width]; a view of the receive buffer."""
    name = "r" if said.residual else stop.main
    width = stop.session.takes.get(name)
    n_bytes = len(said.payload)
    if width is None or n_bytes != said.rows * width * 4:
        raise PeerProblem(
            f"{n_bytes:,} bytes in {said.rows} rows, which group {stop.number} cannot take as {name}",
            fix=SAME_VERSION,
        )
    return np.frombuffer(said.payload, dtype=np.float32).reshape(said.rows, width)


def _inputs(stop: Stop, stream: Stream, said: Activation, rows: Floats) -> dict[str, Floats] | None:
    """What the group runs on; None while the other half of a join is still on its way.

    Residual and widened rows come over different links and in either order.
    """
    if not stop.joins:
        return {stop.main: rows}
    other = stream.halves.pop((said.group, said.position, not said.residual), None)
    if other is None or len(other) != said.rows:
        stream.halves[said.group, said.position, said.residual] = rows.copy()
        return None
    return {stop.main: other, "r": rows} if said.residual else {stop.main: rows, "r": other}


async def serve(listen_at: str, *, name: str, announce: Callable[[str], None]) -> None:
    """Listens and serves until cancelled; `announce` is told the HOST:PORT it got.

    RequestProblem when the address cannot be had, or can be reached from other machines.
    """
    host, port = host_and_port(listen_at)
    station = Station(name or f"station-{os.getpid()}")
    welcome = Welcome(
        VERSION, station.name, os.getpid(), cpu_kind(), f"onnxruntime {onnxruntime.__version__}"
    )
    server = await listen(host, port, welcome=welcome, accept=station.accept)
    announce(f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}")
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await server.close()
