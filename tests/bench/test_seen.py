"""What stations saw of a token: spans that follow each other, in a chain, a star and a ring."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trisplit.bench.seen import LegTimes, Seen, StageTimes, leg_times, spans, stage_times, tokens_seen
from trisplit.bench.waterfall import BYPASS, EARLY, LEG, Span
from trisplit.bench.wires import Wires, names_of, wires_between
from trisplit.mesh.ahead import starting_ahead
from trisplit.mesh.costs import plan_model
from trisplit.mesh.overlap import Early
from trisplit.mesh.plan import Plan
from trisplit.mesh.room import Room
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


def drawn(tiny: Tiny, cut: str, topology: str, stations: int = 3) -> tuple[Plan, Wires]:
    rooms = [Room(name, None) for name in names_of(stations)]
    plan = plan_model(open_model(tiny("llama")), rooms, cut=cut, topology=topology, dtype="f32", context=32)
    return plan, wires_between(names_of(stations), 5.0)


def passed(plan: Plan, *, from_ms: float, hop_ms: float) -> list[tuple[float, float, float]]:
    """Every group gets its rows `hop_ms` after the one before was done, waits 1 ms, and runs for 2."""
    return [
        (from_ms + n * (hop_ms + 3), from_ms + n * (hop_ms + 3) + 1, from_ms + n * (hop_ms + 3) + 3)
        for n in range(len(plan.groups))
    ]


def named(found: list[Span], what: str) -> list[tuple[str, str, float]]:
    return [(span.who, span.to, span.ms) for span in found if span.what == what]


def test_a_chain_begins_and_ends_at_the_coordinator(tiny: Tiny) -> None:
    plan, wires = drawn(tiny, "layers", "chain")
    seen = Seen(
        groups=passed(plan, from_ms=107, hop_ms=5.5), embed=(100, 100, 101), head=(131.0, 131.0, 135.0)
    )
    found = spans(plan, wires, seen)
    assert named(found, LEG) == [
        ("coordinator", "s1", 6.0),
        ("s1", "s2", 5.5),
        ("s2", "s3", 5.5),
        ("s3", "coordinator", 4.0),
    ]
    work = [(span.who, span.what, span.start_ms, span.ms) for span in found if span.is_work]
    assert work == [
        ("coordinator", "embed", 0.0, 1.0),
        ("coordinator", "head", 31.0, 4.0),
        ("s1", "layers 0-1", 8.0, 2.0),
        ("s2", "layer 2", 16.5, 2.0),
        ("s3", "layer 3", 25.0, 2.0),
    ]
    assert seen.waits_ms == 3.0


def test_a_residual_goes_past_gate_up_for_its_nominal_time(tiny: Tiny) -> None:
    plan, wires = drawn(tiny, "thirds", "chain")
    found = spans(plan, wires, Seen(groups=passed(plan, from_ms=0, hop_ms=6)))
    attention, _, down = plan.homes[:3]
    assert named(found, BYPASS) == [(attention, down, 5.0)] * 4
    first = next(span for span in found if span.what == BYPASS)
    assert first.start_ms == next(span.end_ms for span in found if span.what == "attention 0")


def test_of_a_hop_over_the_star_each_leg_has_taken_half_of_what_is_beyond(tiny: Tiny) -> None:
    plan, _ = drawn(tiny, "layers", "star")
    wires = wires_between(names_of(3), 5.0).with_far({"s2": 3.0})
    found = spans(plan, wires, Seen(groups=passed(plan, from_ms=0, hop_ms=24)))
    assert named(found, LEG) == [
        ("s1", "coordinator", 7.0),
        ("coordinator", "s2", 17.0),
        ("s2", "coordinator", 17.0),
        ("coordinator", "s3", 7.0),
    ]
    assert not named(found, BYPASS)


def test_a_ring_closes_where_the_next_id_arrives(tiny: Tiny) -> None:
    plan, wires = drawn(tiny, "layers", "ring")
    groups = passed(plan, from_ms=50, hop_ms=5)
    found = spans(plan, wires, Seen(groups=groups, next_ms=groups[-1][2] + 5.25))
    assert named(found, LEG) == [("s1", "s2", 5.0), ("s2", "s3", 5.0), ("s3", "s1", 5.25)]
    assert found[0].start_ms == 0.0  # a token begins with its first run
    assert [span.what for span in found if span.is_work][-1] == "layer 3, head"


def test_tokens_are_told_apart_by_their_positions() -> None:
    answer: dict[str, Any] = {
        "visits": [
            [0, 20, 1, 2, 3],
            [1, 20, 4, 5, 6],
            [0, 21, 7, 8, 9],
            [1, 21, 10, 11, 12],
            [0, 22, 13, 14, 15],
        ],
        "embeds": [],
        "heads": [],
    }
    first, second = tokens_seen(answer, 20, 21)
    assert first == Seen(groups=[(1, 2, 3), (4, 5, 6)], next_ms=7)
    assert second == Seen(groups=[(7, 8, 9), (10, 11, 12)], next_ms=13)
    ends = answer | {"embeds": [[20, 0, 1]], "heads": [[20, 7, 9]]}
    assert tokens_seen(ends, 20, 20) == [
        Seen(groups=[(1, 2, 3), (4, 5, 6)], embed=(0, 0, 1), head=(7, 7, 9), next_ms=None)
    ]


def test_of_two_visits_the_early_one_is_work_and_the_other_is_waited_for(tiny: Tiny) -> None:
    plan, wires = drawn(tiny, "thirds", "ring")
    ahead = starting_ahead(plan, [1, 3], Early())
    groups = passed(plan, from_ms=0, hop_ms=6)
    # Group 3 is given its early row 1 ms after attention 0, runs it for 4 ms, and its keys afterwards.
    early = (groups[0][2] + 1, groups[0][2] + 2, groups[0][2] + 6)
    seen = Seen(groups=groups, early={3: early, 9: early})
    visits = [[n, 20, *times] for n, times in enumerate(groups)]
    visits[3:3] = [[3, 20, *early]]
    visits[10:10] = [[9, 20, *early]]
    visits += [[3, 20, 90, 91, 92]]
    answer = {"visits": visits, "embeds": [], "heads": []}
    assert tokens_seen(answer, 20, 20, {3, 9}) == [seen]
    found, plain = (spans(each, wires, one) for each, one in ((ahead, seen), (plan, Seen(groups=groups))))
    assert [span for span in found if span.what == LEG] == [span for span in plain if span.what == LEG]
    assert named(found, "attention 1 ahead") == [(plan.homes[3], "", 4.0)]
    assert named(found, "attention 2") == [(plan.homes[6], "", 2.0)]
    assert not named(found, "attention 1")
    assert not named(found, EARLY)  # one station has all attentions
    assert seen.waits_ms == 12.0
    kinds = {row.kind: row.runs for row in stage_times([found])}
    assert kinds == {
        "embed + attention": 1,
        "attention": 1,
        "attention ahead": 2,
        "gate_up": 4,
        "down": 3,
        "down + head": 1,
    }


def test_an_early_row_between_stations_is_on_the_wire(tiny: Tiny) -> None:
    plan, wires = drawn(tiny, "thirds", "chain", 12)
    groups = passed(plan, from_ms=0, hop_ms=6)
    left_ms = groups[0][2]
    early = {3: (left_ms + 5.5, left_ms + 5.5, left_ms + 7)}
    found = spans(starting_ahead(plan, [1], Early()), wires, Seen(groups=groups, early=early))
    assert named(found, EARLY) == [(plan.homes[0], plan.homes[3], 5.5)]
    assert not next(span for span in found if span.what == EARLY).is_work


def test_times_are_gathered_by_kind_and_by_pair() -> None:
    def work(what: str, ms: float, at: float) -> Span:
        return Span(who="s1", what=what, start_ms=at, end_ms=at + ms)

    def leg(to: str, ms: float) -> Span:
        return Span(who="s1", to=to, what=LEG, start_ms=0, end_ms=ms)

    tokens = [
        [
            work("gate_up 0", 3, 5),
            work("attention 0", 1, 0),
            work("attention 1", 2, 9),
            leg("s2", 6),
            leg("s2", 8),
        ],
        [
            work("attention 0", 3, 0),
            work("attention 1", 4, 9),
            work("gate_up 0", 5, 5),
            leg("s2", 7),
            leg("s2", 7),
        ],
    ]
    assert stage_times(tokens) == [
        StageTimes(kind="attention", runs=2, p50_ms=2.5, best_ms=1, p95_ms=pytest.approx(3.85)),
        StageTimes(kind="gate_up", runs=1, p50_ms=4.0, best_ms=3, p95_ms=pytest.approx(4.9)),
    ]
    (row,) = leg_times(tokens, wires_between(names_of(2), 5.0, jitter_ms=1.0))
    assert row == LegTimes(
        source="s1", target="s2", trips=2, nominal_ms=5.5, p50_ms=7.0, best_ms=6, p95_ms=pytest.approx(7.85)
    )
