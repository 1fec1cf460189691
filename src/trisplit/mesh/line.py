"""Who may be inside at once, and who waits for it: in order, and no more than so many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from trisplit.errors import RequestProblem


@dataclass(slots=True, eq=False)
class Turn:
    """One caller's place in a line; `moved` is set when those before have become fewer."""

    moved: asyncio.Event = field(default_factory=asyncio.Event)


class Line:
    """`places` turns may be inside at once; up to `most_waiting` more wait, first come, first served."""

    def __init__(self, places: int, most_waiting: int) -> None:
        self.places, self.most_waiting = places, most_waiting
        self._inside: set[Turn] = set()
        self._waiting: list[Turn] = []

    @property
    def inside(self) -> int:
        """Turns that are inside."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """Turns that wait."""
        return len(self._waiting)

    @contextmanager
    def join(self) -> Iterator[Turn]:
        """A turn, inside or waiting; on leaving its place is free. RequestProblem when too many wait."""
        turn = Turn()
        if len(self._inside) < self.places:
            self._inside.add(turn)
        elif len(self._waiting) < self.most_waiting:
            self._waiting.append(turn)
        else:
            what = f"all {self.places} sessions are taken and {self.waiting} questions wait already"
            raise RequestProblem(what, fix="ask again later, or bring the mesh up with more --sessions")
        try:
            yield turn
        finally:
            self._leave(turn)

    async def ahead_of(self, turn: Turn) -> AsyncIterator[int]:
        """How many wait before this one, again whenever it changes; ends when it is inside."""
        told: int | None = None
        while turn in self._waiting:
            ahead = self._waiting.index(turn)
            if ahead != told:
                yield ahead
                told = ahead
            await turn.moved.wait()
            turn.moved.clear()

    def _leave(self, turn: Turn) -> None:
        self._inside.discard(turn)
        if turn in self._waiting:
            self._waiting.remove(turn)
        while self._waiting and len(self._inside) < self.places:
            first = self._waiting.pop(0)
            self._inside.add(first)
            first.moved.set()
        for other in self._waiting:
            other.moved.set()
