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
from trisplit.mesh.cuts import CUTS, NO_ENDS, StageCost
from trisplit.mesh.plan import Group, Plan, plan
from trisplit.mesh.room import Room, parse_size
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.config import LAYER_KINDS as KINDS
from trisplit.models.config import Kind

MB = 10**6
# SmolLM2-135M in f32: 576 wide, 9 + 2 × 3 heads of 64, 1,536 neurons, two norms; KV of 2,048 tokens.
SMOLLM2 = {"attention": 3_541_248, "gate_up": 7_080_192, "down": 3_538_944, "kv": 3_145_728}
TIED = (StageCost(-1, "embed", 113_246_208, 0), StageCost(-1, "head", 113_248_512, 0, 113_246_208))
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
cuts, topologies = st.sampled_from(sorted(CUTS)), st.sampled_from(sorted(TOPOLOGIES))
Ends = tuple[StageCost, StageCost]


@st.composite
def any_ends(draw: st.DrawFn) -> Ends:
    """Embed and head; half the time the head is the embedding, but for its norm."""
    embed, norm = draw(st.integers(0, 2000)), draw(st.integers(0, 9))
    tied = draw(st.booleans())
    head = embed if tied else draw(st.integers(0, 2000))
    return ends_of(embed, head + norm, embed if tied else 0)


def ends_of(embed: int, head: int, shared: int = 0) -> Ends:
    return StageCost(-1, "embed", embed, 0), StageCost(-1, "head", head, 0, shared)


def try_plan(
    stages: list[StageCost], rooms: list[Room], cut: str, topology: str = "chain", ends: Ends = NO_ENDS
) -> Plan | None:
    try:
        return plan(stages, rooms, cut=cut, topology=topology, ends=ends)
    except PlanProblem:
        return None


def on_its_way(stage: StageCost) -> tuple[int, int]:
    """Where a token meets a stage."""
    return {"embed": (-1, 0), "head": (10**6, 0)}.get(stage.kind) or (stage.layer, KINDS.index(stage.kind))


def n_groups(cut: str, n_layers: int) -> int:
    return {"layers": n_layers, "thirds": 3 * n_layers, "recut": 2 * n_layers + 1}[cut]


@unhurried
@given(uneven(), skewed(), cuts, topologies, any_ends())
def test_a_plan_is_whole_and_within_limits(
    stages: list[StageCost], rooms: list[Room], cut: str, topology: str, ends: Ends
) -> None:
    made = try_plan(stages, rooms, cut, topology, ends)
    assume(made is not None)
    assert made is not None
    everything = [*stages, *(ends if topology == "ring" else ())]
    assert Counter(s for share in made.shares for g in share.groups for s in g.stages) == Counter(everything)
    limits = {room.name: room.memory_bytes for room in rooms}
    for share in made.shares:
        limit, kinds = limits[share.station], {s.kind for s in share.stages}
        both = {"embed", "head"} <= kinds
        held = sum(s.n_bytes for g in share.groups for s in g.stages) - both * ends[1].shared_bytes
        assert held == share.weight_bytes + share.kv_bytes
        assert limit is None or held <= limit
    used = [share.station for share in made.shares]
    assert sorted([*used, *made.spares]) == sorted(limits)
    assert [g.number for g in made.groups] == list(range(len(made.groups)))
    alone = ends[0].weight_bytes + ends[1].weight_bytes - ends[1].shared_bytes
    assert made.ends_bytes == (0 if topology == "ring" else alone)


@unhurried
@given(uneven(), skewed(), cuts, topologies, any_ends())
def test_a_token_meets_the_stages_in_order(
    stages: list[StageCost], rooms: list[Room], cut: str, topology: str, ends: Ends
) -> None:
    made = try_plan(stages, rooms, cut, topology, ends)
    assume(made is not None)
    assert made is not None
    passed = [stage for group in made.groups for stage in group.stages]
    assert passed == sorted([*stages, *(ends if topology == "ring" else ())], key=on_its_way)
    homes = made.homes
    where = {group.number: share.station for share in made.shares for group in share.groups}
    assert list(homes) == [where[number] for number in range(len(made.groups))]
    assert all(here != there for here, there in pairwise(homes))
    n_layers = len(stages) // 3
    assert len(homes) == (len(made.shares) if cut == "layers" else n_groups(cut, n_layers))
    legs = {"star": 2 * len(homes), "chain": len(homes) + 1, "ring": len(homes) - (homes[0] == homes[-1])}
    assert made.legs_per_token == legs[topology]


@unhurried
@given(uneven(), skewed(), cuts, topologies, any_ends())
def test_a_station_holds_one_kind_of_group(
    stages: list[StageCost], rooms: list[Room], cut: str, topology: str, ends: Ends
) -> None:
    made = try_plan(stages, rooms, cut, topology, ends)
    assume(made is not None)
    assert made is not None
    apart: dict[str, list[set[Kind]]] = {
        "layers": [{"attention", "gate_up", "down"}],
        "thirds": [{"attention"}, {"gate_up"}, {"down"}],
        "recut": [{"attention", "down"}, {"gate_up"}],
    }
    last = len(made.groups) - 1
    for share in made.shares:
        kinds = {s.kind for s in share.stages if s.layer >= 0}
        assert any(kinds <= allowed for allowed in apart[cut])
        numbers = [g.number for g in share.groups]
        if (numbers[0], numbers[-1]) == (0, last) and cut == "recut" and topology == "ring":
            numbers = numbers[:-1]  # the end of a ring, brought to its beginning
        assert numbers == list(range(numbers[0], numbers[-1] + 1, len(apart[cut])))


@unhurried
@given(uneven(max_layers=12), st.integers(2, 12), any_ends())
def test_a_recut_ring_with_room_ends_where_it_began(
    stages: list[StageCost], n_stations: int, ends: Ends
) -> None:
    made = plan(stages, rooms_of(*[None] * n_stations), cut="recut", topology="ring", ends=ends)
    assert made.homes[0] == made.homes[-1]
    assert made.legs_per_token == 2 * (len(stages) // 3)


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
@given(uneven(max_layers=12), skewed(max_stations=12), cuts, topologies, any_ends())
def test_advice_taken_works(
    stages: list[StageCost], rooms: list[Room], cut: str, topology: str, ends: Ends
) -> None:
    assume(try_plan(stages, rooms, cut, topology, ends) is None)
    with pytest.raises(PlanProblem) as caught:
        plan(stages, rooms, cut=cut, topology=topology, ends=ends)
    fix = caught.value.fix
    said = {word: re.search(rf"take {word} ([a-z ]+) \(fits\)", fix) for word in ("cut", "topology")}
    named = {word: found[1].split(" or ") if found else [] for word, found in said.items()}
    fitting = [other for other in CUTS if try_plan(stages, rooms, other, topology, ends) is not None]
    assert named["cut"] == fitting
    fitting = [other for other in TOPOLOGIES if try_plan(stages, rooms, cut, other, ends) is not None]
    assert named["topology"] == fitting
    added = re.match(r"add (?:a station|stations) of ([^,]+)", fix)
    if added is None:
        assert re.match(r"give a station .* or more", fix)
        return
    more = [Room(f"new{i}", parse_size(text)) for i, text in enumerate(added[1].split(" and "))]
    plan(stages, [*rooms, *more], cut=cut, topology=topology, ends=ends)


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
    assert list(made.homes) == homes.split()


def test_limits_beyond_64_bits_are_limits_like_others() -> None:
    assert len(plan(even(4), rooms_of(10**30, 10**30), cut="layers").shares) == 2
    with pytest.raises(PlanProblem, match="needs 3 stations"):
        plan(even(4), rooms_of(10**30, 10**30), cut="thirds")


def test_group_and_share_add_up_their_stages() -> None:
    group = Group(0, tuple(even(1)))
    assert (group.label, group.weight_bytes, group.kv_bytes) == ("layer 0", 15 * MB, 1 * MB)
    made = plan(even(1), rooms_of(None), cut="layers")
    assert made.groups == (group,)


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
@pytest.mark.parametrize("cut", sorted(CUTS))
def test_table(cut: str, topology: str, snapshot: SnapshotAssertion) -> None:
    rooms = rooms_of(400 * MB, 400 * MB, 200 * MB, None, 1 * MB)
    made = plan(even(30, SMOLLM2), rooms, cut=cut, topology=topology, ends=TIED)
    assert str(made.table()) == snapshot


@pytest.mark.parametrize(
    ("cut", "stations", "star", "chain", "ring"),
    [("layers", 4, 8, 5, 4), ("thirds", 7, 180, 91, 90), ("recut", 5, 122, 62, 60), ("layers", 1, 2, 2, 0)],
)
def test_legs_of_thirty_layers(cut: str, stations: int, star: int, chain: int, ring: int) -> None:
    rooms = rooms_of(*[None] * stations)
    legs = [
        plan(even(30, SMOLLM2), rooms, cut=cut, topology=t).legs_per_token for t in ("star", "chain", "ring")
    ]
    assert legs == [star, chain, ring]


def test_a_ring_begins_with_embed_and_ends_with_head() -> None:
    made = plan(even(2), rooms_of(None, None), cut="layers", topology="ring", ends=ends_of(5 * MB, 6 * MB))
    assert [group.label for group in made.groups] == ["embed, layer 0", "layer 1, head"]
    assert [share.weight_bytes for share in made.shares] == [20 * MB, 21 * MB]
    assert [str(s.kind) for s in made.groups[0].stages] == ["embed", "attention", "gate_up", "down"]
    assert made.groups[1].stages[-1] == StageCost(-1, "head", 6 * MB, 0)
    assert made.ends_bytes == 0


def test_a_tied_head_costs_nothing_more_where_embed_is() -> None:
    """16 MB a layer, an embedding of 20 MB: both on one station 52 MB, apart 36 MB each."""
    tied = ends_of(20 * MB, 20 * MB + 4, 20 * MB)
    together = plan(even(2), rooms_of(52 * MB + 4, 35 * MB), cut="layers", topology="ring", ends=tied)
    assert [(s.label, s.weight_bytes) for s in together.shares] == [("embed, layers 0-1, head", 50 * MB + 4)]
    assert (together.legs_per_token, together.spares) == (0, ("s1",))
    apart = plan(even(2), rooms_of(36 * MB + 4, 36 * MB + 4), cut="layers", topology="ring", ends=tied)
    assert [s.weight_bytes for s in apart.shares] == [35 * MB, 35 * MB + 4]
    with pytest.raises(PlanProblem, match=r"layer 1, head needs 36.0 MB, the largest station s0 offers 35.0"):
        plan(even(2), rooms_of(35 * MB, 35 * MB), cut="layers", topology="ring", ends=tied)


def test_a_recut_ring_pays_one_leg_more_where_its_ends_do_not_fit_together() -> None:
    """embed, attention 0 is 10 MB; down 1, head is 11 MB: 21 MB on one station or on two."""
    ends, rest = ends_of(6 * MB, 7 * MB), (8 * MB, 16 * MB)
    roomy = plan(even(2), rooms_of(21 * MB, *rest), cut="recut", topology="ring", ends=ends)
    assert (roomy.homes, roomy.legs_per_token) == (("s0", "s2", "s1", "s2", "s0"), 4)
    tight = plan(even(2), rooms_of(20 * MB, 16 * MB, 16 * MB), cut="recut", topology="ring", ends=ends)
    assert (tight.homes, tight.legs_per_token) == (("s0", "s2", "s0", "s2", "s1"), 5)


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


def test_a_ring_that_does_not_fit_is_refused_with_what_does(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(PlanProblem) as caught:
        plan(
            even(4), rooms_of(40 * MB, 40 * MB), cut="layers", topology="ring", ends=ends_of(20 * MB, 20 * MB)
        )
    assert f"{caught.value.what}\n{caught.value.fix}" == snapshot


def test_facts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"no topology is named 'rnig' \(did you mean 'ring'"):
        plan(even(1), rooms_of(None), cut="layers", topology="rnig")
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
