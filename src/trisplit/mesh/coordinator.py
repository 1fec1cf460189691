"""SPINE: a prompt in, once round the mesh per token, tokens out."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from trisplit.errors import PeerProblem
from trisplit.mesh import pushing
from trisplit.mesh.facts import StationFacts, of_stations, of_this_process
from trisplit.mesh.link import Link
from trisplit.mesh.peers import SILENCE_S, Peers
from trisplit.mesh.plan import Plan
from trisplit.mesh.pushing import Progress, Stock, Weights
from trisplit.mesh.streams import Stream, has_room, pieces
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.mesh.ways import ways, with_routes
from trisplit.models.convert import Dtype
from trisplit.models.decoder import chunks
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Piece
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.wire.frame import F32, IDS, SAME_VERSION, Activation
from trisplit.wire.messages import (
    VERSION,
    Close,
    Closed,
    Fence,
    Hello,
    Join,
    Joined,
    Open,
    Opened,
    Sample,
    Sampling,
)
from trisplit.wire.packing import Message

JOIN_DEADLINE_S: Final = 30.0  # more than a station gives its successors to answer
ANSWER_DEADLINE_S: Final = 10.0
STEP_DEADLINE_S: Final = 120.0  # for one chunk or token once round


class Coordinator:
    """Drives a mesh of stations; keeps embed and head unless it is a ring, where stations hold them.

    Use `async with Coordinator(...)`; then `async for … in load()`, `open` for each sequence, `generate`,
    `close`. Whatever stops the mesh ends every wait at once with a PeerProblem naming the station.
    """

    def __init__(
        self,
        model: Model,
        ends: Ends | None,
        plan: Plan,
        addresses: Mapping[str, str],
        *,
        sessions: int = 1,
        silence_s: float | None = None,
        routed: bool = False,
        trust: Trust = NOBODY,
    ) -> None:
        """`ends` is None for a ring. `sessions` may be open at once; one more waits. `routed`: see `ways`."""
        self.model, self.ends, self.plan, self.sessions = model, ends, plan, sessions
        self._addresses, self._routed, self._trust = addresses, routed, trust
        self._mesh = secrets.token_hex(8)
        self._silence_s = SILENCE_S if silence_s is None else silence_s
        self._end = len(plan.groups)  # the number frames to us are addressed to
        self._homes = {group.number: share.station for share in plan.shares for group in share.groups}
        self._streams: dict[int, Stream] = {}
        self._opened = 0
        self._free = asyncio.Semaphore(sessions)
        self._rows_waiting: deque[tuple[Floats, asyncio.Future[Floats]]] = deque()

    async def __aenter__(self) -> Coordinator:
        self._peers = Peers(self._silence_s, self._trust)
        self._guarding = asyncio.create_task(self._guard())
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
        self._guarding.cancel()
        await self._peers.leave("the coordinator is done")

    async def _guard(self) -> None:
        """A station that is lost takes the mesh with it."""
        loss = await self._peers.losses.get()
        self._peers.fail(loss.problem)

    # --- loading ---

    async def load(
        self, dtype: Dtype, *, context: int, threads: int, weights: Weights = "auto"
    ) -> AsyncIterator[Progress]:
        """Has every station build its stages, all at once; yields how far each is."""
        stock = Stock(self.model, dtype, weights)
        how = {"threads": threads, "context": context, "sessions": self.sessions}
        orders = {share.station: stock.order(share.groups, **how) for share in self.plan.shares}
        async with aclosing(pushing.load(self._peers, orders, stock)) as steps:
            async for step in steps:
                yield step
        await self._join()

    async def _join(self) -> None:
        """Tells each station where what it leaves goes."""
        told = ways(self.plan, self._addresses)
        joining = [
            self._peers.question(self._peers[name], Join(tuple(those), self._end), Joined)
            for name, those in (with_routes(told) if self._routed else told).items()
        ]
        for joined in joining:
            await self._peers.wait(joined, JOIN_DEADLINE_S, "the stations' connections to each other")

    async def facts(self, *, silent: bool = False) -> list[StationFacts]:
        """What each station holds and does now; see `of_stations`."""
        return await of_stations(self._peers, self.plan.shares, ANSWER_DEADLINE_S, silent=silent)

    def own_facts(self) -> StationFacts:
        """What this process holds."""
        if self.ends is None:
            return of_this_process("coordinator", "", 0)
        return of_this_process("coordinator", "embed, head", self.ends.weight_bytes)

    # --- streams ---

    async def open(self) -> Stream:
        """Starts a stream on every station; waits until one is free and all have room for it."""
        await self._free.acquire()
        self._opened += 1
        stream = self._streams[self._opened] = Stream(self._opened, self.model.config.hidden)
        await self._everyone(Open(stream.number), Opened)
        return stream

    async def close(self, stream: Stream) -> None:
        """Ends a stream; its keys and values are forgotten everywhere."""
        del self._streams[stream.number]
        try:
            await self._everyone(Close(stream.number), Closed)
        finally:
            self._free.release()

    async def _everyone(self, word: Message, answer: type[Message]) -> None:
        said = [self._peers.question(peer, word, answer) for peer in self._peers]
        for each in said:
            await self._peers.wait(each, ANSWER_DEADLINE_S, f"{answer.__name__} of every station")

    # --- tokens ---

    async def generate(self, stream: Stream, answer: Generation) -> AsyncIterator[Piece]:
        """Runs an answer to its end, piece by piece."""
        if self.ends is None:
            async for piece in self._round(stream, answer):
                yield piece
        while not answer.finished:
            yield answer.take(await self.forward(stream, answer.pending, answer.position))

    async def forward(self, stream: Stream, ids: Sequence[int], position: int) -> Floats:
        """Logits [vocab] after the last of `ids`: one trip down a chain or over a star.

        The chunks of a prompt follow each other closely. The next trip of any stream overwrites what this
        one returned.
        """
        stream.move_to(position, len(ids))
        await self._feed(stream, ids, position)
        while stream.back < stream.sent:
            await self._peers.wait(stream.arrival(), STEP_DEADLINE_S, "an answer to a token")
        return await self._logits(stream.last())

    async def _round(self, stream: Stream, answer: Generation) -> AsyncIterator[Piece]:
        """The same in a ring: the tail chooses and feeds, and we listen."""
        stream.move_to(answer.position, len(answer.pending))
        tail = self._peers[self._homes[self._end - 1]]
        order = _sample(stream, answer)
        await self._peers.ask(tail, order, Sampling, ANSWER_DEADLINE_S)
        try:
            await self._feed(stream, answer.pending, answer.position)
            while not answer.finished:
                while (token_id := stream.next_id()) is None:
                    await self._peers.wait(stream.arrival(), STEP_DEADLINE_S, "a token")
                yield answer.accept(token_id)
        finally:
            self._give_up(stream)

    def _give_up(self, stream: Stream) -> None:
        """What the ring still does for a stream is void: it may have run past a stop."""
        stream.void()
        if stream.number in self._streams:
            for peer in self._peers:
                with contextlib.suppress(PeerProblem):  # who is gone does nothing more
                    peer.link.send(Fence(stream.number, stream.epoch))

    async def _feed(self, stream: Stream, ids: Sequence[int], position: int) -> None:
        """Sends ids on their way, in chunks, no more at once than links can bear."""
        hidden_bytes = 4 * self.model.config.hidden
        for piece, start in chunks(ids, position):
            while not has_room(stream, start, hidden_bytes * len(self._streams)):
                await self._peers.wait(stream.arrival(), STEP_DEADLINE_S, "an answer to a chunk")
            if self.ends is None:
                payload: bytes | memoryview = b"".join(pieces(piece))
            else:
                payload = self.ends.embed(piece).data.cast("B")
            dtype = F32 if self.ends else IDS
            said = Activation(stream.number, start, stream.epoch, 0, len(piece), payload, dtype)
            self._link_of(0).send(said)

    def _link_of(self, group: int) -> Link:
        return self._peers[self._homes[group]].link

    async def _logits(self, last: Floats) -> Floats:
        """The head, once for all rows that came in the same turn of the loop."""
        logits: asyncio.Future[Floats] = asyncio.get_running_loop().create_future()
        if not self._rows_waiting:
            asyncio.get_running_loop().call_soon(self._run_head)
        self._rows_waiting.append((last, logits))
        return await logits

    def _run_head(self) -> None:
        assert self.ends is not None  # a ring asks for no logits
        waiting = [*self._rows_waiting]
        self._rows_waiting.clear()
        for (_, future), logits in zip(waiting, self.ends.logits([row for row, _ in waiting])):
            if not future.done():
                future.set_result(logits)

    def _arrive(self, said: Activation) -> None:
        """A frame, straight from the socket: the end of a trip, or in a star a hop to hand on."""
        if said.group == self._end:
            stream = self._streams.get(said.stream)
            if stream is not None:
                stream.arrive(said)
        elif self.plan.topology == "star" and said.group in self._homes:
            self._link_of(said.group).send(said)
        else:
            raise PeerProblem(f"{said.rows} rows for group {said.group}", fix=SAME_VERSION)


def _sample(stream: Stream, answer: Generation) -> Sample:
    """The order to choose what follows the ids of an answer."""
    how, request = answer.request.sampling, answer.request
    return Sample(
        stream.number,
        stream.epoch,
        tuple(answer.ids.tolist()),
        how.temperature,
        how.top_k,
        how.top_p,
        how.min_p,
        how.repetition_penalty,
        how.seed,
        answer.longest,
        () if request.ignore_eos else tuple(request.eos_ids),
    )
