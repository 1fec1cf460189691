"""What is guessed ahead of a target: which guesses are under way, and how many are worth it; pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trisplit.errors import OwnProblem

MOST_AHEAD: Final = 64
"""Guesses under way at once."""
WORTH: Final = 0.1
"""What a guess must have as its chance to be right, with all before it, to be sent."""
FULLER: Final = 1.5
_HOPE: Final = 0.9
"""The share of right guesses that is believed in before any was judged."""
_MEMORY: Final = 32.0
"""Judged guesses after which an older one counts for a third."""
_GAPS: Final = 16
ROUNDS: Final = (3, 5, 8)
"""Sizes of rounds that are thought of."""
ROW_IN_COMPANY: Final = 0.25
"""What one row more costs in a round, as a share of one alone (docs/decisions/0011)."""
BY_FAR: Final = 0.15
"""A way of drafting is changed for one that is as much quicker: a change costs a trip."""


class Guesses:
    """The ids of one sequence: those that stand, and behind them those that are guessed and under way."""

    def __init__(self, ids: Sequence[int], epoch: int) -> None:
        self.epoch = epoch
        self._ids = list(ids)
        self._known = len(self._ids)

    @property
    def ids(self) -> list[int]:
        """All of them, a copy: what stands, then guesses."""
        return self._ids.copy()

    @property
    def ahead(self) -> int:
        """Guesses that are not judged."""
        return len(self._ids) - self._known

    @property
    def next_position(self) -> int:
        """Where the next guess would stand."""
        return len(self._ids)

    def add(self, token_id: int) -> None:
        """This is guessed to follow."""
        self._ids.append(token_id)

    def judge(self, position: int, token_id: int, epoch: int) -> bool | None:
        """An id stands at `position`; whether it was guessed, None when nothing was.

        Guesses behind it are void when it was not guessed, or was but not told in time: then it begins an
        epoch. OwnProblem for an id that follows from nothing.
        """
        if position != self._known:
            raise OwnProblem(f"an id for position {position} after {self._known}", fix="report this")
        guessed = self._ids[position] if self.ahead else None
        if epoch != self.epoch or guessed != token_id:
            del self._ids[position:]
            self._ids.append(token_id)
            self.epoch = epoch
        self._known += 1
        return None if guessed is None else guessed == token_id

    def take_back(self, epoch: int) -> None:
        """All guesses are void, and this is the epoch."""
        del self._ids[self._known :]
        self.epoch = epoch


@dataclass(slots=True)
class Pace:
    """What has been measured of one answer: how long a trip takes, how often guesses are right.

    `first_window` is used until both are known.
    """

    first_window: int
    hits: int = 0
    misses: int = 0
    _share: float = _HOPE
    _trips_s: deque[float] = field(default_factory=lambda: deque(maxlen=_GAPS))
    _gaps_s: deque[float] = field(default_factory=lambda: deque(maxlen=_GAPS))
    _last_s: float | None = None
    _was_hit: bool = False

    def came(self, now_s: float, hit: bool | None) -> None:
        """An id has come: guessed rightly, wrongly, or not at all (None).

        What follows an id that was not guessed has made a whole trip since; what follows a hit stands right
        behind it.
        """
        if self._last_s is not None:
            gaps = self._gaps_s if self._was_hit and hit else None if self._was_hit else self._trips_s
            if gaps is not None:
                gaps.append(now_s - self._last_s)
        self._last_s, self._was_hit = now_s, bool(hit)
        if hit is not None:
            self.judge(hit=hit)

    def judge(self, *, hit: bool) -> None:
        """A guess was right or not, sent or only made."""
        self.hits, self.misses = self.hits + hit, self.misses + (not hit)
        self._share += (hit - self._share) / min(_MEMORY, 2.0 + self.hits + self.misses)

    def pause(self) -> None:
        """What comes next has waited for something else."""
        self._last_s = None

    @property
    def share(self) -> float:
        """Of late, the share of guesses that were right."""
        return self._share

    @property
    def trip_s(self) -> float | None:
        """The usual time of a whole trip, when nothing was guessed."""
        return statistics.median(self._trips_s) if self._trips_s else None

    @property
    def gap_s(self) -> float | None:
        """The time between ids that were guessed rightly, on average: some come together, then none."""
        return statistics.fmean(self._gaps_s) if self._gaps_s else None

    @property
    def window(self) -> int:
        """How many guesses may be under way: as many as fill the pipe, while each is likely enough."""
        return min(self.filling, likely_run(self._share), MOST_AHEAD)

    @property
    def filling(self) -> int:
        """How many ids are under way in a full pipe, and half as many more.

        In one that is not full a trip takes as long and gaps grow shorter with every guess more. So it is
        always tried with more than they say, and by a share: trips take longer where others are under way,
        and what was measured is one alone. What waits at a station then passes it together.
        """
        if self.trip_s is None or self.gap_s is None:
            return self.first_window
        return math.ceil(FULLER * self.trip_s / max(self.gap_s, 1e-4)) + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What decides how an answer is drafted: measured times, and the `share` of guesses that are right.

    `trip_s` is a token's whole way, `gap_s` what a full pipe takes for one, `leg_s` one way over the wire. A
    round of k guesses has taken `rounds_s[k]` beside its drafting, where one was tried.
    """

    share: float
    trip_s: float
    gap_s: float
    draft_s: float
    legs: int
    leg_s: float
    rounds_s: Mapping[int, float] = field(default_factory=dict)

    @property
    def stream_s(self) -> float:
        """A token's time in a stream: a gap behind a guess that was right, a trip behind one that was not."""
        return max(self.gap_s, self.draft_s) + (1 - self.share) * self.trip_s

    def round_s(self, k: int) -> float:
        """A token's time in rounds of k: the coordinator is one leg more, and must have drafted before."""
        computing_s = max(0.0, self.trip_s - self.legs * self.leg_s)
        tried_s = self.rounds_s.get(k, self.trip_s + self.leg_s + ROW_IN_COMPANY * k * computing_s)
        return (tried_s + k * self.draft_s) / expected_round(self.share, k)

    def best(self, now: int) -> int:
        """How many guesses a round has, 0 for a stream; `now` unless another is quicker by far."""
        seconds = {0: self.stream_s, **{k: self.round_s(k) for k in ROUNDS}}
        found = min(seconds, key=seconds.__getitem__)
        return found if seconds[found] < (1 - BY_FAR) * seconds[now] else now


def likely_run(share: float, worth: float = WORTH) -> int:
    """How many guesses in a row are all right with a chance of `worth` or more.

    >>> [likely_run(share) for share in (0.0, 0.05, 0.1, 0.5, 0.9, 0.99)]
    [0, 0, 1, 3, 21, 229]
    """
    if share <= 0:
        return 0
    return MOST_AHEAD * 4 if share >= 1 else int(math.log(worth) / math.log(share) + 1e-9)


def expected_round(share: float, k: int) -> float:
    """Ids that a round of `k` guesses gives on average, each right with probability `share`.

    Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", 2023, (1).

    >>> expected_round(0.0, 8), expected_round(1.0, 8), round(expected_round(0.8, 8), 2)
    (1.0, 9.0, 4.33)
    """
    if share >= 1:
        return k + 1.0
    return float((1 - share ** (k + 1)) / (1 - share))
