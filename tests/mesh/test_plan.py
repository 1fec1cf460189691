"""Plans: every stage once, limits kept, neighbours apart, loads even, refusals that help."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from trisplit.errors import PlanProblem, RequestProblem, UnknownName
from trisplit.mesh.plan import CUTS, Group, Kind, Plan, Room, StageCost, parse_size, plan

MB = 10**6
KINDS: tuple[Kind, ...] = ("attention", "gate_up", "down")
# SmolLM2-135M in f32: 576 wide, 9 + 2 × 3 heads of 64, 1,536 neurons, two norms; KV of 2,048 tokens.
SMOLLM2 = {"attention": 3_541_248, "gate_up": 7_080_192, "down": 3_538_944, "kv": 3_145_728}
SMALL = {"attention": 3 * MB, "gate_up": 8 * MB, "down": 4 * MB, "kv": 1 * MB}


def even(n_layers: int, cost: dict[str, int] = SMALL) -> list[StageCost]:
    return [
        StageCost(layer, kind, cost[kind], cost["kv"] if kind == "attention" else 0)
        for layer in range(n_layers)
        for kind in KINDS
    ]


def rooms_of(*limits: int | None) -> list[Room]:
    return [Room(f"s{i}", limit) for i, limit in enumerate(limits)]


@st.composite
def uneven(draw: st.DrawFn, max_layers: int = 40) -> list[StageCost]:
    """Stages of any size, handed over in any order."""
    sizes = st.integers(1, 1000)
    stages = [
        StageCost(layer, kind, draw(sizes), draw(sizes) if kind == "attention" else 0)
        for layer in range(draw(st.integers(1, max_layers)))
        for kind in KINDS
    ]
    return draw(st.permutations(stages))


@st.composite
def skewed(draw: st.DrawFn, max_stations: int = 50) -> list[Room]:
    """Stations from far too small to unlimited, most of a size that decides whether all fits."""
    limit = st.integers(0, 8000) | st.integers(1000, 4000) | st.none()
    return rooms_of(*draw(st.lists(limit, min_size=1, max_size=max_stations)))


unhurried = settings(deadline=None)  # a busy machine is not a failure
cuts = st.sampled_from(sorted(CUTS))


def try_plan(stages: list[StageCost], rooms: list[Room], cut: str) -> Plan | None:
    try:
        return plan(stages, rooms, cut=cut)
    except PlanProblem:
        return None


def n_groups(cut: str, n_layers: int) -> int:
    return {"layers": n_layers, "thirds": 3 * n_layers, "recut": 2 * n_layers + 1}[cut]


@unhurried
@given(uneven(), skewed(), cuts)
def test_a_plan_is_whole_and_within_limits(stages: list[StageCost], rooms: list[Room], cut: str) -> None:
    made = try_plan(stages, rooms, cut)
    assume(made is not None)
    assert made is not None
    assert Counter(s for share in made.shares for g in share.groups for s in g.stages) == Counter(stages)
    limits = {room.name: room.memory_bytes for room in rooms}
    for share in made.shares:
        limit = limits[share.station]
        held = sum(s.n_bytes for g in share.groups for s in g.stages)
        assert held == share.weight_bytes + share.kv_bytes
        assert limit is None or held <= limit
    used = [share.station for share in made.shares]
    assert sorted([*used, *made.spares]) == sorted(limits)
    assert [g.number for g in made.groups] == list(range(len(made.groups)))
    assert made.legs_per_token == len(made.groups) + 1


@unhurried
@given(uneven(), skewed(), cuts)
def test_a_token_meets_the_stages_in_order(stages: list[StageCost], rooms: list[Room], cut: str) -> None:
    made = try_plan(stages, rooms, cut)
    assume(made is not None)
    assert made is not None
    passed = [stage for group in made.groups for stage in group.stages]
    assert passed == sorted(stages, key=lambda s: (s.layer, KINDS.index(s.kind)))
    homes = [made.station_of(number) for number in range(len(made.groups))]
    assert all(here != there for here, there in pairwise(homes))
    n_layers = len(stages) // 3
    assert len(homes) == (len(made.shares) if cut == "layers" else n_groups(cut, n_layers))


@unhurried
@given(uneven(), skewed(), cuts)
def test_a_station_holds_one_kind_of_group(stages: list[StageCost], rooms: list[Room], cut: str) -> None:
    made = try_plan(stages, rooms, cut)
    assume(made is not None)
    assert made is not None
    apart: dict[str, list[set[Kind]]] = {
        "layers": [{"attention", "gate_up", "down"}],
        "thirds": [{"attention"}, {"gate_up"}, {"down"}],
        "recut": [{"attention", "down"}, {"gate_up"}],
    }
    for share in made.shares:
        kinds = {s.kind for g in share.groups for s in g.stages}
        assert any(kinds <= allowed for allowed in apart[cut])
        numbers = [g.number for g in share.groups]
        assert numbers == list(range(numbers[0], numbers[-1] + 1, len(apart[cut])))


@unhurried
@given(st.integers(1, 40), st.integers(1, 50), cuts)
def test_every_station_is_used_while_there_are_groups(n_layers: int, n_stations: int, cut: str) -> None:
    made = try_plan(even(n_layers), rooms_of(*[None] * n_stations), cut)
    assert (made is None) == (n_stations < len(CUTS[cut]))
    if made is not None:
        assert len(made.shares) == min(n_stations, n_groups(cut, n_layers))


@unhurried
@given(st.integers(1, 40), st.lists(st.integers(0, 90 * MB), min_size=1, max_size=50))
def test_equal_layers_are_refused_only_where_no_packing_exists(n_layers: int, limits: list[int]) -> None:
    fit = sum(limit // (16 * MB) for limit in limits)
    assert (try_plan(even(n_layers), rooms_of(*limits), "layers") is None) == (fit < n_layers)


@unhurried
@given(uneven(max_layers=12), skewed(max_stations=12), cuts)
def test_advice_taken_works(stages: list[StageCost], rooms: list[Room], cut: str) -> None:
    assume(try_plan(stages, rooms, cut) is None)
    with pytest.raises(PlanProblem) as caught:
        plan(stages, rooms, cut=cut)
    fix = caught.value.fix
    fitting = re.search(r"take cut (.+) \(fits\)", fix)
    for other in CUTS:
        said_to_fit = fitting is not None and other in fitting[1].split(" or ")
        assert said_to_fit == (try_plan(stages, rooms, other) is not None)
    added = re.match(r"add (?:a station|stations) of ([^,]+)", fix)
    if added is None:
        assert re.match(r"give a station .* or more", fix)
        return
    more = [Room(f"new{i}", parse_size(text)) for i, text in enumerate(added[1].split(" and "))]
    plan(stages, [*rooms, *more], cut=cut)


@unhurried
@given(uneven(max_layers=8), skewed(max_stations=8), cuts)
def test_the_same_facts_give_the_same_plan(stages: list[StageCost], rooms: list[Room], cut: str) -> None:
    in_order = sorted(stages, key=lambda s: (s.layer, s.kind))
    assert try_plan(stages, rooms, cut) == try_plan(in_order, rooms, cut)


@pytest.mark.parametrize(
    ("n_layers", "n_stations", "held"),
    [(30, 4, [8, 8, 7, 7]), (9, 4, [3, 2, 2, 2]), (1, 1, [1]), (5, 5, [1] * 5), (3, 5, [1] * 3)],
)
def test_whole_layers_are_spread_evenly(n_layers: int, n_stations: int, held: list[int]) -> None:
    made = plan(even(n_layers, SMOLLM2), rooms_of(*[None] * n_stations), cut="layers")
    assert [len(share.groups[0].stages) // 3 for share in made.shares] == held
    assert [len(share.groups) for share in made.shares] == [1] * len(held)
    assert made.legs_per_token == len(held) + 1
    assert len(made.spares) == n_stations - len(held)


def test_sixty_layers_in_thirds_fill_180_stations() -> None:
    made = plan(even(60), rooms_of(*[None] * 180), cut="thirds")
    assert [len(share.groups) for share in made.shares] == [1] * 180
    assert (made.spares, made.legs_per_token) == ((), 181)


@pytest.mark.parametrize(
    ("cut", "labels"),
    [
        ("layers", ["layers 0-1"]),
        ("thirds", ["attention 0", "gate_up 0", "down 0", "attention 1", "gate_up 1", "down 1"]),
        ("recut", ["attention 0", "gate_up 0", "down 0, attention 1", "gate_up 1", "down 1"]),
    ],
)
def test_groups_of_each_cut(cut: str, labels: list[str]) -> None:
    made = plan(even(2), rooms_of(*[None] * len(CUTS[cut])), cut=cut)
    assert [group.label for group in made.groups] == labels


def test_stations_get_kinds_in_proportion_to_bytes() -> None:
    made = plan(even(30), rooms_of(*[None] * 7), cut="thirds")
    assert [share.label for share in made.shares] == [
        "attention 0-14",
        "attention 15-29",
        "gate_up 0-9",
        "gate_up 10-19",
        "gate_up 20-29",
        "down 0-14",
        "down 15-29",
    ]


def test_a_station_too_small_for_any_group_is_a_spare() -> None:
    made = plan(even(4), rooms_of(40 * MB, 3 * MB, None), cut="layers")
    assert [share.station for share in made.shares] == ["s0", "s2"]
    assert made.spares == ("s1",)


@pytest.mark.parametrize(
    ("limits", "homes"),
    [((5, 1, 2), "s1 s2 s0 s2 s0"), ((2, 2, 4), "s2 s1 s2 s1 s0")],
    ids=["smallest first", "largest first"],
)
def test_another_order_of_stations_is_tried(limits: tuple[int, ...], homes: str) -> None:
    """attention_0 1, down_0+attention_1 3, down_1 2; gate_up 1 each: the given order holds neither."""
    weights = {"attention": (1, 1), "gate_up": (1, 1), "down": (2, 2)}
    stages = [StageCost(layer, kind, weights[kind][layer], 0) for layer in range(2) for kind in KINDS]
    made = plan(stages, rooms_of(*limits), cut="recut")
    assert [made.station_of(number) for number in range(5)] == homes.split()


def test_limits_beyond_64_bits_are_limits_like_others() -> None:
    assert len(plan(even(4), rooms_of(10**30, 10**30), cut="layers").shares) == 2
    with pytest.raises(PlanProblem, match="needs 3 stations"):
        plan(even(4), rooms_of(10**30, 10**30), cut="thirds")


def test_group_and_share_add_up_their_stages() -> None:
    group = Group(0, tuple(even(1)))
    assert (group.label, group.weight_bytes, group.kv_bytes) == ("layer 0", 15 * MB, 1 * MB)
    made = plan(even(1), rooms_of(None), cut="layers")
    assert made.groups == (group,)
    with pytest.raises(KeyError):
        made.station_of(1)


@pytest.mark.parametrize("cut", sorted(CUTS))
def test_table(cut: str, snapshot: SnapshotAssertion) -> None:
    rooms = rooms_of(400 * MB, 400 * MB, 200 * MB, None, 1 * MB)
    assert str(plan(even(30, SMOLLM2), rooms, cut=cut, ends_bytes=113_248_512).table()) == snapshot


@pytest.mark.parametrize(
    ("cut", "limits_mb"),
    [
        pytest.param("layers", [10, 7.9, 9], id="a group fits nowhere"),
        pytest.param("layers", [60, 70], id="too little in sum"),
        pytest.param("layers", [17, 31, 30, 30, 40, 30], id="enough in sum, not in pieces"),
        pytest.param("thirds", [20, 20, 20], id="two kinds left over"),
        pytest.param("thirds", [200, None], id="too few stations"),
        pytest.param("thirds", [200, 200, 2], id="too few stations that hold a group"),
        pytest.param("recut", [None, 9], id="one kind has no room"),
        pytest.param("layers", [], id="no station"),
    ],
)
def test_refusals(cut: str, limits_mb: list[float | None], snapshot: SnapshotAssertion) -> None:
    rooms = rooms_of(*(None if mb is None else int(mb * MB) for mb in limits_mb))
    with pytest.raises(PlanProblem) as caught:
        plan(even(10), rooms, cut=cut)
    assert f"{caught.value.what}\n{caught.value.fix}" == snapshot


def test_facts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'layers'"):
        plan(even(1), rooms_of(None), cut="layer")
    with pytest.raises(RequestProblem, match="2 stations are named 'a'"):
        plan(even(1), [Room("a", None), Room("b", None), Room("a", 1)], cut="layers")
    with pytest.raises(RequestProblem, match="station s0 offers -1 bytes"):
        plan(even(1), rooms_of(-1), cut="layers")
    with pytest.raises(PlanProblem, match="no layers to place"):
        plan([], rooms_of(None), cut="layers")
    with pytest.raises(PlanProblem, match="gate_up 1 is there 0 times"):
        plan([s for s in even(2) if (s.layer, s.kind) != (1, "gate_up")], rooms_of(None), cut="layers")
    with pytest.raises(PlanProblem, match="down 0 is there 2 times"):
        plan([*even(1), even(1)[2]], rooms_of(None), cut="layers")
    with pytest.raises(PlanProblem, match="attention -1"):
        plan([*even(1), StageCost(-1, "attention", 1, 0)], rooms_of(None), cut="layers")
    with pytest.raises(PlanProblem, match="negative number of bytes"):
        plan([*even(1)[:2], StageCost(0, "down", -1, 0)], rooms_of(None), cut="layers")


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("900", 900),
        ("900 B", 900),
        ("3kB", 3000),
        ("200MB", 200 * MB),
        ("1.5 GB", 1500 * MB),
        ("2KiB", 2048),
        ("1 MiB", 2**20),
        (" 0.5gib ", 2**29),
    ],
)
def test_sizes_as_people_write_them(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    "text", ["", "MB", "-1MB", "1.5", "1.5B", "2 TB", "1e9", "1,5GB", "٣MB", "9" * 40, "1 MB 2"]
)
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(RequestProblem, match="is not a size"):
        parse_size(text)
