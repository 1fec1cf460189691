"""The smallest budget that passes: a quick judge finds where to look, a thorough one has the last word.

Pure: a judge is a function from the place of a budget, 0 the smallest, to its strain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

# How much of what may be lost is lost, of the gate that is strained most; a budget passes at 1 or less.
Strain = Callable[[int], float]

_TRUSTED: Final = 4  # thorough tries that go where the quick judge points


@dataclass(frozen=True, slots=True)
class Smallest:
    """The place that was found, None if none passes; and all strains that were seen, by place."""

    place: int | None
    quick: Mapping[int, float]
    thorough: Mapping[int, float]


def smallest(
    count: int, quick: Strain, thorough: Strain, *, seen: Mapping[int, float] | None = None
) -> Smallest:
    """The smallest of `count` budgets that the thorough judge lets pass, if strain falls with size.

    The quick judge is bisected, and what it finds is shown to the thorough one. By what both say there the
    quick one is corrected and asked again: for a larger one if that failed, else whether there is a smaller
    one. That ends where they agree, or after four times once something passed. If nothing has, what is left
    is halved until something does, or the largest fails. `seen`: what the quick judge has said already.

    What is returned has passed the thorough judge, however noisy both are. For n budgets, of log2(n + 1)
    rounded up to a whole b: 4b tries of the quick judge at most, b where both agree, and 4 + b of the other.
    """
    known, settled, scale = dict(seen or {}), dict[int, float](), 1.0
    low, high = -1, count  # of the thorough judge: what failed last, and what passed or lies past the largest
    while high - low > 1:
        place = (low + high) // 2
        if len(settled) < _TRUSTED:
            pointed = _first_passing(low, high, quick, known, scale)
            place = min(pointed, count - 1)
            if pointed == high < count:
                break
        elif high < count:
            break
        settled[place] = strain = thorough(place)
        if strain <= 1:
            high = place
        else:
            low = place
        scale = _scale(strain, known.get(place), scale)
    return Smallest(high if high < count else None, known, settled)


def _first_passing(low: int, high: int, quick: Strain, known: dict[int, float], scale: float) -> int:
    """The first place over `low` that the quick judge, corrected, lets pass; `high` if none under it does."""

    def passes(place: int) -> bool:
        if place not in known:
            known[place] = quick(place)
        return known[place] * scale <= 1

    high = min((place for place in known if low < place < high and passes(place)), default=high)
    low = max((place for place in known if low < place < high), default=low)
    while high - low > 1:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle
    return high


def _scale(thorough: float, quick: float | None, before: float) -> float:
    """By how much the quick judge is to be corrected, from what both say of one budget."""
    if not quick or not thorough or not math.isfinite(thorough / quick):
        return before
    return thorough / quick
