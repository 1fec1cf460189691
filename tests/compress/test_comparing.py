"""The paired test: against figures worked out by hand, and what must hold for any counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trisplit.compress.comparing import Paired, accuracy, paired
from trisplit.errors import RequestProblem


def test_counted_question_by_question() -> None:
    answers = [0, 1, 2, 3, 0]
    mine, theirs = [0, 1, 2, 0, 1], [0, 0, 2, 3, 1]
    found = accuracy(mine, answers)
    assert (found.right, found.n, found.share) == (3, 5, 0.6)
    assert found.standard_error == pytest.approx(math.sqrt(0.6 * 0.4 / 5))
    both = paired(mine, theirs, answers)
    assert (both.gained, both.lost, both.difference, both.p_value) == (1, 1, 0.0, 1.0)


def test_by_hand() -> None:
    # Eleven differ, one of them gained: 2 · (1 + 11) / 2^11.
    test = Paired(n=100, gained=1, lost=10)
    assert test.p_value == pytest.approx(24 / 2048)
    assert test.difference == pytest.approx(-0.09)
    assert test.standard_error == pytest.approx(math.sqrt(0.11 - 0.0081) / 10)


@settings(deadline=None)
@given(st.integers(0, 1200), st.integers(0, 1200))
def test_any_split(gained: int, lost: int) -> None:
    test, turned = (Paired(n=6001, gained=a, lost=b) for a, b in ((gained, lost), (lost, gained)))
    assert 0 <= test.p_value == turned.p_value <= 1
    assert test.difference == -turned.difference
    assert test.standard_error >= 0
    assert gained != lost or test.p_value == 1


def test_no_question_is_refused() -> None:
    with pytest.raises(RequestProblem):
        accuracy([], [])
