"""One sequence on its way round the mesh, as the coordinator sees it: what was sent, what has come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from trisplit.errors import PeerProblem
from trisplit.models.session import Floats
from trisplit.wire.frame import IDS, SAME_VERSION, Activation

MOST_UNDER_WAY_BYTES: Final = 16 * 2**20  # of all prompts; rows that are widened on their way weigh more


class Stream:
    """The coordinator's end of a stream.

    `epoch` counts rewinds; `sent` positions are on their way or back, `back` of them are back. Of the rows
    that end a trip only the last of a chunk comes; in a ring it is the id that follows it.
    """

    def __init__(self, number: int, hidden: int) -> None:
        self.number, self.epoch = number, 0
        self.sent = self.back = 0
        self._hidden = hidden
        self._last: Floats | None = None
        self._ids: deque[int] = deque()
        self._arrival: asyncio.Future[None] | None = None

    def move_to(self, position: int, n: int) -> None:
        """`n` rows from `position` on will be sent; earlier than what was sent is a rewind."""
        if position < self.sent:
            self.epoch += 1
            self.back = position
        self.sent = position + n
        self._ids.clear()

    def void(self) -> None:
        """What is still on its way is given up."""
        self.epoch += 1
        self._ids.clear()

    def arrive(self, said: Activation) -> None:
        """The end of a trip, straight from the socket. PeerProblem when it makes no sense."""
        n_bytes = 4 if said.dtype == IDS else 4 * self._hidden
        if said.rows != 1 or len(said.payload) != n_bytes:
            what = f"{len(said.payload):,} bytes in {said.rows} rows at the end of a trip"
            raise PeerProblem(what, fix=SAME_VERSION)
        if said.epoch != self.epoch:
            return  # of what was given up
        if said.dtype == IDS:
            self._arrive_id(said)
        else:
            self._last = np.frombuffer(said.payload, dtype=np.float32)[None].copy()
            self.back = max(self.back, said.position + 1)
        self._wake()

    def _arrive_id(self, said: Activation) -> None:
        """An id stands after the row it was chosen from; one that is known already is an echo."""
        if said.position >= self.sent:
            self._ids.append(int.from_bytes(said.payload, "little"))
            self.sent = said.position + 1
        self.back = max(self.back, said.position)

    def next_id(self) -> int | None:
        """The oldest id nobody has taken yet."""
        return self._ids.popleft() if self._ids else None

    def last(self) -> Floats:
        """The row that ended the last trip, [1, hidden]."""
        assert self._last is not None
        return self._last

    def arrival(self) -> asyncio.Future[None]:
        """Done when something more has come."""
        self._arrival = asyncio.get_running_loop().create_future()
        return self._arrival

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def has_room(stream: Stream, start: int, row_bytes: int) -> bool:
    """Whether a chunk from `start` on may be sent before more of the prompt is back.

    `row_bytes` is what a row weighs times the streams that share the links, so that what waits in front
    of a slow one stays far below what a link bears (`link.MAX_UNSENT_BYTES`).
    """
    return (start - stream.back) * row_bytes < MOST_UNDER_WAY_BYTES


def pieces(ids: Sequence[int]) -> Iterator[bytes]:
    """Each id as its four bytes."""
    return (int(id_).to_bytes(4, "little") for id_ in ids)
