"""What is guessed ahead, and how much of it is worth it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.errors import OwnProblem
from trisplit.mesh.speculation import (
    FULLER,
    MOST_AHEAD,
    ROUNDS,
    WORTH,
    Forecast,
    Guesses,
    Pace,
    expected_round,
    likely_run,
)

TRIP_S, GAP_S = 0.320, 0.020


def test_a_right_guess_leaves_those_behind_it() -> None:
    guesses = Guesses([1, 2], 0)
    for token_id in (3, 4, 5):
        guesses.add(token_id)
    assert (guesses.judge(2, 3, 0), guesses.ahead, guesses.ids) == (True, 2, [1, 2, 3, 4, 5])


def test_a_wrong_one_takes_those_behind_it_along() -> None:
    guesses = Guesses([1, 2], 0)
    for token_id in (3, 4, 5):
        guesses.add(token_id)
    assert (guesses.judge(2, 9, 1), guesses.ahead, guesses.ids, guesses.epoch) == (False, 0, [1, 2, 9], 1)
    assert (guesses.judge(3, 7, 2), guesses.ids) == (None, [1, 2, 9, 7]), "nothing was guessed"


def test_a_right_one_that_was_told_too_late_was_right_and_is_void() -> None:
    guesses = Guesses([1], 0)
    guesses.add(2)
    guesses.add(3)
    assert (guesses.judge(1, 2, 1), guesses.ahead, guesses.ids) == (True, 0, [1, 2])


def test_ids_come_in_order() -> None:
    with pytest.raises(OwnProblem, match="an id for position 3 after 2"):
        Guesses([1, 2], 0).judge(3, 1, 0)


def paced(hits: str) -> Pace:
    """A hit (`h`), a miss (`m`), nothing guessed (`.`), each as long after the one before as it would be."""
    pace, now_s = Pace(first_window=8), 0.0
    before = "."
    for each in hits:
        now_s += GAP_S if before == "h" else TRIP_S
        pace.came(now_s, {"h": True, "m": False, ".": None}[each])
        before = each
    return pace


def test_trips_and_gaps_are_told_apart() -> None:
    pace = paced("." + "mhhhh.hh" * 4)
    assert pace.trip_s == pytest.approx(TRIP_S)
    assert pace.gap_s == pytest.approx(GAP_S)
    assert pace.filling == math.ceil(FULLER * TRIP_S / GAP_S) + 2
    assert (pace.hits, pace.misses) == (24, 4)


def test_the_window_fills_the_pipe_while_guesses_are_good() -> None:
    assert Pace(first_window=8).window == 8
    assert paced("." + "h" * 60).window == 26
    assert paced("." + "m" * 60).window == 0
    assert 0 < paced("." + "hm" * 60).window < 8


def test_a_wait_for_something_else_is_no_trip() -> None:
    pace = paced("...")
    pace.pause()
    pace.came(100.0, None)
    assert pace.trip_s == pytest.approx(TRIP_S)


@given(share=st.floats(0, 1), worth=st.floats(0.01, 0.9))
def test_a_run_is_as_long_as_it_is_likely(share: float, worth: float) -> None:
    n = likely_run(share, worth)
    assert n == 0 or share**n >= worth * (1 - 1e-6)
    assert share == 1 or share ** (n + 1) < worth * (1 + 1e-6)
    assert min(n, MOST_AHEAD) <= likely_run(1.0, WORTH)


@given(share=st.floats(0, 0.999), k=st.integers(1, 16))
def test_a_round_gives_the_sum_of_its_chances(share: float, k: int) -> None:
    assert expected_round(share, k) == pytest.approx(sum(share**i for i in range(k + 1)))


def forecast(**changes: object) -> Forecast:
    """Six stations 20 ms apart, a draft of 10 ms, a pipe that gives a token every 5 ms."""
    facts = {"share": 0.9, "trip_s": 0.150, "gap_s": 0.005, "draft_s": 0.010, "legs": 6, "leg_s": 0.020}
    return Forecast(**{**facts, **changes})  # type: ignore[arg-type]


def test_a_stream_costs_a_gap_and_what_wrong_guesses_cost() -> None:
    assert forecast().stream_s == pytest.approx(0.010 + 0.1 * 0.150)


def test_a_round_costs_a_trip_and_a_leg_and_its_drafts_for_what_it_gives() -> None:
    computing_s = 0.150 - 6 * 0.020
    whole_s = 0.150 + 0.020 + 5 * 0.25 * computing_s + 5 * 0.010
    assert forecast().round_s(5) == pytest.approx(whole_s / expected_round(0.9, 5))
    assert forecast(rounds_s={5: 0.4}).round_s(5) == pytest.approx((0.4 + 0.05) / expected_round(0.9, 5))


def test_what_is_quicker_by_far_is_chosen_and_nothing_for_less() -> None:
    assert forecast().best(0) == 0, "as a stream: it fills the pipe"
    crowded = forecast(gap_s=0.060, trip_s=0.100, leg_s=0.002, draft_s=0.001, share=0.97)
    assert crowded.best(0) == 8, "rows in company cost less than rows alone"
    assert crowded.best(8) == 8
    for now in (0, *ROUNDS):
        as_long = forecast(draft_s=0.0).stream_s
        tried_s = {k: 0.9 * as_long * expected_round(0.9, k) for k in ROUNDS}
        assert forecast(draft_s=0.0, rounds_s=tried_s).best(now) == now
    assert forecast(share=0.0).best(8) == 0
