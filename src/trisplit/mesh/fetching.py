"""Files of weights that a station asks its coordinator for: piece by piece, and gone on with after a cut."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

from trisplit.errors import PeerProblem
from trisplit.models.receiving import Receiving
from trisplit.wire.messages import FileSpec, Offer, Piece, Want
from trisplit.wire.owed import MOST_WANTS
from trisplit.wire.session import Said

A = TypeVar("A", Offer, Piece)

PIECE_BYTES: Final = 2**17  # a link of 10 Mbit/s is busy with one for 0.1 s
PIECE_DEADLINE_S: Final = 60.0
_QUEUE_S: Final = 0.1


class Supplier:
    """The coordinator, as a station that loads hears it: offers and pieces, each kept until it is due.

    `receive` gives its next word within a deadline; others than those two are of no use here.
    """

    def __init__(self, send: Callable[[Want], None], receive: Callable[[float], Awaitable[Said]]) -> None:
        self.want = send
        self._receive = receive
        self._kept: defaultdict[type, deque[Any]] = defaultdict(deque)

    async def next(self, kind: type[A], deadline_s: float) -> A:
        """The next answer of this kind; PeerProblem at the deadline, or why the link ended."""
        kept = self._kept[kind]
        while not kept:
            said = await self._receive(deadline_s)
            self._kept[type(said)].append(said)
        answer: A = kept.popleft()
        return answer


class Pace:
    """How many pieces are wanted at once: enough to keep the link busy, without a queue before other frames.

    A piece that took longer than the quickest has waited behind others; so TCP Vegas sets its window
    (Brakmo and Peterson, 1995).
    """

    def __init__(self) -> None:
        self.window = 2
        self._quickest_s = float("inf")

    def took(self, seconds: float) -> None:
        """A piece came `seconds` after it was wanted."""
        self._quickest_s = min(self._quickest_s, seconds)
        if seconds - self._quickest_s < _QUEUE_S:
            self.window = min(self.window + 1, MOST_WANTS)
        else:
            self.window = max(self.window * 3 // 4, 1)


async def fetch(supplier: Supplier, spec: FileSpec, what: str) -> AsyncGenerator[int, None]:
    """Puts one file on the shelf; yields how many of its bytes are here, piece by piece. To be closed.

    What a cut has left is gone on with, and if the whole is then not what was promised all of it comes once
    more. PeerProblem, which speaks of it as `what`, when it is not even then; RequestProblem when the disk
    cannot take it.
    """
    digest, pace = spec.digest.hex(), Pace()
    coming = await asyncio.to_thread(Receiving, digest, spec.n_bytes)
    try:
        while True:
            async for length in _pull(supplier, spec, coming, pace):
                yield length
            resumed = coming.resumed
            if await asyncio.to_thread(coming.finish):
                return
            if not resumed:
                raise PeerProblem(
                    f"the weights of {what} came with another SHA-256 than they were offered under, {digest}",
                    fix=f"delete engine/{digest}.safetensors in the cache of the coordinator: it is damaged",
                )
    finally:
        coming.close()


async def _pull(
    supplier: Supplier, spec: FileSpec, coming: Receiving, pace: Pace
) -> AsyncGenerator[int, None]:
    """Has the rest of a file sent and written down."""
    clock, asked_s, end = asyncio.get_running_loop().time, deque[float](), coming.length
    while coming.length < spec.n_bytes:
        while end < spec.n_bytes and len(asked_s) < pace.window:
            n_bytes = min(PIECE_BYTES, spec.n_bytes - end)
            supplier.want(Want(spec.digest, end, n_bytes))
            asked_s.append(clock())
            end += n_bytes
        piece = await supplier.next(Piece, PIECE_DEADLINE_S)
        pace.took(clock() - asked_s.popleft())
        await asyncio.to_thread(coming.write, piece.data)
        yield coming.length
