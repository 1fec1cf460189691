"""Blame: shares of a whole; exact where changes act on each other two by two, as Shapley has them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.compress.blame import shares

ROWS = st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=4, max_size=4)


def shapley(lost: dict[frozenset[int], float], layers: int) -> np.ndarray:
    """The mean over all orders of what each adds when its turn comes."""
    value, orders = np.zeros(layers), list(permutations(range(layers)))
    for order in orders:
        for at, layer in enumerate(order):
            value[layer] += lost[frozenset(order[: at + 1])] - lost[frozenset(order[:at])]
    return value / len(orders)


@given(ROWS)
def test_of_a_square_the_shares_are_those_of_shapley(rows: list[list[float]]) -> None:
    """What four layers lose together is the square of the sum of what each does."""
    ways = np.array(rows)
    sets = {
        frozenset(layer for layer in range(4) if bits >> layer & 1): float(
            np.square(sum((ways[layer] for layer in range(4) if bits >> layer & 1), np.zeros(4))).sum()
        )
        for bits in range(16)
    }
    whole = sets[frozenset(range(4))]
    found = shares(
        [sets[frozenset([layer])] for layer in range(4)],
        [sets[frozenset(range(4)) - {layer}] for layer in range(4)],
        whole,
    )
    if whole < 1e-6:
        return
    assert found.explained == pytest.approx(1)
    np.testing.assert_allclose(found.of * whole, shapley(sets, 4), atol=1e-9 + 1e-6 * whole)


def test_the_fewest_that_carry_so_much() -> None:
    found = shares([0.1, 0.5, 0.0, 0.4], [0.9, 0.5, 1.0, 0.6], 1.0)
    assert found.of.tolist() == pytest.approx([0.1, 0.5, 0.0, 0.4])
    assert found.ranked() == [1, 3, 0, 2]
    assert found.carrying(0.5) == (1,)
    assert found.carrying(0.6) == (1, 3)
    assert found.held_by((1, 3)) == pytest.approx(0.9)
    assert found.carrying(1.0) == (0, 1, 3)


def test_a_layer_that_gains_is_not_blamed() -> None:
    found = shares([0.8, -0.1], [0.1, 0.8], 0.7)
    assert found.of[1] < 0
    assert found.carrying(1.0) == (0,)


@pytest.mark.parametrize("whole", [0.0, -0.2])
def test_of_nothing_lost_nobody_is_to_blame(whole: float) -> None:
    found = shares([0.0, 0.0], [0.0, 0.0], whole)
    assert found.of.tolist() == [0, 0]
    assert found.carrying(0.5) == ()
    assert found.held_by(()) == 0
