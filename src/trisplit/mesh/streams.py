"""One sequence on its way round the mesh, as the coordinator sees it: what was sent, what has come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from trisplit.errors import PeerProblem
from trisplit.models.generation import Generation
from trisplit.models.session import Floats
from trisplit.wire.frame import IDS, SAME_VERSION, Activation
from trisplit.wire.messages import Sample

MOST_UNDER_WAY_BYTES: Final = 16 * 2**20  # of all prompts; rows that are widened on their way weigh more


class Stream:
    """The coordinator's end of a stream.

    `epoch` counts rewinds; `sent` positions are on their way or back, `back` of them are back. Of the rows
    that end a trip only the last of a chunk comes; in a ring it is the id that follows it.
    """

    def __init__(self, number: int, hidden: int) -> None:
        self.number, self.epoch = number, 0
        self.sent = self.back = 0
        self.epochs: list[tuple[int, int]] = []  # those in which rows were sent, and where each began
        self.order: Sample | None = None  # what a ring's tail was told last
        self.fed: list[tuple[int, tuple[int, ...]]] = []  # what has gone into the first group, in its chunks
        self._hidden = hidden
        self._last: Floats | None = None
        self._ids: deque[int] = deque()
        self._newest: int | None = None  # came last, and may be fed
        self._arrival: asyncio.Future[None] | None = None

    def move_to(self, position: int, n: int) -> None:
        """`n` rows from `position` on will be sent; earlier than what was sent is a rewind."""
        if position < self.sent:
            self.epoch += 1
            self.back = position
            while self.fed and self.fed[-1][0] >= position:
                self.fed.pop()
        self.sent = position + n
        self._ids.clear()
        self._newest = None
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, position))

    def feed(self, position: int, ids: Sequence[int]) -> None:
        """A chunk goes into the first group, or an id that has gone into it."""
        while self.fed and self.fed[-1][0] >= position:
            self.fed.pop()
        self.fed.append((position, tuple(ids)))

    @property
    def ids(self) -> list[int]:
        """All ids that are true in the first group."""
        ids: list[int] = []
        for position, piece in self.fed:
            ids[position:] = piece
        return ids

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
            if self._newest is not None:  # it was fed, or there would be no id after it
                self.feed(said.position - 1, (self._newest,))
            self._newest = int.from_bytes(said.payload, "little")
            self._ids.append(self._newest)
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


def order_to_sample(stream: Stream, answer: Generation) -> Sample:
    """What tells a ring's tail to choose what follows the ids of an answer."""
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
