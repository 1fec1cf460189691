"""Predicted times against a token that is followed step by step, and against sums done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mesh.stations import MS, names, rooms, stages
from trisplit.errors import RequestProblem
from trisplit.mesh.ahead import starting_ahead
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.formulas import hidden_ms
from trisplit.mesh.overlap import Early
from trisplit.mesh.plan import Plan, plan
from trisplit.mesh.predict import COORDINATOR, KINDS, Measured, predict, uniform
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.config import Kind

unhurried = settings(deadline=None)  # a busy machine is not a failure


@st.composite
def anything_measured(draw: st.DrawFn, n_stations: int) -> Measured:
    """Links of any length, not the same both ways, direct ones longer than detours; stations of any speed."""
    n = n_stations + 1
    ms = st.floats(0, 100)
    links = [[0.0 if a == b else draw(ms) for b in range(n)] for a in range(n)]
    speeds = [[draw(ms) for _ in KINDS] for _ in range(n)]
    everyone = (COORDINATOR, *names(n_stations))
    return Measured(everyone, tuple(map(tuple, links)), tuple(map(tuple, speeds)), draw(ms))


def followed(drawn: Plan, measured: Measured) -> float:
    """When a token is back where it began, told by following every frame of it."""

    def leg(a: str, b: str) -> float:
        straight = measured.one_way_ms[measured.names.index(a)][measured.names.index(b)]
        if drawn.topology == "star" and COORDINATOR not in (a, b):
            return leg(a, COORDINATOR) + leg(COORDINATOR, b)
        return straight

    def run(station: str, kind: Kind) -> float:
        return measured.stage_ms[measured.names.index(station)][KINDS.index(kind)]

    is_ring = drawn.topology == "ring"
    at, now = COORDINATOR, 0.0 if is_ring else run(COORDINATOR, "embed")
    began_at = drawn.homes[0] if is_ring else COORDINATOR
    residual: tuple[str, float] = ("", 0.0)
    for group, home in zip(drawn.groups, drawn.homes):
        if group.number and [(s.kind, s.parallel) for s in group.stages] == [("attention", True)]:
            residual = (home, now + leg(at, home) + run(home, "attention"))  # while the token goes on
            continue
        if not (is_ring and group.number == 0):  # in a ring the id is there, as the last token's end
            now += leg(at, home)
        for stage in group.stages:
            if stage.kind == "down" and residual[0] != home:
                now = max(now, residual[1] + leg(residual[0], home))
            now += run(home, stage.kind)
            if stage.kind == "attention":
                residual = (home, now)
        at = home
    now += 0.0 if at == began_at else leg(at, began_at)
    return now + (0.0 if is_ring else run(COORDINATOR, "head")) + measured.other_ms


@unhurried
@given(st.data(), st.integers(1, 6), st.integers(3, 6), st.sampled_from(sorted(CUTS)), st.booleans())
@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_the_sum_is_what_following_a_token_gives(
    topology: str, data: st.DataObject, n_layers: int, n_stations: int, cut: str, parallel: bool
) -> None:
    measured = data.draw(anything_measured(n_stations))
    drawn = plan(stages(n_layers, parallel=parallel), rooms(n_stations), cut=cut, topology=topology)
    said = predict(drawn, measured)
    assert said.ms == pytest.approx(followed(drawn, measured))
    assert said.legs == drawn.legs_per_token


@pytest.mark.parametrize(
    ("cut", "topology", "legs"),
    [
        ("layers", "ring", 6),
        ("layers", "chain", 7),
        ("layers", "star", 12),
        ("recut", "ring", 60),
        ("recut", "chain", 62),
        ("thirds", "star", 180),
    ],
)
def test_on_even_links_it_is_the_wire_floor(cut: str, topology: str, legs: int) -> None:
    drawn = plan(stages(30), rooms(6), cut=cut, topology=topology)
    said = predict(drawn, uniform(names(6), one_way_ms=20, stage_ms=MS))
    assert (said.legs, said.wire_ms, said.late_ms) == (legs, 20 * legs, 0)
    assert said.compute_ms == pytest.approx(30 * (2 + 3 + 4) + 1 + 10)
    assert said.tok_per_s == pytest.approx(1000 / said.ms)


@pytest.mark.parametrize(("topology", "legs"), [("chain", 62), ("star", 122), ("ring", 61)])
def test_attention_of_parallel_blocks_runs_beside_gate_up(topology: str, legs: int) -> None:
    drawn = plan(stages(30, parallel=True), rooms(6), cut="thirds", topology=topology)
    said = predict(drawn, uniform(names(6), one_way_ms=20, stage_ms=MS))
    assert (said.legs, said.wire_ms, said.late_ms) == (legs, 20 * legs, 0)
    assert said.compute_ms == pytest.approx(2 + 30 * (3 + 4) + 1 + 10)  # attention of the first layer alone
    slow = uniform(names(6), one_way_ms=20, stage_ms={**MS, "attention": 5.0})
    assert predict(drawn, slow).late_ms == pytest.approx(29 * (5 - 3))


def test_a_station_three_times_farther_costs_its_own_legs_twice_more() -> None:
    even = uniform(names(6), one_way_ms=20, stage_ms=MS)
    links = [
        [ms * (3 if (a == 2) != (b == 2) else 1) for b, ms in enumerate(row)]
        for a, row in enumerate(even.one_way_ms)
    ]
    uneven = Measured(even.names, tuple(map(tuple, links)), even.stage_ms)
    ring = plan(stages(30), rooms(6), cut="layers", topology="ring")
    star = plan(stages(30), rooms(6), cut="layers", topology="star")
    for drawn in (ring, star):
        assert predict(drawn, uneven).wire_ms - predict(drawn, even).wire_ms == pytest.approx(2 * 2 * 20)


def test_a_residual_on_a_long_direct_link_is_waited_for() -> None:
    """Attention at s0, gate_up at s1, down at s2: 1 + 3 + 1 ms through gate_up, 50 ms directly."""
    even = uniform(names(3), one_way_ms=1, stage_ms=MS)
    links = [list(row) for row in even.one_way_ms]
    links[1][3] = 50.0
    uneven = Measured(even.names, tuple(map(tuple, links)), even.stage_ms)
    drawn = plan(stages(2), rooms(3), cut="thirds", topology="chain")
    assert predict(drawn, even).late_ms == 0
    assert predict(drawn, uneven).late_ms == pytest.approx(2 * (50 - 5))


def test_a_station_nobody_measured_is_refused() -> None:
    drawn = plan(stages(2), rooms(3), cut="thirds")
    with pytest.raises(RequestProblem, match="nothing was measured of station s2"):
        predict(drawn, uniform(names(2), one_way_ms=1, stage_ms=MS))


# --- layers that start ahead ----------------------------------------------------------------------


@unhurried
@given(st.data(), st.integers(2, 6), st.integers(3, 6))
@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_layers_ahead_save_what_each_of_them_hides(
    topology: str, data: st.DataObject, n_layers: int, n_stations: int
) -> None:
    """As long as no station has keys to make anew: then layers do not get in each other's way.

    An early row is used even if it comes last; a layer where it does hides nothing, and costs.
    """
    measured = data.draw(anything_measured(n_stations))
    layers = data.draw(st.sets(st.integers(1, n_layers - 1), min_size=1))
    drawn = plan(stages(n_layers), rooms(n_stations), cut="thirds", topology=topology)
    said = predict(starting_ahead(drawn, layers, Early(kv="stale")), measured)
    hidden = hidden_ms(drawn, measured, layers)
    if all(hidden_ms(drawn, measured, [layer]) for layer in layers):
        assert said.ahead_ms == pytest.approx(hidden, abs=1e-9)
    assert said.ahead_ms <= hidden + 1e-9
    assert said.ms == pytest.approx(predict(drawn, measured).ms - said.ahead_ms)


@pytest.mark.parametrize(
    ("attention_ms", "early", "saves_ms"),
    [
        (2.0, Early(), 4 * 2),  # twice 2 ms fit beside gate_up 3 and down 4
        (5.0, Early(kv="stale"), 4 * 5),
        (5.0, Early(), 5 + 3 * (5 - 3)),  # 5 for the early row and 5 for the keys before it: 3 over
        (9.0, Early(kv="stale"), 4 * 7),  # as much as fits
        (9.0, Early("x", "stale"), 3 * 7),  # an early row waits for the attention before it
        (
            9.0,
            Early(),
            5 * (9 + 7) - (5 + 4) * 9 + 10,
        ),  # the station has nine and embed to run, and never rests
        (20.0, Early(), 5 * (20 + 7) - (5 + 4) * 20 + 10),  # with what it makes anew it takes longer
    ],
)
def test_one_station_for_all_attentions(attention_ms: float, early: Early, saves_ms: float) -> None:
    measured = uniform(names(3), one_way_ms=0, stage_ms=MS | {"attention": attention_ms})
    drawn = plan(stages(5), rooms(3), cut="thirds", topology="ring")
    first = 2 if early.seed == "x" else 1
    ahead = starting_ahead(drawn, range(first, 5), early)
    assert predict(ahead, measured).ahead_ms == pytest.approx(saves_ms)


def test_on_x_it_starts_as_early_as_the_attention_before_it() -> None:
    """Attention 10 ms at stations of their own, gate_up 3, down 4: all of it is hidden, or what fits."""
    measured = uniform(names(15), one_way_ms=1, stage_ms=MS | {"attention": 10.0})
    drawn = plan(stages(5), rooms(15), cut="thirds", topology="chain")
    one, other = (
        predict(starting_ahead(drawn, [3], Early(seed)), measured).ahead_ms for seed in ("x+attn", "x")
    )
    assert one == pytest.approx(3 + 4 + 3 - 1)  # from attention 2 on: gate_up, down and three legs, not one
    assert other == pytest.approx(10)
