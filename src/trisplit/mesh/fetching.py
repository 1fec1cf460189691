"""Files of weights that a station asks its coordinator for: piece by piece, and gone on with after a cut."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from trisplit.errors import PeerProblem
from trisplit.models.receiving import Receiving
from trisplit.wire.messages import FileSpec, Offer, Piece, Want
from trisplit.wire.owed import MOST_WANTS

A = TypeVar("A", Offer, Piece)

PIECE_BYTES: Final = 2**17  # a link of 10 Mbit/s is busy with one for 0.1 s
PIECE_DEADLINE_S: Final = 60.0
FILES_AT_ONCE: Final = 3  # while the last pieces of one are under way the first of others are wanted
_QUEUE_S: Final = 0.1


class Pace:
    """How many pieces are wanted at once: enough to keep the link busy, without a queue before other frames.

    A piece that took longer than the quickest has waited behind others; so TCP Vegas sets its window
    (Brakmo and Peterson, 1995). It doubles every round trip until a queue is seen for the first time.
    """

    def __init__(self) -> None:
        self.window = 2
        self._quickest_s = math.inf
        self._since = 0  # pieces since the window was set: what tells of it comes a round trip later
        self._is_searching = True

    def took(self, seconds: float) -> None:
        """A piece came `seconds` after it was wanted."""
        alone = self.window == 1  # it has waited for nothing of ours: so far away is the coordinator now
        self._quickest_s = seconds if alone else min(self._quickest_s, seconds)
        queues = seconds - self._quickest_s >= _QUEUE_S
        self._since += 1
        if not self._is_searching and self._since < self.window:
            return
        self._since = 0
        if queues:
            self._is_searching = False
        self.window = max(self.window * 3 // 4, 1) if queues else min(self.window + 1, MOST_WANTS)


class Supplier:
    """The coordinator as a station that loads hears it: every offer and piece is the answer to a question.

    To be entered: meanwhile nobody else may listen to it. `receive` gives its next offer or piece, or raises
    why none will come.
    """

    def __init__(self, send: Callable[[Want], None], receive: Callable[[], Awaitable[Offer | Piece]]) -> None:
        self._send, self._receive = send, receive
        self._due: defaultdict[type, deque[asyncio.Future[Any]]] = defaultdict(deque)
        self._wanted_s: deque[float] = deque()
        self._pace = Pace()

    async def __aenter__(self) -> Supplier:
        self._came: asyncio.Future[Piece] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises what has ended the listening meanwhile, unless there is something else to raise."""
        self._listening.cancel()
        await asyncio.wait({self._listening})
        if not self._listening.cancelled() and (why := self._listening.exception()) and kind is None:
            raise why

    async def _listen(self) -> None:
        while True:
            said = await self._receive()
            if isinstance(said, Piece):
                self._pace.took(_now_s() - self._wanted_s.popleft())
                self._came.set_result(said)
                self._came = asyncio.get_running_loop().create_future()
            answer = self._due[type(said)].popleft()  # the turns of the wire see to it that there is one
            if not answer.done():
                answer.set_result(said)

    def expect(self, kind: type[A]) -> asyncio.Future[A]:
        """The next answer of this kind that nobody expects yet. `wait` for it."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._due[kind].append(answer)
        return answer

    @property
    def has_room(self) -> bool:
        """Whether the link bears another piece."""
        return len(self._wanted_s) < self._pace.window

    async def room(self) -> None:
        """Waits for it; raises as `wait` does."""
        while not self.has_room:
            await self.wait(self._came, PIECE_DEADLINE_S)

    def want(self, want: Want) -> asyncio.Future[Piece]:
        """Asks for a piece of a file."""
        self._send(want)
        self._wanted_s.append(_now_s())
        return self.expect(Piece)

    async def wait(self, answer: asyncio.Future[A], deadline_s: float) -> A:
        """The answer; PeerProblem at the deadline, or why none will come."""
        await asyncio.wait((answer, self._listening), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if self._listening.done():
            self._listening.result()
        what = f"the coordinator sent nothing that was asked for in {deadline_s:g} s"
        raise PeerProblem(what, fix="see what it does, and start again")


async def fetch(supplier: Supplier, spec: FileSpec, what: str) -> AsyncGenerator[int, None]:
    """Puts one file on the shelf; yields how many of its bytes are here, piece by piece. To be closed.

    What a cut has left is gone on with, and if the whole is then not what was promised all of it comes once
    more. PeerProblem, which speaks of it as `what`, when it is not even then; RequestProblem when the disk
    cannot take it.
    """
    digest = spec.digest.hex()
    async with _receiving(digest, spec.n_bytes) as coming:
        while True:
            async for length in _pull(supplier, spec, coming):
                yield length
            resumed = coming.resumed
            if await asyncio.to_thread(coming.finish):
                return
            if not resumed:
                raise PeerProblem(
                    f"the weights of {what} came with another SHA-256 than they were offered under, {digest}",
                    fix=f"delete engine/{digest}.safetensors in the cache of the coordinator: it is damaged",
                )


@asynccontextmanager
async def _receiving(digest: str, n_bytes: int) -> AsyncGenerator[Receiving, None]:
    """Opens it in a thread, for what is there is gone over; closes it, also when given up meanwhile."""
    # No task: a loop that ends cancels those, and then nobody closes what the thread has opened.
    opening = asyncio.get_running_loop().run_in_executor(None, Receiving, digest, n_bytes)
    try:
        coming = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise
    try:
        yield coming
    finally:
        coming.close()


def _close(opened: asyncio.Future[Receiving]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


async def _pull(supplier: Supplier, spec: FileSpec, coming: Receiving) -> AsyncGenerator[int, None]:
    """Has the rest of a file sent and written down."""
    end, wanted = coming.length, deque[asyncio.Future[Piece]]()
    while coming.length < spec.n_bytes:
        if not wanted:
            await supplier.room()
        while end < spec.n_bytes and supplier.has_room:
            n_bytes = min(PIECE_BYTES, spec.n_bytes - end)
            wanted.append(supplier.want(Want(spec.digest, end, n_bytes)))
            end += n_bytes
        piece = await supplier.wait(wanted.popleft(), PIECE_DEADLINE_S)
        await asyncio.to_thread(coming.write, piece.data)
        yield coming.length


def _now_s() -> float:
    return asyncio.get_running_loop().time()
