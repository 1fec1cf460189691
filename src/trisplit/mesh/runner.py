"""Runs what a station holds as frames come: here if that is short, else in a thread, one run at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from trisplit.mesh.holding import Held
from trisplit.mesh.rows import Work
from trisplit.wire.choosing import Fence
from trisplit.wire.frame import Activation

SHORT_MS: Final = 50.0  # what may keep the loop from answering a ping


class Runner:
    """Rows of a stream alone run at once; of several in the next turn of the loop, with what came beside."""

    def __init__(
        self,
        held: Held,
        worker: ThreadPoolExecutor,
        send: Callable[[Activation], None],
        tell: Callable[[Fence], None],
        failed: Callable[[Exception, Activation], None],
    ) -> None:
        """`send` takes what runs leave, `tell` what is void for other stations.

        `failed` hears why something could not run, with the frame it was for.
        """
        self._held, self._worker = held, worker
        self._send, self._tell, self._failed = send, tell, failed
        self.is_running = False  # or about to be
        self._is_over = False

    def take(self, said: Activation) -> None:
        """A frame has come. PeerProblem when it makes no sense."""
        self._held.take(said)
        if self.is_running:
            return
        self.is_running = True
        if len(self._held.streams) > 1:
            self._soon()
        else:  # nothing can come that would run with it
            self._run()

    def stop(self) -> None:
        """Nothing more is run; what a thread still runs leaves nothing."""
        self._is_over = True

    def _soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        works = [] if self._is_over else self._held.next()
        if not works:
            self.is_running = False
        elif works[0].said.rows == 1 and self._held.expected_ms(works) < SHORT_MS:
            self._finish(works, partial(self._held.run, works))
        else:
            self._in_thread(works)

    def _in_thread(self, works: Sequence[Work]) -> None:
        running = asyncio.get_running_loop().run_in_executor(self._worker, self._held.run, works)
        running.add_done_callback(lambda done: self._finish(works, done.result))

    def _finish(self, works: Sequence[Work], result: Callable[[], list[Activation | Fence]]) -> None:
        """Sends on what a run has left, and sees to the next."""
        try:
            for on in result():
                if not self._is_over:
                    self._leave(on)
        except Exception as error:  # of ours, of a sender, or the engine's own: out of memory, above all
            wanted = [work for work in works if not work.is_void]
            if len(wanted) == len(works):
                self._failed(error, works[0].said)
            elif wanted and not self._is_over:  # a stream that was closed meanwhile has stopped the others
                self._in_thread(wanted)
                return
        self._soon()  # not now: what we have sent to ourselves would keep the loop from everybody else

    def _leave(self, on: Activation | Fence) -> None:
        if isinstance(on, Activation):
            self._send(on)
        else:
            self._held.fence(on.stream, on.epoch)
            self._tell(on)
