"""The arithmetic under a plan against brute force, and its advice against itself."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from trisplit.mesh.partition import Run, leftovers, pack

unhurried = settings(deadline=None)  # a busy machine is not a failure
Pools = list[list[int]]


@st.composite
def pools_as_cut(draw: st.DrawFn, max_layers: int) -> Pools:
    """Rows as long as the three cuts make them: whole layers, thirds, recut."""
    layers = draw(st.integers(1, max_layers))
    lengths = draw(st.sampled_from([(layers,), (layers, layers, layers), (layers + 1, layers)]))
    sizes = st.integers(0, 9) | st.just(4)
    return [draw(st.lists(sizes, min_size=n, max_size=n)) for n in lengths]


def limits_for(max_bins: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 30) | st.just(200), min_size=1, max_size=max_bins)


def least_maximum(sizes: list[int], bins: list[tuple[int, int]]) -> int | None:
    """The smallest largest load over every way to give each bin (limit, pace) a run, empty ones too."""
    if not bins:
        return None if sizes else 0
    found = []
    (limit, pace), *others = bins
    for n in range(len(sizes) + 1):
        rest = least_maximum(sizes[n:], others)
        if rest is not None and sum(sizes[:n]) <= limit:
            found.append(max(rest, sum(sizes[:n]) * pace))
    return min(found, default=None)


def brute_force(pools: Pools, bins: list[tuple[int, int]]) -> int | None:
    """`least_maximum` over every way to say which bin serves which pool."""
    found = []
    for serves in product(range(len(pools)), repeat=len(bins)):
        loads = [
            least_maximum(sizes, [b for b, served in zip(bins, serves) if served == pool])
            for pool, sizes in enumerate(pools)
        ]
        if None not in loads:
            found.append(max(load for load in loads if load is not None))
    return min(found, default=None)


def loads_of(runs: tuple[Run | None, ...], pools: Pools) -> list[int]:
    return [sum(pools[run.pool][run.start : run.stop]) if run else 0 for run in runs]


@unhurried
@given(pools_as_cut(max_layers=5), limits_for(max_bins=4))
def test_the_largest_load_is_the_smallest_possible(pools: Pools, limits: list[int]) -> None:
    runs = pack(pools, limits)
    least = brute_force(pools, [(limit, 1) for limit in limits])
    assert (max(loads_of(runs, pools)) if runs else None) == least


@unhurried
@given(
    pools_as_cut(max_layers=4),
    st.lists(st.tuples(st.integers(0, 30) | st.just(200), st.integers(1, 4)), min_size=1, max_size=4),
)
def test_with_slow_bins_too(pools: Pools, bins: list[tuple[int, int]]) -> None:
    limits, paces = zip(*bins)
    runs = pack(pools, limits, paces)
    least = brute_force(pools, bins)
    if runs is None:
        assert least is None
        return
    assert max(load * pace for load, pace in zip(loads_of(runs, pools), paces)) == least


def test_a_bin_half_as_quick_holds_half_as_much() -> None:
    runs = pack([[1] * 33], [1000] * 6, [100, 100, 200, 100, 100, 100])
    assert runs is not None
    assert [run.stop - run.start for run in runs if run] == [6, 6, 3, 6, 6, 6]


@unhurried
@given(pools_as_cut(max_layers=40), limits_for(max_bins=50))
def test_every_size_lies_in_one_run_in_order_and_under_the_limit(pools: Pools, limits: list[int]) -> None:
    runs = pack(pools, limits)
    if runs is None:
        return
    for pool, sizes in enumerate(pools):
        placed = [at for run in runs if run and run.pool == pool for at in range(run.start, run.stop)]
        assert placed == list(range(len(sizes)))
    assert all(run is None or run.start < run.stop for run in runs)
    assert all(load <= limit for load, limit in zip(loads_of(runs, pools), limits, strict=True))


@unhurried
@given(pools_as_cut(max_layers=12), limits_for(max_bins=12))
def test_bins_as_large_as_what_is_left_over_help(pools: Pools, limits: list[int]) -> None:
    left = leftovers(pools, limits)
    missing = [sum(sizes[len(sizes) - count :]) for sizes, count in zip(pools, left) if count]
    assert missing or pack(pools, limits) is not None
    assert pack(pools, limits + missing) is not None


@unhurried
@given(st.integers(1, 2 * 10**9), st.integers(1, 60), st.integers(1, 60))
@example(size=1_435_399_781, n_sizes=57, n_bins=44)  # squares of bytes in floats would break this tie
def test_equal_sizes_go_round_and_the_first_bins_hold_more(size: int, n_sizes: int, n_bins: int) -> None:
    runs = pack([[size] * n_sizes], [10**12] * n_bins)
    assert runs is not None
    held = [run.stop - run.start if run else 0 for run in runs]
    assert held == sorted(held, reverse=True)
    assert max(held) - min(held) <= 1


@unhurried
@given(st.lists(st.integers(1, 9), min_size=3, max_size=8))
def test_a_pool_is_divided_with_the_least_sum_of_squares(sizes: list[int]) -> None:
    runs = pack([sizes], [1000] * 3)
    assert runs is not None
    ways = [
        sorted([sum(sizes[:a]), sum(sizes[a:b]), sum(sizes[b:])])
        for a in range(1, len(sizes))
        for b in range(a + 1, len(sizes))
    ]
    least = min(max(way) for way in ways)
    squares = min(sum(load**2 for load in way) for way in ways if max(way) == least)
    loads = loads_of(runs, [sizes])
    assert (max(loads), sum(load**2 for load in loads)) == (least, squares)


def test_a_bin_joins_between_two_that_joined_after_it() -> None:
    """Bin 0 could hold its whole pool; bin 1 has room for the 1 alone, once bin 3 took the last 9."""
    runs = pack([[9, 1, 9], [19]], [19, 1, 19, 19])
    assert runs == (Run(0, 0, 1), Run(0, 1, 2), Run(1, 0, 1), Run(0, 2, 3))


def test_bins_to_spare_join_where_the_average_load_is_highest() -> None:
    """16 is the least largest load, and four bins reach it: 8, 16 + 16, 16. The other two help the 16s."""
    runs = pack([[2] * 4, [8] * 4, [4] * 4], [32] * 6)
    assert runs is not None
    assert Counter(run.pool for run in runs if run) == {0: 1, 1: 3, 2: 2}
