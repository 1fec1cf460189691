"""Spreads of known times, calls that are counted, and the memory this process once had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.bench.measure import Spread, peak_bytes, timed
from trisplit.machine import rss_bytes


def test_percentiles_of_known_times() -> None:
    hundred = [float(ms) for ms in range(100, -1, -1)]
    assert Spread.of(hundred) == Spread(p50_ms=50.0, best_ms=0.0, p95_ms=95.0, max_ms=100.0, n=101)
    assert Spread.of([4.0, 1.0, 3.0, 2.0]).p50_ms == 2.5
    assert Spread.of([7.5]) == Spread(p50_ms=7.5, best_ms=7.5, p95_ms=7.5, max_ms=7.5, n=1)


def test_one_slow_token_in_twenty_moves_the_slow_end_alone() -> None:
    quiet, disturbed = Spread.of([10.0] * 20), Spread.of([10.0] * 19 + [200.0])
    assert (disturbed.p50_ms, disturbed.best_ms) == (quiet.p50_ms, quiet.best_ms)
    assert disturbed.p95_ms == pytest.approx(10 + 0.05 * 190)


@given(st.lists(st.floats(0.001, 1e6), min_size=1))
def test_best_is_at_most_the_middle_is_at_most_the_slow_end(times_ms: list[float]) -> None:
    spread = Spread.of(times_ms)
    assert min(times_ms) == spread.best_ms
    assert spread.best_ms <= spread.p50_ms * (1 + 1e-12)
    assert spread.p50_ms <= spread.p95_ms * (1 + 1e-12)
    assert spread.n == len(times_ms)


def test_calls_to_warm_up_are_made_and_do_not_count() -> None:
    calls = []
    assert timed(lambda: calls.append(None), warm=3, repeats=4).n == 4
    assert len(calls) == 7


def test_the_peak_remembers_what_was_given_back() -> None:
    before = peak_bytes()
    size = before - rss_bytes() + 50_000_000
    assert bytearray(b"x") * size
    assert peak_bytes() >= before + 40_000_000 >= rss_bytes()
