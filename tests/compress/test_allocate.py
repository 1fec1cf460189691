"""Allocation: exactly the budget, and never more damage than any other split."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trisplit.compress.allocate import UNIT, Budgets, Curve, allocate
from trisplit.errors import RequestProblem


@st.composite
def curves(draw: st.DrawFn) -> list[Curve]:
    """A few layers of different widths; errors fall with width but need not be convex."""
    layers = []
    for _ in range(draw(st.integers(1, 4))):
        units = draw(st.integers(1, 5))
        falls = draw(st.lists(st.floats(0, 10), min_size=units + 1, max_size=units + 1))
        errors = [sum(falls[place:]) for place in range(units + 1)]
        layers.append(Curve([UNIT * place for place in range(units + 1)], errors, draw(st.floats(0, 5))))
    return layers


@settings(deadline=None)
@given(curves())
def test_the_budget_is_met_exactly_and_nothing_is_better(layers: list[Curve]) -> None:
    """All splits tried, for every budget."""
    budgets = Budgets(layers)
    best: dict[int, float] = {}
    for places in product(*(range(len(curve.widths)) for curve in layers)):
        total = sum(curve.widths[place] for curve, place in zip(layers, places))
        cost = sum(curve.weight * curve.errors[place] for curve, place in zip(layers, places))
        best[total] = min(cost, best.get(total, float("inf")))
    assert (budgets.smallest, budgets.largest) == (min(best), max(best))
    for total, cost in best.items():
        found = budgets.split(total)
        assert sum(found.widths) == total
        assert all(width in curve.widths for width, curve in zip(found.widths, layers))
        spent = sum(c.weight * c.errors[list(c.widths).index(w)] for c, w in zip(layers, found.widths))
        assert found.cost == pytest.approx(cost)
        assert spent == pytest.approx(cost)


@settings(deadline=None)
@given(curves())
def test_more_neurons_never_cost_more(layers: list[Curve]) -> None:
    budgets = Budgets(layers)
    costs = [budgets.split(total).cost for total in range(0, budgets.largest + 1, UNIT)]
    assert all(more <= less + 1e-9 for less, more in pairwise(costs))


def test_a_heavy_layer_keeps_its_width() -> None:
    widths = list(range(0, 257, 32))
    errors = [1 - width / 256 for width in widths]
    found = allocate([Curve(widths, errors, 10.0), Curve(widths, errors, 1.0)], 256)
    assert found.widths == (256, 0)


def test_the_hull_misses_what_lies_between() -> None:
    """A cliff in a curve: any price for a neuron takes all of it or nothing, the budget wants half."""
    cliff = Curve([0, 32, 64], [1.0, 1.0, 0.0])
    assert allocate([cliff, cliff], 64).widths in ((64, 0), (0, 64))
    assert allocate([cliff, cliff], 32).cost == 2.0


@pytest.mark.parametrize("neurons", [-32, 16, 33, 160, 10**9])
def test_a_budget_nobody_can_meet_is_refused_with_the_bounds(neurons: int) -> None:
    with pytest.raises(RequestProblem, match="no widths") as refused:
        allocate([Curve([32, 64], [1.0, 0.0]), Curve([64], [0.0])], neurons)
    assert refused.value.fix == "choose 96 to 128 in units of 32"


@pytest.mark.parametrize(
    "curve",
    [
        Curve([], []),
        Curve([32], [1.0, 2.0]),
        Curve([30], [1.0]),
        Curve([-32], [1.0]),
        Curve([32], [float("nan")]),
        Curve([32], [1.0], float("inf")),
    ],
)
def test_curves_that_make_no_sense_are_refused(curve: Curve) -> None:
    with pytest.raises(RequestProblem, match="layer 1 makes no sense"):
        Budgets([Curve([32], [0.0]), curve])
