"""Trips round a mesh: what is sent to the first group, what is waited for, what is void."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from trisplit.errors import PeerProblem
from trisplit.mesh.membership import ANSWER_DEADLINE_S, Membership
from trisplit.mesh.peers import StationLost
from trisplit.mesh.streams import Stream, has_room, pieces
from trisplit.models.decoder import chunks
from trisplit.models.ends import Ends
from trisplit.models.session import Floats
from trisplit.wire.choosing import Drafted, Fence, Sample, Sampling
from trisplit.wire.frame import F32, IDS, Activation

STEP_DEADLINE_S: Final = 120.0  # for one chunk or token once round


@dataclass(slots=True)
class Trips:
    """The trips of all streams of one mesh. `ends` is None in a ring.

    `whole` is set while no station is missing; with `recovers` what is sent to one that is lost is sent again
    later. `streams` are those that are open.
    """

    hidden: int
    ends: Ends | None
    members: Membership
    streams: dict[int, Stream]
    recovers: bool
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    drafted: int = 0
    """Answers that are drafted now."""
    _rows_waiting: deque[tuple[Floats, asyncio.Future[Floats]]] = field(default_factory=deque)

    async def wait(self, stream: Stream, what: str) -> None:
        """Returns when something more has come for the stream. PeerProblem when it does not, or cannot."""
        if stream.number not in self.streams:
            raise PeerProblem(f"stream {stream.number} is closed", fix="open another")
        await self.members.peers.wait(stream.arrival(), STEP_DEADLINE_S, what)

    async def feed(self, stream: Stream, ids: Sequence[int], position: int, flags: int = 0) -> None:
        """Sends ids on their way, in chunks, no more at once than links can bear."""
        hidden_bytes = 4 * self.hidden
        for piece, start in chunks(ids, position):
            while not has_room(stream, start, hidden_bytes * len(self.streams)):
                await self.wait(stream, "an answer to a chunk")
            await self.whole.wait()
            stream.feed(start, piece)
            self.say(stream, start, piece, flags)

    def say(self, stream: Stream, position: int, ids: Sequence[int], flags: int) -> None:
        """One chunk to the first group, if it can be said now."""
        self._say_to(0, self._chunk(stream, position, ids, flags))

    def hand_on(self, said: Activation) -> None:
        """In a star, a frame to whoever holds its group; one of a closed stream is wanted by nobody.

        While a group's taker is not ready whoever sent the frame keeps it, and will send it again.
        """
        if said.stream in self.streams and said.group not in self.members.away:
            with contextlib.suppress(PeerProblem):  # who is gone is seen to, and is sent it again
                self.members.link(said.group).send(said)

    def send(self, stream: Stream, position: int, ids: Sequence[int]) -> None:
        """One chunk to the first group, whoever else is missing."""
        self.members.link(0).send(self._chunk(stream, position, ids, 0))

    def draft(self, stream: Stream, position: int, ids: Sequence[int]) -> None:
        """Tells the tail of a ring which ids are fed that it has not chosen, if it can be said now."""
        self._say_to(self.members.end - 1, Drafted(stream.number, stream.epoch, position, tuple(ids)))

    def _say_to(self, group: int, said: Activation | Drafted) -> None:
        """To whoever holds a group; where stations are replaced, what cannot be said is said again later."""
        if self.whole.is_set():
            with contextlib.suppress(*([PeerProblem] if self.recovers else [])):
                self.members.link(group).send(said)

    def _chunk(self, stream: Stream, position: int, ids: Sequence[int], flags: int) -> Activation:
        """Ids where the first group has embed, else rows."""
        if self.ends is None:
            payload: bytes | memoryview = b"".join(pieces(ids))
        else:
            payload = self.ends.embed(ids).data.cast("B")
        dtype = F32 if self.ends else IDS
        return Activation(stream.number, position, stream.epoch, 0, len(ids), payload, dtype, flags)

    async def order(self, order: Sample) -> None:
        """Tells the tail how to choose, whoever the tail is by then."""
        while True:
            await self.whole.wait()
            tail = self.members.home(self.members.end - 1)
            try:
                await self.members.peers.ask(tail, order, Sampling, ANSWER_DEADLINE_S)
                return
            except StationLost:
                if not self.recovers:
                    raise

    @property
    def leg_s(self) -> float:
        """One way over the wire, as far as answers tell; 0 before the first."""
        trips_ms = [peer.round_trip_ms for peer in self.members.peers if peer.round_trip_ms is not None]
        return median(trips_ms) / 2e3 if trips_ms else 0.0

    def fence(self, stream: Stream) -> None:
        """Tells everybody that what was said in the stream before its epoch is void."""
        for peer in self.members.present if stream.number in self.streams else ():
            with contextlib.suppress(PeerProblem):  # who is gone does nothing more
                peer.link.send(Fence(stream.number, stream.epoch))

    async def logits(self, last: Floats) -> Floats:
        """[vocab] from a last residual; the head runs once for all that came in the same turn of the loop."""
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
                future.set_result(logits.copy())  # another row may pass before it is looked at
