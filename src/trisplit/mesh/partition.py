"""Sharing out rows of sizes among bins of limited room: the arithmetic under a plan, numbers only.

A *pool* is a row of sizes that must stay in order. A *bin* takes one run of neighbours from one
pool, or stays empty. Bins are filled in the order given, so the first bin that serves a pool holds
its beginning. Its *load* is what it holds times its pace: how long it takes for what the quickest
does in 100. Within that model `pack` finds the smallest possible largest load exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """What one bin holds: the sizes `start` … `stop`-1 of pool number `pool`."""

    pool: int
    start: int
    stop: int


def pack(
    pools: Sequence[Sequence[int]], limits: Sequence[int], paces: Sequence[int] = ()
) -> tuple[Run | None, ...] | None:
    """One run (or None: left empty) for each limit, together covering every pool; None if nothing does.

    The largest load is the smallest possible for this order of bins. Under that bound, bins that
    were not needed join where loads are highest, and each pool is divided among its bins with the
    least sum of squared loads. What a bin holds never exceeds its limit; no pool may be empty.
    Without `paces` all bins are as quick as each other.
    """
    paces = paces or [100] * len(limits)
    ends = [_ends(pool) for pool in pools]
    # The answer is the load of some bin, so only sums of runs need be tried.
    sums = np.unique(np.concatenate([_runs(row).ravel() for row in ends]))
    loads: list[int] = np.unique(np.outer(sums[sums >= 0], np.unique(paces))).tolist()

    def feasible(bound: int) -> bool:
        return int(_needs(ends, _under(bound, limits, paces))[0][(0,) * (len(ends) - 1)]) == 0

    smallest = bisect_left(loads, True, key=feasible)
    if smallest == len(loads):
        return None
    caps = _under(loads[smallest], limits, paces)
    return _settle(pools, caps, paces, _choose(ends, caps))


def leftovers(pools: Sequence[Sequence[int]], limits: Sequence[int]) -> tuple[int, ...]:
    """How many sizes at the end of each pool stay unplaced when each bin takes the heaviest run it can.

    Where `pack` finds nothing, at least one of these is positive; bins as large as the sums of what
    is left over, added behind the others, make it succeed.
    """
    ends = [_ends(pool) for pool in pools]
    done = [0] * len(pools)
    for limit in limits:
        stops = [int(_reach(row, limit)[at]) for row, at in zip(ends, done)]
        taken = [int(row[stop] - row[at]) for row, stop, at in zip(ends, stops, done)]
        pool = taken.index(max(taken))
        done[pool] = stops[pool]
    return tuple(len(pool) - at for pool, at in zip(pools, done))


def _ends(sizes: Sequence[int]) -> Ints:
    """Running sums with a leading 0: the sizes i … j-1 add up to ends[j] - ends[i]."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _runs(ends: Ints) -> Ints:
    """[i, j]: the sum of the sizes i … j-1, negative where j < i."""
    return ends[None, :] - ends[:, None]


def _under(bound: int, limits: Sequence[int], paces: Sequence[int]) -> list[int]:
    """What each bin may hold so that no load passes the bound."""
    return [min(bound // pace, limit) for limit, pace in zip(limits, paces)]


def _reach(ends: Ints, cap: int) -> Ints:
    """[i]: how far a bin with room `cap` gets that starts at i."""
    return np.searchsorted(ends, ends + cap, side="right") - 1


def _needs(ends: Sequence[Ints], caps: Sequence[int]) -> list[Ints]:
    """For every bin: how far the last pool must be done, given how far the others are, for the rest to fit.

    Entry b has one axis for each pool but the last, indexed by how many of its sizes are placed before
    bin b; the value is the least number of sizes of the last pool that must be placed by then, one
    more than there are where no number is enough. A run is never better short than long, so each bin
    offers one step for each pool.
    """
    *others, last = ends
    never = len(last)
    need = np.full([len(row) for row in others], never, dtype=np.int64)
    need[(-1,) * len(others)] = never - 1
    needs = [need]
    for cap in reversed(caps):
        steps = [np.take(need, _reach(row, cap), axis=axis) for axis, row in enumerate(others)]
        earliest = np.append(np.searchsorted(last, last - cap, side="left"), never)
        need = np.minimum.reduce([*steps, earliest[need]])
        needs.append(need)
    return needs[::-1]


def _choose(ends: Sequence[Ints], caps: Sequence[int]) -> list[int | None]:
    """Which pool each bin serves: the first from which it can take something and the rest still fits."""
    done = [0] * len(ends)
    chosen: list[int | None] = []
    for cap, need in zip(caps, _needs(ends, caps)[1:]):
        pool_taken = None
        for pool, row in enumerate(ends):
            then = [*done]
            then[pool] = int(_reach(row, cap)[done[pool]])
            if then != done and need[tuple(then[:-1])] <= then[-1]:
                done, pool_taken = then, pool
                break
        chosen.append(pool_taken)
    return chosen


def _settle(
    pools: Sequence[Sequence[int]], caps: Sequence[int], paces: Sequence[int], chosen: Sequence[int | None]
) -> tuple[Run | None, ...]:
    """Let idle bins help where the average load is highest, then divide each pool among its bins."""

    def divided(pool: int, members: Sequence[int]) -> tuple[int, ...] | None:
        return _divide(pools[pool], [caps[b] for b in members], [paces[b] for b in members])

    def average(pool: int) -> float:
        return sum(pools[pool]) / sum(min(paces) / paces[b] for b in bins[pool])

    bins = [[b for b, serves in enumerate(chosen) if serves == pool] for pool in range(len(pools))]
    idle = [b for b, serves in enumerate(chosen) if serves is None]
    helped = True
    while helped:  # a bin that found no place may find one between two that joined after it
        helped = False
        for b in [*idle]:
            for pool in sorted(range(len(pools)), key=average, reverse=True):
                wider = sorted([*bins[pool], b])
                if divided(pool, wider) is not None:
                    bins[pool] = wider
                    idle.remove(b)
                    helped = True
                    break
    runs: list[Run | None] = [None] * len(caps)
    for pool, members in enumerate(bins):
        for b, (start, stop) in zip(members, pairwise(divided(pool, members) or ())):
            runs[b] = Run(pool, start, stop)
    return tuple(runs)


def _divide(sizes: Sequence[int], caps: Sequence[int], paces: Sequence[int]) -> tuple[int, ...] | None:
    """Where to cut `sizes` into one non-empty run for each cap; None if impossible.

    The loads have the least sum of squares.

    Returns 0 = c0 < c1 < … = len(sizes); bin b holds c[b] … c[b+1]-1. Of equally good cuts the one
    that gives more to earlier bins.
    """
    n = len(sizes)
    if len(caps) > n:
        return None
    runs = _runs(_ends(sizes))
    # Squares of bytes pass 2**53; in units of the common divisor equal layers stay exact, ties stay ties.
    unit = max(1, int(np.gcd.reduce(np.asarray(sizes, dtype=np.int64))))
    squares = np.where(np.triu(np.ones_like(runs, dtype=bool), 1), (runs // unit).astype(float) ** 2, np.inf)
    cost = np.full(n + 1, np.inf)
    cost[n] = 0.0
    stops: list[Ints] = []
    for cap, pace in zip(reversed(caps), reversed(paces)):
        options = np.where(runs <= cap, squares * (pace / min(paces)) ** 2 + cost, np.inf)
        stop = n - np.argmin(options[:, ::-1], axis=1)
        cost = options[np.arange(n + 1), stop]
        stops.append(stop)
    if not np.isfinite(cost[0]):
        return None
    cuts = [0]
    for stop in reversed(stops):
        cuts.append(int(stop[cuts[-1]]))
    return tuple(cuts)
