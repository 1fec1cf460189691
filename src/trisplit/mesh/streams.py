"""One sequence on its way round the mesh, as the coordinator sees it: what was sent, what has come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from trisplit.errors import PeerProblem
from trisplit.models.generation import Generation
from trisplit.models.session import Floats
from trisplit.wire.choosing import Drafts, Sample
from trisplit.wire.frame import EPOCHS_OF_A_TAIL, IDS, SAME_VERSION, Activation

MOST_UNDER_WAY_BYTES: Final = 16 * 2**20  # of all prompts; rows that are widened on their way weigh more


class Came(NamedTuple):
    """An id that stands at `position`; what follows it is of this epoch."""

    position: int
    token_id: int
    epoch: int


class Stream:
    """The coordinator's end of a stream.

    `epoch` counts rewinds, ours in steps that leave room for those of whoever samples. `sent` positions are
    on their way or back, `back` of them are back. Of the rows that end a trip only the last of a chunk comes;
    in a ring it is the id that follows it.
    """

    def __init__(self, number: int, hidden: int) -> None:
        self.number, self.epoch = number, 0
        self.sent = self.back = 0
        self.epochs: list[tuple[int, int]] = []  # those in which rows were sent, and where each began
        self.order: Sample | None = None  # what a ring's tail was told last
        self.known: int | None = None  # ids that stand, while others may be under way that were drafted
        self.rows: deque[Activation] | None = None  # that end trips, each kept, for who looks at all of them
        self.fed: list[tuple[int, tuple[int, ...]]] = []  # what has gone into the first group, in its chunks
        self._hidden = hidden
        self._last: Floats | None = None
        self._ids: deque[Came] = deque()
        self._newest: int | None = None  # came last, and may be fed
        self._arrival: asyncio.Future[None] | None = None
        self._is_awake = False  # something has come that nobody has waited for

    def move_to(self, position: int, n: int) -> None:
        """`n` rows from `position` on will be sent; earlier than what was sent is a rewind."""
        if position < self.sent:
            self._begin(position)
        self.sent = position + n
        self._ids.clear()
        self._newest = None
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, position))

    def _begin(self, position: int) -> None:
        """An epoch of our own, from `position` on."""
        self.epoch = self._next_epoch
        self.back = position
        while self.fed and self.fed[-1][0] >= position:
            self.fed.pop()

    @property
    def _next_epoch(self) -> int:
        return (self.epoch // EPOCHS_OF_A_TAIL + 1) * EPOCHS_OF_A_TAIL

    @property
    def order_number(self) -> int:
        """Counts what we ourselves have begun or given up."""
        return self.epoch // EPOCHS_OF_A_TAIL

    def restart(self) -> None:
        """Whatever is under way is given up; of what is known the last id will be fed, again or at last."""
        assert self.known is not None
        self._begin(self.known - 1)
        self.epochs.append((self.epoch, self.known - 1))
        self.sent = self.known
        self._ids.clear()
        self._newest = None
        if self.rows is not None:
            self.rows.clear()
        self.wake()

    def turn(self, epoch: int, position: int) -> None:
        """Whoever samples has begun an epoch there."""
        self.epoch = epoch
        self.epochs.append((epoch, position))

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
        self.epoch = self._next_epoch
        self.known, self.rows = None, None
        self._ids.clear()

    def arrive(self, said: Activation) -> None:
        """The end of a trip, straight from the socket. PeerProblem when it makes no sense."""
        item_bytes = 4 if said.dtype == IDS else 4 * self._hidden
        if len(said.payload) != said.rows * item_bytes or (said.rows > 1 and self.known is None):
            what = f"{len(said.payload):,} bytes in {said.rows} rows at the end of a trip"
            raise PeerProblem(what, fix=SAME_VERSION)
        if said.epoch < self.epoch or said.epoch // EPOCHS_OF_A_TAIL != self.order_number:
            return  # of what was given up
        if said.dtype == IDS:
            if said.epoch > self.epoch:
                self.turn(said.epoch, said.position)
            for at, token_id in enumerate(memoryview(said.payload).cast("B").cast("I"), said.position):
                self.stand(at, token_id)
        elif self.rows is not None:
            self.rows.append(replace(said, payload=bytes(said.payload)))
            self.back = max(self.back, said.position + said.rows)
        else:
            self._last = np.frombuffer(said.payload, dtype=np.float32)[None].copy()
            self.back = max(self.back, said.position + 1)
        self.wake()

    def stand(self, position: int, token_id: int) -> None:
        """An id stands after the row it was chosen from; one that is known already is an echo."""
        if position >= self.sent:
            if self._newest is not None:  # it was fed, or there would be no id after it
                self.feed(position - 1, (self._newest,))
            self._newest = token_id
            self._ids.append(Came(position, token_id, self.epoch))
            self.sent = position + 1
        self.back = max(self.back, position)

    def next_came(self) -> Came | None:
        """The oldest id nobody has taken yet."""
        return self._ids.popleft() if self._ids else None

    def last(self) -> Floats:
        """The row that ended the last trip, [1, hidden]."""
        assert self._last is not None
        return self._last

    def arrival(self) -> asyncio.Future[None]:
        """Done when something more has come; at once if it has since the last one was done."""
        self._arrival = asyncio.get_running_loop().create_future()
        if self._is_awake:
            self.wake()
        return self._arrival

    def wake(self) -> None:
        """Something has happened that is waited for."""
        self._is_awake = self._arrival is None or self._arrival.done()
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


def order_to_sample(stream: Stream, answer: Generation, drafts: Drafts = "none") -> Sample:
    """What tells whoever samples to choose what follows the ids of an answer."""
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
        drafts,
    )
