"""Bisection with two judges: what it finds has passed, in few tries, and is the smallest if they agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.compress.smallest import smallest

COUNTS = st.integers(1, 3000)
EDGES = st.integers(-50, 3050).map(lambda place: place + 0.5)  # between two places


class Judge:
    """Strain that falls with size, through 1 at `edge`, and noise that is always the same at one place."""

    def __init__(self, edge: float, *, times: float = 1.0, noise: float = 0.0, seed: int = 0) -> None:
        self.edge, self.times, self.noise, self.seed = edge, times, noise, seed
        self.asked = list[int]()

    def __call__(self, place: int) -> float:
        assert place >= 0
        self.asked.append(place)
        random = np.random.default_rng([self.seed, place]) if self.noise else None
        wobble = math.exp(self.noise * random.standard_normal()) if random else 1.0
        return self.times * math.exp((self.edge - place) / 50) * wobble


def tries(count: int) -> int:
    return math.ceil(math.log2(count + 1))


@given(COUNTS, EDGES)
def test_the_smallest_is_found_where_both_agree(count: int, edge: float) -> None:
    quick, thorough = Judge(edge), Judge(edge)
    found = smallest(count, quick, thorough)
    right = max(math.ceil(edge), 0)
    assert found.place == (right if right < count else None)
    assert len(quick.asked) <= tries(count)
    assert len(thorough.asked) == 1
    assert len(set(quick.asked)) == len(quick.asked)


@given(COUNTS, EDGES, st.floats(0.3, 3))
def test_a_quick_judge_that_is_too_kind_or_too_harsh_is_corrected(
    count: int, edge: float, times: float
) -> None:
    """By the same factor everywhere: one correction is enough."""
    quick, thorough = Judge(edge, times=times), Judge(edge)
    found = smallest(count, quick, thorough)
    right = max(math.ceil(edge), 0)
    assert found.place == (right if right < count else None)
    assert len(thorough.asked) <= 3


@given(COUNTS, EDGES, st.floats(0.2, 5), st.floats(0, 1.5), st.integers(0, 9))
def test_what_is_found_has_passed_however_noisy_both_are(
    count: int, edge: float, times: float, noise: float, seed: int
) -> None:
    quick = Judge(edge, times=times, noise=noise, seed=seed)
    thorough = Judge(edge, noise=noise, seed=seed + 100)
    found = smallest(count, quick, thorough)
    if found.place is None:
        assert thorough(count - 1) > 1
    else:
        assert found.thorough[found.place] <= 1
    assert all(place < count for place in (*quick.asked, *thorough.asked))
    assert len(quick.asked) <= 4 * tries(count)
    assert len(found.thorough) <= 4 + tries(count)
    assert set(quick.asked) == set(found.quick)


@given(COUNTS, EDGES, st.sets(st.integers(0, 2999), max_size=6))
def test_what_was_said_already_is_not_asked_again(count: int, edge: float, places: set[int]) -> None:
    judge = Judge(edge)
    seen = {place: judge(place) for place in places if place < count}
    again = Judge(edge)
    found = smallest(count, again, Judge(edge), seen=seen)
    assert found.place == smallest(count, judge, Judge(edge)).place
    assert not set(again.asked) & set(seen)
    assert found.quick.items() >= seen.items()


@pytest.mark.parametrize("strain", [math.inf, 2.0])
def test_nothing_passes(strain: float) -> None:
    found = smallest(100, lambda _: strain, lambda _: strain)
    assert found.place is None
    assert found.thorough == {99: strain}


def test_the_largest_is_shown_to_the_thorough_judge_though_the_quick_one_lets_nothing_pass() -> None:
    found = smallest(100, lambda _: 2.0, lambda place: 0.5 if place >= 90 else 3.0)
    assert found.place is not None
    assert found.place >= 90


def test_a_limit_of_nothing_is_met_where_nothing_is_lost() -> None:
    """Strain is 0 or endless then; neither corrects anything."""
    judge = lambda place: 0.0 if place >= 37 else math.inf  # noqa: E731
    assert smallest(100, judge, judge).place == 37
