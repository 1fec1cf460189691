"""The choice against every order there is, and what it says of itself."""

from __future__ import annotations

import math
import random
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from tests.mesh.stations import MS, names, stages
from trisplit.errors import PlanProblem
from trisplit.mesh.choose import Choice, choose
from trisplit.mesh.cuts import CUTS, StageCost
from trisplit.mesh.plan import plan
from trisplit.mesh.predict import COORDINATOR, KINDS, Measured, predict, uniform
from trisplit.mesh.room import Room
from trisplit.mesh.topology import TOPOLOGIES

unhurried = settings(deadline=None, max_examples=40)
Links = tuple[tuple[float, ...], ...]


def scattered(places: list[tuple[float, float]]) -> Links:
    return tuple(tuple(math.dist(a, b) for b in places) for a in places)


@st.composite
def somewhere(draw: st.DrawFn, n_stations: int) -> Measured:
    """Stations on a map, some of them slow."""
    places = [(draw(st.floats(0, 50)), draw(st.floats(0, 50))) for _ in range(n_stations + 1)]
    slow = [1.0, *(draw(st.sampled_from([1.0, 2.0])) for _ in range(n_stations))]
    speeds = tuple(tuple(MS[kind] * factor for kind in KINDS) for factor in slow)
    return Measured((COORDINATOR, *names(n_stations)), scattered(places), speeds)


def quickest(chain: list[StageCost], rooms: list[Room], measured: Measured, cut: str, topology: str) -> float:
    """The least time over every order of every set of stations, each planned for itself."""
    found = [math.inf]
    optional = [room for room in rooms if room.memory_bytes is not None]
    for n in range(len(optional) + 1):
        for some in combinations(optional, n):
            members = [room for room in rooms if room.memory_bytes is None or room in some]
            for order in permutations(members):
                try:
                    drawn = plan(chain, order, cut=cut, topology=topology)
                except PlanProblem:
                    continue
                found.append(predict(drawn, measured).ms)
    return min(found)


@unhurried
@given(
    st.data(),
    st.integers(1, 4),
    st.lists(st.sampled_from([None, 60, 90, 1000]), min_size=2, max_size=4),
    st.sampled_from(sorted(CUTS)),
    st.sampled_from(sorted(TOPOLOGIES)),
)
def test_of_few_stations_no_order_is_quicker(
    data: st.DataObject, n_layers: int, limits: list[int | None], cut: str, topology: str
) -> None:
    measured = data.draw(somewhere(len(limits)))
    rooms = [Room(name, limit) for name, limit in zip(names(len(limits)), limits)]
    least = quickest(stages(n_layers), rooms, measured, cut, topology)
    try:
        made = choose(stages(n_layers), rooms, measured, cuts=[cut], topologies=[topology])
    except PlanProblem:
        assert least == math.inf
        return
    assert made.best.is_exact
    assert made.best.prediction.ms == pytest.approx(least)


@unhurried
@given(st.data(), st.integers(2, 5), st.lists(st.sampled_from([None, 60, 90]), min_size=1, max_size=4))
def test_the_best_is_no_slower_than_any_option(
    data: st.DataObject, n_layers: int, limits: list[int | None]
) -> None:
    measured = data.draw(somewhere(len(limits)))
    rooms = [Room(name, limit) for name, limit in zip(names(len(limits)), limits)]
    try:
        made = choose(stages(n_layers), rooms, measured)
    except PlanProblem:
        return
    every = {(o.plan.cut, o.plan.topology) for o in made.options} | {
        (n.cut, n.topology) for n in made.refused
    }
    assert every == {(cut, topology) for cut in CUTS for topology in TOPOLOGIES}
    assert all(made.best.prediction.ms <= option.prediction.ms + 1e-3 for option in made.options)
    for option in made.options:
        assert option.prediction == predict(option.plan, measured)
        held = {share.station: share.weight_bytes + share.kv_bytes for share in option.plan.shares}
        for room in rooms:
            if room.memory_bytes is None:
                few_units = room.name not in held and len(option.plan.groups) < len(rooms)
                assert room.name in held or few_units
            else:
                assert held.get(room.name, 0) <= room.memory_bytes


def on_a_circle(n_stations: int) -> tuple[list[Room], Measured]:
    """Stations round a circle, named in no order, the coordinator among them."""
    turns = [i * 2 * math.pi / (n_stations + 1) for i in range(n_stations + 1)]
    places = [(100 * math.cos(turn), 100 * math.sin(turn)) for turn in turns]
    others = places[1:]
    random.Random(7).shuffle(others)
    even = uniform(names(n_stations), one_way_ms=0, stage_ms=MS)
    rooms = [Room(name, None) for name in names(n_stations)]
    return rooms, Measured(even.names, scattered([places[0], *others]), even.stage_ms)


@pytest.mark.parametrize("topology", ["ring", "chain"])
def test_many_stations_are_brought_into_a_circle(topology: str) -> None:
    """Twelve: 479,001,600 orders, of which the way round is best; a ring skips the coordinator's place."""
    rooms, measured = on_a_circle(12)
    made = choose(stages(24), rooms, measured, cuts=["layers"], topologies=[topology])
    step = 2 * 100 * math.sin(math.pi / 13)
    skip = 2 * 100 * math.sin(2 * math.pi / 13)
    assert not made.best.is_exact
    assert made.best.prediction.wire_ms == pytest.approx(
        13 * step if topology == "chain" else 11 * step + skip
    )
    assert made.best.as_named_ms is not None
    assert made.best.as_named_ms > 2 * made.best.prediction.ms


def test_a_far_and_a_slow_station_are_left_out_where_the_rest_has_room() -> None:
    """Four of six would do: the farther s2 and the slower s5 stay spare."""
    even = uniform(names(6), one_way_ms=20, stage_ms=MS)
    links = [
        [ms * (3 if 3 in (a, b) else 1) for b, ms in enumerate(row)] for a, row in enumerate(even.one_way_ms)
    ]
    speeds = [[ms * (2 if at == 6 else 1) for ms in row] for at, row in enumerate(even.stage_ms)]
    measured = Measured(even.names, tuple(map(tuple, links)), tuple(map(tuple, speeds)))
    rooms = [Room(name, 240, 200 if name == "s5" else 100) for name in names(6)]
    made = choose(stages(32), rooms, measured)
    assert (made.best.plan.cut, made.best.plan.topology) == ("layers", "ring")
    assert set(made.best.plan.spares) == {"s2", "s5"}
    assert made.best.prediction.legs == 4


def test_where_all_is_the_same_fewest_legs_are_taken_and_the_order_stays() -> None:
    rooms = [Room(name, None) for name in names(4)]
    made = choose(stages(8), rooms, uniform(names(4), one_way_ms=0, stage_ms=MS))
    assert (made.best.plan.cut, made.best.plan.topology) == ("layers", "ring")
    assert [share.station for share in made.best.plan.shares] == names(4)


def told(made: Choice) -> str:
    return "\n".join([str(made.table()), str(made.best.plan.table()), *made.reasons()])


def test_what_a_choice_says(snapshot: SnapshotAssertion) -> None:
    rooms, measured = on_a_circle(5)
    rooms = [Room(room.name, 150) for room in rooms]
    assert told(choose(stages(16), rooms, measured)) == snapshot


def test_nothing_fits() -> None:
    rooms = [Room(name, 5) for name in names(3)]
    with pytest.raises(PlanProblem, match="layer 0 needs 30 B, the largest station s0 offers 5 B"):
        choose(stages(4), rooms, uniform(names(3), one_way_ms=1, stage_ms=MS))
