"""SPINE: a prompt in, once round the mesh per token, tokens out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.link import Link, connect
from trisplit.mesh.plan import Group, Plan
from trisplit.models.convert import Dtype
from trisplit.models.decoder import chunks
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Piece, Request
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.messages import (
    VERSION,
    Ask,
    Bye,
    Close,
    Closed,
    Facts,
    Fault,
    GroupSpec,
    Hello,
    Hop,
    Join,
    Joined,
    Load,
    Loaded,
    Loading,
    Message,
    Open,
    Opened,
    StageSpec,
)

T = TypeVar("T")
M = TypeVar("M", bound=Message)

CONNECT_DEADLINE_S: Final = 10.0
LOAD_DEADLINE_S: Final = 600.0  # from one stage to the next: the first load converts weights
ANSWER_DEADLINE_S: Final = 10.0
STEP_DEADLINE_S: Final = 120.0  # for one chunk or token once round


@dataclass(frozen=True, slots=True, kw_only=True)
class StationFacts:
    """What one station holds and takes."""

    name: str
    stages: str
    weight_bytes: int
    kv_bytes: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Progress:
    """One station has the weights of `what` ready, the `done`-th of its `total` stages."""

    station: str
    done: int
    total: int
    what: str


@dataclass(slots=True)
class _Peer:
    """A station as the coordinator sees it."""

    name: str
    address: str
    link: Link
    said: deque[Message] = field(default_factory=deque)
    arrival: asyncio.Future[None] | None = None
    loaded: Loaded | None = None


class Coordinator:
    """Keeps embed and head, drives one chain of stations; one stream at a time.

    Use `async with Coordinator(...)`; then `async for … in load()`, `open`, `generate`, `close`.
    Whatever goes wrong on any link ends every wait at once with a PeerProblem naming the station.
    """

    def __init__(self, model: Model, ends: Ends, plan: Plan, addresses: Mapping[str, str]) -> None:
        self.model, self.ends, self.plan = model, ends, plan
        self._addresses = addresses
        self._peers: dict[str, _Peer] = {}
        self._pumps: list[asyncio.Task[None]] = []
        self._failure: Problem | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._stream = 0
        self._due = -1  # position of the chunk whose last row is waited for
        self._arrival: asyncio.Future[Floats] | None = None

    async def __aenter__(self) -> Coordinator:
        try:
            for share in self.plan.shares:
                await self._meet(share.station)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for peer in self._peers.values():
            await peer.link.close("the coordinator is done")

    async def _meet(self, name: str) -> None:
        hello = Hello(VERSION, mesh="", role="coordinator", name="coordinator")
        link = await connect(self._addresses[name], hello=hello, deadline_s=CONNECT_DEADLINE_S)
        peer = _Peer(name, self._addresses[name], link)
        link.peer = f"station {name} at {peer.address}"
        link.on_activation = self._arrive
        self._peers[name] = peer
        self._pumps.append(asyncio.create_task(self._pump(peer)))

    async def _pump(self, peer: _Peer) -> None:
        """Takes what a station says; its death or a fault of its ends every wait of ours."""
        try:
            while True:
                said = await peer.link.receive(None)
                if isinstance(said, Fault):
                    raise PeerProblem(f"station {peer.name}: {said.what}", fix=said.fix)
                if isinstance(said, (Bye, Activation)):
                    continue  # the next wait says why the link has ended; activations go to _arrive
                peer.said.append(said)
                if peer.arrival is not None and not peer.arrival.done():
                    peer.arrival.set_result(None)
        except Problem as problem:
            self._fail(problem)

    def _fail(self, problem: Problem) -> None:
        self._failure = self._failure or problem
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(self._failure)

    # --- loading ---

    async def load(self, dtype: Dtype, *, context: int, threads: int) -> AsyncIterator[Progress]:
        """Has every station build its stages, all at once; yields how far each is."""
        config = msgspec.msgpack.encode(self.model.config)
        checkpoint = self.model.checkpoint
        for share in self.plan.shares:
            groups = tuple(_spec(group) for group in share.groups)
            order = Load(
                config, str(checkpoint.path.resolve()), checkpoint.digest, dtype, threads, context, groups
            )
            self._peers[share.station].link.send(order)
        busy = {self._later(peer): peer for peer in self._peers.values()}
        try:
            while busy:
                await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
                for answer in [answer for answer in busy if answer.done()]:
                    peer, said = busy.pop(answer), answer.result()
                    if isinstance(said, Loading):
                        busy[self._later(peer)] = peer
                        yield Progress(peer.name, said.done, said.total, said.what)
                    else:
                        peer.loaded = _being(Loaded, said, peer)
        finally:
            for answer in busy:
                answer.cancel()
        await self._join()

    def _later(self, peer: _Peer) -> asyncio.Task[Message]:
        return asyncio.create_task(self._next(peer, LOAD_DEADLINE_S))

    async def _join(self) -> None:
        """Tells each station where what it leaves goes."""
        last = self.plan.groups[-1].number
        for share in self.plan.shares:
            numbers = sorted({n + 1 for g in share.groups for n in (g.number, g.number + 1)})
            hops = tuple(Hop(n, self._address_of(n)) for n in numbers if n <= last + 1)
            self._peers[share.station].link.send(Join(hops))
        for share in self.plan.shares:
            await self._expect(self._peers[share.station], Joined, CONNECT_DEADLINE_S)

    def _address_of(self, group: int) -> str:
        is_ours = group > self.plan.groups[-1].number
        return "" if is_ours else self._addresses[self.plan.station_of(group)]

    async def facts(self) -> list[StationFacts]:
        """What each station holds, and its memory now."""
        rows = []
        for share in self.plan.shares:
            peer = self._peers[share.station]
            peer.link.send(Ask())
            now = await self._expect(peer, Facts, ANSWER_DEADLINE_S)
            assert peer.loaded is not None
            rows.append(
                StationFacts(
                    name=peer.name,
                    stages=share.label,
                    weight_bytes=peer.loaded.weight_bytes,
                    kv_bytes=share.kv_bytes,
                    rss_bytes=now.rss_bytes,
                )
            )
        return rows

    # --- streams ---

    async def open(self, request: Request) -> None:
        """Starts a stream on every station; waits until all have room for it."""
        self._stream += 1
        s = request.sampling
        word = Open(
            self._stream,
            tuple(request.prompt_ids),
            s.temperature,
            s.top_k,
            s.top_p,
            s.min_p,
            s.repetition_penalty,
            s.seed,
        )
        await self._everyone(word, Opened)

    async def close(self) -> None:
        """Ends the stream; its keys and values are forgotten everywhere."""
        await self._everyone(Close(self._stream), Closed)

    async def _everyone(self, word: Message, answer: type[Message]) -> None:
        for peer in self._peers.values():
            peer.link.send(word)
        for peer in self._peers.values():
            await self._expect(peer, answer, ANSWER_DEADLINE_S)

    # --- tokens ---

    async def generate(self, answer: Generation) -> AsyncIterator[Piece]:
        """Runs an answer to its end, piece by piece."""
        while not answer.finished:
            logits = await self.forward(answer.pending, answer.position)
            yield answer.take(logits)

    async def forward(self, ids: Sequence[int], position: int) -> Floats:
        """Logits [vocab] after the last of `ids`; the one trip through the mesh.

        All chunks are sent at once and follow each other down the chain; only the last row of the
        last one is waited for.
        """
        first = self._peers[self.plan.station_of(0)].link
        self._arrival = asyncio.get_running_loop().create_future()
        for piece, start in chunks(ids, position):
            self._due = start
            rows = self.ends.embed(piece).data.cast("B")
            first.send(Activation(self._stream, start, 0, 0, len(piece), rows))
        return self.ends.logits(await self._wait(self._arrival, STEP_DEADLINE_S, "an answer to a token"))

    def _arrive(self, said: Activation) -> None:
        """The last residual of a chunk, straight from the socket."""
        width = self.model.config.hidden
        if said.group != len(self.plan.groups) or len(said.payload) != said.rows * width * 4:
            raise PeerProblem(
                f"{len(said.payload):,} bytes in {said.rows} rows for group {said.group}", fix=SAME_VERSION
            )
        waits = self._arrival is not None and not self._arrival.done()
        if self._arrival is not None and waits and (said.stream, said.position) == (self._stream, self._due):
            rows = np.frombuffer(said.payload, dtype=np.float32).reshape(said.rows, width)
            self._arrival.set_result(rows[-1:].copy())

    # --- waiting ---

    async def _expect(self, peer: _Peer, kind: type[M], deadline_s: float) -> M:
        """The next control message of a station; PeerProblem if it is of another kind."""
        return _being(kind, await self._next(peer, deadline_s), peer)

    async def _next(self, peer: _Peer, deadline_s: float) -> Message:
        if not peer.said:
            peer.arrival = asyncio.get_running_loop().create_future()
            await self._wait(peer.arrival, deadline_s, f"an answer of station {peer.name}")
        return peer.said.popleft()

    async def _wait(self, future: asyncio.Future[T], deadline_s: float, what: str) -> T:
        """The future's result, or the failure of any station, or PeerProblem after the deadline."""
        if self._failure is not None:
            raise self._failure
        late = PeerProblem(f"{what} did not come within {deadline_s:g} s", fix="see that the stations run")
        timer = asyncio.get_running_loop().call_later(deadline_s, self._fail, late)
        self._waiting.add(future)
        try:
            return await future
        finally:
            timer.cancel()
            self._waiting.discard(future)


def _being(kind: type[M], said: Message, peer: _Peer) -> M:
    if not isinstance(said, kind):
        what = f"station {peer.name} said {type(said).__name__} where {kind.__name__} was due"
        raise PeerProblem(what, fix=SAME_VERSION)
    return said


def _spec(group: Group) -> GroupSpec:
    return GroupSpec(group.number, tuple(StageSpec(s.layer, s.kind) for s in group.stages))
