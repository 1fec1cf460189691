"""Nodes that were started ahead: each waits in the closed world for one script, and is over after it."""

from __future__ import annotations

import threading

from trisplit.cache.store import Store
from trisplit.scripts.engines.identity import Node, identify, runs_typescript
from trisplit.scripts.engines.world import Waiting

SIZE = 2


class Pool:
    """A few nodes of one kind. Started in a thread of its own, so that nobody waits for a start."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._wanted: Node | None = None
        self._typed = False
        self._waiting: list[Waiting] = []
        self._missing, self._taken = threading.Semaphore(0), 0
        self._ended = False
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def want(self, command: str, store: Store) -> None:
        """From now on it is this node that waits; others are ended."""
        node = identify(command, store)
        typed = not node.unsure and runs_typescript(node, store)
        with self._lock:
            same = self._wanted is not None and self._wanted.digest == node.digest
            if same or node.unsure or not node.files or self._ended:
                return
            old, self._waiting, self._wanted, self._typed = self._waiting, [], node, typed
        for one in old:
            one.end()
        for _ in range(self._size):
            self._missing.release()

    def take(self, node: Node) -> Waiting | None:
        """One of exactly this node, which the caller uses up; None where none is ready.

        Another is started by `refill`: a start beside a script slows the script down.
        """
        with self._lock:
            if self._wanted is None or self._wanted.digest != node.digest or not self._waiting:
                return None
            self._taken += 1
            return self._waiting.pop(0)

    def refill(self) -> None:
        """Has as many started as were taken."""
        with self._lock:
            taken, self._taken = self._taken, 0
        for _ in range(taken):
            self._missing.release()

    def close(self) -> None:
        """Ends all that wait."""
        with self._lock:
            self._ended = True
            old, self._waiting = self._waiting, []
        self._missing.release()
        self._thread.join()
        for one in old:
            one.end()

    def _fill(self) -> None:
        while True:
            self._missing.acquire()
            with self._lock:
                node, typed = self._wanted, self._typed
                if self._ended:
                    return
                if node is None or len(self._waiting) >= self._size:
                    continue
            try:
                one = Waiting(node, typed=typed)
            except OSError:
                continue
            with self._lock:
                kept = not self._ended and self._wanted is node
                if kept:
                    self._waiting.append(one)
            if not kept:
                one.end()
