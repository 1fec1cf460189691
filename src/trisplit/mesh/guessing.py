"""A draft at work in a thread: one guess at a time, for the ids as they were when it was asked."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from trisplit.mesh.drafts import Draft

_TIMES: Final = 16


class Guess(NamedTuple):
    """What a draft expects at `position`, None for nothing, if the sequence is still that of `epoch`."""

    epoch: int
    position: int
    token_id: int | None


class Guesser:
    """Asks a draft, and says `ready` when it has answered."""

    def __init__(self, draft: Draft, thread: Executor, ready: Callable[[], None]) -> None:
        self._draft, self._thread, self._ready = draft, thread, ready
        self._running: asyncio.Future[Guess] | None = None
        self._times_s: deque[float] = deque(maxlen=_TIMES)

    @property
    def is_free(self) -> bool:
        """Whether it can be asked."""
        return self._running is None

    @property
    def usual_s(self) -> float | None:
        """How long a guess takes."""
        return statistics.median(self._times_s) if self._times_s else None

    def ask(self, ids: Sequence[int], epoch: int) -> None:
        """What follows `ids`? They are not changed any more."""
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._thread, self._guess, ids, epoch)
        self._running.add_done_callback(lambda _: self._ready())

    def answer(self) -> Guess | None:
        """What it was asked last, once it is answered; whatever a draft raises."""
        if self._running is None or not self._running.done():
            return None
        done, self._running = self._running, None
        return done.result()

    async def rest(self) -> None:
        """Returns when the draft is asked nothing any more; what it says is not heard."""
        if self._running is not None:
            await asyncio.wait({self._running})
            self._running = None

    def _guess(self, ids: Sequence[int], epoch: int) -> Guess:
        began_s = time.monotonic()
        token_id = self._draft.guess(ids)
        self._times_s.append(time.monotonic() - began_s)
        return Guess(epoch, len(ids), token_id)
