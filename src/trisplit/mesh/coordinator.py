"""SPINE: a prompt in, once round the mesh per token, tokens out."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from trisplit.errors import PeerProblem
from trisplit.mesh.peers import Peer, Peers
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
    Close,
    Closed,
    Facts,
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

LOAD_DEADLINE_S: Final = 600.0  # from one stage to the next: the first load converts weights
JOIN_DEADLINE_S: Final = 30.0  # more than a station gives its successors to answer
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


class Coordinator:
    """Keeps embed and head, drives one chain of stations; one stream at a time.

    Use `async with Coordinator(...)`; then `async for … in load()`, `open`, `generate`, `close`.
    Whatever goes wrong on any link ends every wait at once with a PeerProblem naming the station.
    """

    def __init__(self, model: Model, ends: Ends, plan: Plan, addresses: Mapping[str, str]) -> None:
        self.model, self.ends, self.plan = model, ends, plan
        self._addresses = addresses
        self._mesh = secrets.token_hex(8)
        self._peers = Peers()
        self._end = len(plan.groups)  # the number frames to us are addressed to
        self._stream = 0
        self._epoch = 0  # rewinds of the stream: what was sent before one is void
        self._sent = 0  # positions of it
        self._due = -1  # position of the chunk whose last row is waited for
        self._arrival: asyncio.Future[Floats] | None = None

    async def __aenter__(self) -> Coordinator:
        try:
            for share in self.plan.shares:
                hello = Hello(VERSION, mesh=self._mesh, role="coordinator", name="coordinator")
                address = self._addresses[share.station]
                await self._peers.meet(share.station, address, hello, self._arrive)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._peers.leave("the coordinator is done")

    # --- loading ---

    async def load(self, dtype: Dtype, *, context: int, threads: int) -> AsyncIterator[Progress]:
        """Has every station build its stages, all at once; yields how far each is."""
        config = msgspec.msgpack.encode(self.model.config)
        checkpoint = self.model.checkpoint
        for share in self.plan.shares:
            groups = tuple(_spec(group) for group in share.groups)
            order = Load(
                config, str(checkpoint.path.absolute()), checkpoint.digest, dtype, threads, context, groups
            )
            self._peers[share.station].link.send(order)
        busy = {self._later(peer): peer for peer in self._peers}
        try:
            while busy:
                await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
                for answer in [answer for answer in busy if answer.done()]:
                    peer, said = busy.pop(answer), answer.result()
                    if isinstance(said, Loading):
                        busy[self._later(peer)] = peer
                        yield Progress(peer.name, said.done, said.total, said.what)
                    elif isinstance(said, Loaded):
                        peer.loaded = said
                    else:
                        what = f"station {peer.name} said {type(said).__name__} while loading"
                        raise PeerProblem(what, fix=SAME_VERSION)
        finally:
            for answer in busy:
                answer.cancel()
        await self._join()

    def _later(self, peer: Peer) -> asyncio.Task[Message]:
        return asyncio.create_task(self._peers.next(peer, LOAD_DEADLINE_S))

    async def _join(self) -> None:
        """Tells each station where what it leaves goes."""
        for share in self.plan.shares:
            numbers = sorted({n + 1 for g in share.groups for n in (g.number, g.number + 1)})
            hops = tuple(Hop(n, self._address_of(n)) for n in numbers if n <= self._end)
            self._peers[share.station].link.send(Join(hops))
        for share in self.plan.shares:
            await self._peers.expect(self._peers[share.station], Joined, JOIN_DEADLINE_S)

    def _address_of(self, group: int) -> str:
        return "" if group == self._end else self._addresses[self.plan.station_of(group)]

    async def facts(self) -> list[StationFacts]:
        """What each station holds, and its memory now."""
        rows = []
        for share in self.plan.shares:
            peer = self._peers[share.station]
            peer.link.send(Ask())
            now = await self._peers.expect(peer, Facts, ANSWER_DEADLINE_S)
            assert peer.loaded is not None
            rows.append(
                StationFacts(
                    name=_name(peer),
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
        self._epoch = self._sent = 0
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
        for peer in self._peers:
            peer.link.send(word)
        for peer in self._peers:
            await self._peers.expect(peer, answer, ANSWER_DEADLINE_S)

    # --- tokens ---

    async def generate(self, answer: Generation) -> AsyncIterator[Piece]:
        """Runs an answer to its end, piece by piece."""
        while not answer.finished:
            logits = await self.forward(answer.pending, answer.position)
            yield answer.take(logits)

    async def forward(self, ids: Sequence[int], position: int) -> Floats:
        """Logits [vocab] after the last of `ids`; the one trip through the mesh.

        All chunks are sent at once and follow each other down the chain; only the last row of the
        last one is waited for. The next trip overwrites what this one returned.
        """
        first = self._peers[self.plan.station_of(0)].link
        self._epoch += position < self._sent
        self._sent = position + len(ids)
        self._arrival = asyncio.get_running_loop().create_future()
        for piece, start in chunks(ids, position):
            self._due = start
            rows = self.ends.embed(piece).data.cast("B")
            first.send(Activation(self._stream, start, self._epoch, 0, len(piece), rows))
        last = await self._peers.wait(self._arrival, STEP_DEADLINE_S, "an answer to a token")
        return self.ends.logits(last)

    def _arrive(self, said: Activation) -> None:
        """The last residual of a chunk, straight from the socket."""
        width = self.model.config.hidden
        if said.group != self._end or len(said.payload) != said.rows * width * 4:
            raise PeerProblem(
                f"{len(said.payload):,} bytes in {said.rows} rows for group {said.group}", fix=SAME_VERSION
            )
        if (said.stream, said.epoch) != (self._stream, self._epoch):
            return  # of what was given up
        self._peers.progress()
        if said.position == self._due and self._arrival is not None and not self._arrival.done():
            rows = np.frombuffer(said.payload, dtype=np.float32).reshape(said.rows, width)
            self._arrival.set_result(rows[-1:].copy())


def _name(peer: Peer) -> str:
    """Our name for a station, and its own if somebody gave it one."""
    welcome = peer.link.welcome
    if welcome is None or welcome.name in (peer.name, f"station-{welcome.pid}"):
        return peer.name
    return f"{peer.name} ({welcome.name})"


def _spec(group: Group) -> GroupSpec:
    thirds = [StageSpec(s.layer, s.kind) for s in group.stages if s.kind != "embed" and s.kind != "head"]
    return GroupSpec(group.number, tuple(thirds))
