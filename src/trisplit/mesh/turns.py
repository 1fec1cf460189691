"""Whose turn it is on a station: rows that are ready to run, and which of them pass together."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from trisplit.mesh.rows import Work

MOST_TOGETHER: Final = 16  # rows of different streams in one pass
MOST_BEHIND: Final = 8  # rows of one stream in one pass: as many as an engine takes abreast


class Turns:
    """Single rows go first: a prompt of somebody else holds nobody up for longer than a chunk.

    They do not overtake chunks of their own stream. What leaves nothing waits until no single row does, or
    until the next rows of its lane are to run.
    """

    def __init__(self) -> None:
        self._singles: deque[Work] = deque()
        self._chunks: deque[Work] = deque()
        self._later: dict[tuple[int, int], Work] = {}  # by lane
        self._rows: Counter[tuple[int, int]] = Counter()  # that wait, by stream and group
        self._behind: Counter[tuple[int, int]] = Counter()  # works among the chunks

    def __len__(self) -> int:
        return len(self._singles) + len(self._chunks) + len(self._later)

    def put(self, work: Work) -> None:
        """Behind what is there of its stream."""
        self._rows[work.lane] += work.said.rows
        if work.said.rows == 1 and not self._behind[work.lane]:
            self._singles.append(work)
        else:
            self._chunks.append(work)
            self._behind[work.lane] += 1

    def put_off(self, work: Work) -> None:
        """A work that leaves nothing, once the one before it in its lane has run."""
        self._rows[work.lane] += work.said.rows
        self._later[work.lane] = work

    def rows(self, stream: int, group: int) -> int:
        """How many rows of a stream wait for a group."""
        return self._rows[stream, group]

    def next(self, *, together: bool) -> list[Work]:
        """What to run now, all of one group; empty when there is nothing.

        `together`: single rows for one group may pass at once, of one stream that stand one behind the other,
        or of different streams.
        """
        due = self._due()
        if due is not None:
            works = [self._later.pop(due)]
        elif self._singles:
            first = self._singles.popleft()
            works = [first, *((self._followers(first) or self._company(first)) if together else ())]
        elif self._chunks:
            works = [self._chunks.popleft()]
            self._behind[works[0].lane] -= 1
        else:
            works = []
        for work in works:
            self._rows[work.lane] -= work.said.rows
        return works

    def _due(self) -> tuple[int, int] | None:
        """The lane whose put off work is to run now."""
        if self._singles:
            lane = self._singles[0].lane
            return lane if lane in self._later else None
        return next(iter(self._later), None)

    def _followers(self, first: Work) -> list[Work]:
        """The rows that stand right behind it and are here already: drafts, most of all."""
        found = list[Work]()
        for work in self._singles:
            if len(found) + 1 == MOST_BEHIND:
                break
            if work.lane == first.lane and work.follows(found[-1] if found else first):
                found.append(work)
        for work in found:
            self._singles.remove(work)
        return found

    def _company(self, first: Work) -> Iterator[Work]:
        streams = {first.said.stream}
        for work in [*self._singles]:
            if len(streams) == MOST_TOGETHER:
                return
            if work.group is first.group and work.said.stream not in streams:
                streams.add(work.said.stream)  # what is behind it must not overtake it
                if work.step == first.step and work.lane not in self._later:
                    self._singles.remove(work)
                    yield work

    def forget_void(self) -> None:
        """What is void waits no longer: it would take memory until its turn came."""
        self._singles = deque(work for work in self._singles if not work.is_void)
        self._chunks = deque(work for work in self._chunks if not work.is_void)
        self._later = {lane: work for lane, work in self._later.items() if not work.is_void}
        self._behind = Counter(work.lane for work in self._chunks)
        self._rows = Counter()
        for work in (*self._singles, *self._chunks, *self._later.values()):
            self._rows[work.lane] += work.said.rows
