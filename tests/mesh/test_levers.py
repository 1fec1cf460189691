"""Levers by sums done by hand: alone, together, of the whole and of what they touch."""

from __future__ import annotations

import pytest

from tests.mesh.stations import MS, names, rooms, stages
from trisplit.errors import PlanProblem
from trisplit.mesh.choose import choose
from trisplit.mesh.formulas import in_rounds_ms
from trisplit.mesh.levers import Ladder, Lever, ladder
from trisplit.mesh.predict import uniform
from trisplit.mesh.profile import Speculation

SPECULATION = Speculation(drafted=4, acceptance=0.8)
COMPUTE = 30 * (2 + 3 + 4) + 11


def of(n_stations: int = 6, cut: str = "thirds", topology: str = "star") -> tuple[Ladder, dict[str, Lever]]:
    measured = uniform(names(n_stations), one_way_ms=20, stage_ms=MS)
    every = choose(stages(30), rooms(n_stations), measured)
    seen = ladder(every, measured, cut=cut, topology=topology, speculation=SPECULATION)
    return seen, {lever.name: lever for lever in seen.levers}


def test_legs_of_thirds_in_a_star_are_what_the_exact_levers_work_on() -> None:
    seen, levers = of()
    before = 180 * 20 + COMPUTE
    assert seen.base.prediction.ms == pytest.approx(before)
    for name, legs in (("topology", 90), ("recut", 122), ("whole layers", 12), ("topology + recut", 60)):
        lever = levers[name]
        assert (lever.legs, lever.is_exact, lever.touches) == (legs, True, "legs")
        assert lever.ms == pytest.approx(20 * legs + COMPUTE)
        assert lever.gain == pytest.approx(before / lever.ms)
        assert lever.gain_there == pytest.approx(180 / legs)


def test_the_rest_of_a_token_stays() -> None:
    """Amdahl: what is not touched takes as long as before."""
    seen, levers = of()
    for lever in levers.values():
        untouched = seen.base.prediction.ms - lever.touched_ms
        assert lever.ms == pytest.approx(untouched + lever.left_ms)


def test_the_product_of_gains_is_not_the_gain_together() -> None:
    _, levers = of()
    together = levers["topology + whole layers"]
    product = levers["topology"].gain * levers["whole layers"].gain
    assert together.product == pytest.approx(product)
    assert together.gain == pytest.approx((180 * 20 + COMPUTE) / (6 * 20 + COMPUTE))
    assert levers["topology"].product is None


def test_overlap_changes_tokens_and_hides_attention() -> None:
    seen, levers = of()
    lever = levers["overlap"]
    assert (lever.is_exact, lever.touches, lever.touched_ms) == (False, "attention", 60)
    assert lever.left_ms == pytest.approx(2)  # of the first layer
    assert lever.ms == pytest.approx(seen.base.prediction.ms - 58)


def test_speculation_works_on_the_whole_token() -> None:
    seen, levers = of()
    before = seen.base.prediction.ms
    assert levers["rounds"].ms == pytest.approx(in_rounds_ms(before, SPECULATION))
    assert levers["stream"].ms == pytest.approx(15 * 4 + 0.2 * before)  # two stations of 15 down stages
    assert levers["rounds"].touched_ms == before


def test_levers_that_are_pulled_already_are_not_shown() -> None:
    seen, levers = of(cut="layers", topology="ring")
    assert seen.base.name == "layers, ring"
    assert set(levers) == {"overlap", "rounds", "stream"}
    assert levers["overlap"].gain == 1


def test_what_does_not_fit_is_not_shown() -> None:
    """Two stations cannot hold thirds: the slowest that fits is where the ladder stands."""
    seen, levers = of(n_stations=2)
    assert seen.base.name == "recut, star"
    assert "recut" not in levers
    with pytest.raises(PlanProblem):
        choose(stages(30), [], uniform([], one_way_ms=1, stage_ms=MS))
