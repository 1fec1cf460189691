"""Rungs of `bench mesh`: legs, floors, tokens that are really compared, and what was seen of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trisplit.bench import mesh as bench
from trisplit.bench import probe, rounds
from trisplit.bench.levers import Levers
from trisplit.bench.measure import Spread
from trisplit.bench.mesh import Asked, Climbed, mesh
from trisplit.bench.mesh_rows import MeshRow, Rung
from trisplit.bench.meshes import Ground, MeshFacts, Subject
from trisplit.bench.peers import Answer
from trisplit.bench.waiting import Waits
from trisplit.bench.wires import names_of, wires_between
from trisplit.errors import PlanProblem, RequestProblem, UnknownName
from trisplit.mesh.overlap import Ahead, Early
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]

WAITS = Waits(layers=2, attention_ms=2.0, gate_up_ms=1.0, down_ms=3.0, ends_ms=4.0, width=128)
NONE, ALL = Levers(), Levers(batched=True, routed=True)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure(_: object) -> Spread:
        return Spread(p50_ms=0.1, best_ms=0.0, p95_ms=0.2, max_ms=0.3, n=9)

    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)
    monkeypatch.setattr(probe, "measure", measure)  # it has tests of its own


def ground(path: Path | None = None, *, stations: int = 3, one_way_ms: float = 0.0, **how: Any) -> Ground:
    subject = Subject(path=str(path)) if path is not None else Subject(waits=WAITS)
    return Ground(
        subject=subject, wires=wires_between(names_of(stations), one_way_ms), dtype="f32", threads=1, **how
    )


def climbed(here: Ground, **how: Any) -> Climbed:
    given = {
        "ground": here,
        "cuts": ["layers"],
        "topologies": ["chain"],
        "levers": [NONE],
        "tokens": 5,
        "first": 2,
        "last": 5,
        "rounds": 1,
    }
    return asyncio.run(mesh(Asked(**{**given, **how})))


def test_a_ladder_on_slow_links(tiny: Tiny) -> None:
    here = ground(tiny("llama"), one_way_ms=1.0)
    found = climbed(here, cuts=["thirds"], topologies=["star", "chain", "ring"], levers=[NONE, ALL])
    facts = [(r.cut, r.topology, r.levers, r.stations, r.one_way_ms, r.legs_per_token) for r in found.rows]
    assert facts == [
        ("thirds", topology, levers, 3, 1.0, legs)
        for topology, legs in (("star", 24), ("chain", 13), ("ring", 12))
        for levers in ("none", "batched+routed")
    ]
    assert all(row.tokens_equal for row in found.rows)
    for row in found.rows:
        assert row.floor_ms == pytest.approx(row.legs_per_token * 1.0 + row.one_process_ms)
        assert row.ratio_to_floor == pytest.approx(row.p50_ms / row.floor_ms)
        assert row.predicted_ms > row.legs_per_token * 1.0
        assert row.p50_ms >= row.best_ms >= row.legs_per_token * 1.0
        assert sum(leg.trips for leg in row.legs) == row.legs_per_token
        assert all(leg.best_ms >= leg.nominal_ms == 1.0 for leg in row.legs if row.topology != "star")
        assert sum(stage.runs for stage in row.stages) == 12 + (0 if row.topology == "ring" else 2)
    assert len(found.gains) == 5
    assert [row.links for row in found.relays] == ["probe", "thirds, star", "thirds, chain", "thirds, ring"]
    assert all(row.best_ms >= 0 for row in found.relays)
    assert found.best.p50_ms == min(row.p50_ms for row in found.rows)
    assert found.token


def test_cuts_without_relays(tiny: Tiny) -> None:
    found = climbed(ground(tiny("llama")), cuts=["layers", "recut"], topologies=["ring", "chain"], first=4)
    facts = [(r.cut, r.topology, r.one_way_ms, r.legs_per_token, r.tokens_equal) for r in found.rows]
    assert facts == [
        ("layers", "ring", 0.0, 3, True),
        ("layers", "chain", 0.0, 4, True),
        ("recut", "ring", 0.0, 8, True),
        ("recut", "chain", 0.0, 10, True),
    ]
    assert len({row.one_process_ms for row in found.rows}) == 1
    assert all(row.floor_ms == row.one_process_ms for row in found.rows)
    assert not found.relays


def test_layers_that_start_ahead_are_a_rung_where_they_can(tiny: Tiny) -> None:
    here, early = ground(tiny("llama"), one_way_ms=1.0), Levers(routed=True, overlap=True)
    cuts, ahead = ["layers", "thirds"], Ahead((1, 2, 3), Early())
    found = climbed(here, cuts=cuts, topologies=["ring"], levers=[NONE, early], ahead=ahead, tokens=12)
    facts = [(r.cut, r.topology, r.levers) for r in found.rows]
    assert facts == [
        ("layers", "ring", "none"),
        ("thirds", "ring", "none"),
        ("thirds", "ring", "routed+overlap"),
    ]
    (no,) = found.left_out
    assert (no.cut, no.topology, no.levers) == ("layers", "ring", "routed+overlap")
    assert "in the cut layers no attention stands alone" in no.why
    _, plain, row = found.rows
    assert (plain.tokens_equal, row.tokens_equal) == (True, False)  # a finding, and no failure
    assert (row.legs_per_token, row.floor_ms) == (plain.legs_per_token, plain.floor_ms)
    assert row.predicted_ms < plain.predicted_ms
    assert sum(leg.trips for leg in row.legs) == row.legs_per_token
    assert {stage.kind: stage.runs for stage in row.stages}["attention ahead"] == 3
    assert [gain.levers for gain in found.gains] == ["none", "routed+overlap"]


def test_what_waits_starts_ahead_too_and_counts_the_same() -> None:
    ahead, overlap = Ahead((1,), Early()), Levers(overlap=True)
    here = ground(one_way_ms=1.0)
    found = climbed(here, cuts=["thirds"], levers=[NONE, overlap], ahead=ahead, tokens=3, last=3)
    assert [row.tokens_equal for row in found.rows] == [True, True]
    plain, row = found.rows
    assert row.predicted_ms == plain.predicted_ms - WAITS.attention_ms


def test_where_nothing_can_start_ahead_there_is_nothing_to_measure(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(bench, "started")
    overlap = [Levers(overlap=True)]
    with pytest.raises(RequestProblem, match="no layer may start ahead"):
        climbed(ground(tiny("llama")), cuts=["thirds"], levers=overlap)
    with pytest.raises(RequestProblem, match="in the cut layers no attention stands alone"):
        climbed(ground(tiny("llama")), levers=overlap, ahead=Ahead((1,), Early()))
    with pytest.raises(RequestProblem, match="parallel overlap exactly already"):
        climbed(ground(tiny("neox")), cuts=["thirds"], levers=overlap, ahead=Ahead((1,), Early()))


def test_a_slow_station_takes_as_many_times_as_long_and_changes_nothing(tiny: Tiny) -> None:
    here = ground(tiny("llama"), one_way_ms=1.0, slow={"s2": 3})
    (row,) = climbed(here, cuts=["thirds"]).rows
    assert (row.tokens_equal, row.stations, row.legs_per_token) == (True, 3, 13)


def test_stages_that_wait_are_a_ladder_too() -> None:
    found = climbed(ground(one_way_ms=1.0), cuts=["recut"], topologies=["star", "ring"], tokens=3, last=3)
    assert [row.tokens_equal for row in found.rows] == [True, True]
    assert [row.floor_ms for row in found.rows] == [10 * 1.0 + 16.0, 4 * 1.0 + 16.0]
    for row in found.rows:
        assert row.predicted_ms == row.floor_ms
        assert row.best_ms >= row.floor_ms
        least_ms = {"attention": 2.0, "gate_up": 1.0, "down + attention": 5.0, "down": 3.0, "head": 4.0}
        least_ms |= {"embed": 0.0, "embed + attention": 2.0, "down + head": 7.0}
        assert all(stage.best_ms >= least_ms[stage.kind] for stage in row.stages)


# --- without processes ----------------------------------------------------------------------------


def said(*token_ids: int, ms: float = 2.0) -> Answer:
    """What a mesh of one layer answers; fed at positions 9 and 10."""
    visits = [[0, position, 0.0, 1.0, 2.0] for position in (9, 10)]
    return {"token_ids": list(token_ids), "ms": [ms] * 2, "visits": visits, "embeds": [], "heads": []}


def row_of(tiny: Tiny, answers: list[Answer], ones: list[Answer]) -> MeshRow:
    model = open_model(tiny("llama"))
    here = ground(tiny("llama"), stations=1, one_way_ms=7.0)
    facts = MeshFacts(ground=here, cut="layers", topology="chain", context=32)
    plan = facts.plan(model)
    rung = Rung(facts=facts, plan=plan, config=model.config, levers=NONE, answers=answers, first=9, last=10)
    return rung.row(ones, {"attention": 0.5, "gate_up": 0.25, "down": 0.25})


def test_the_floor_goes_by_the_decoder_and_not_by_stations(tiny: Tiny) -> None:
    row = row_of(tiny, [said(1, 2, 3, ms=30.0)], [said(1, 2, 3, ms=4.0)])
    assert (row.legs_per_token, row.one_process_ms, row.floor_ms) == (2, 4.0, 18.0)
    assert (row.p50_ms, row.ratio_to_floor) == (30.0, pytest.approx(30 / 18))
    assert row.predicted_ms == 2 * 7.0 + 4 * 1.0
    assert (row.waits_ms, row.stages_beyond_ms) == (1.0, 1.0 - 4.0)


@pytest.mark.parametrize(
    ("ones", "many", "equal"),
    [
        ([said(1, 2, 3), said(1, 2, 3)], [said(1, 2, 3), said(1, 2, 3)], True),
        ([said(1, 2, 3), said(1, 2, 3)], [said(1, 2, 3), said(1, 2, 4)], False),
        ([said(1, 2, 3), said(1, 2, 3)], [said(0, 2, 3), said(1, 2, 3)], False),
        ([said(1, 2, 3)], [said(1, 2)], False),
    ],
)
def test_one_other_token_in_one_round_is_not_equal(
    ones: list[Answer], many: list[Answer], equal: bool, tiny: Tiny
) -> None:
    assert row_of(tiny, many, ones).tokens_equal == equal


def test_too_few_stations_for_a_cut_are_refused_before_anything_starts(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(bench, "started")
    with pytest.raises(PlanProblem, match="thirds"):
        climbed(ground(tiny("llama"), stations=2), cuts=["layers", "thirds"])
    with pytest.raises(UnknownName, match="halves"):
        climbed(ground(tiny("llama")), cuts=["halves"])
    with pytest.raises(UnknownName, match="web"):
        climbed(ground(tiny("llama")), topologies=["web"])
    with pytest.raises(UnknownName, match="s4"):
        ground(tiny("llama"), slow={"s4": 2})


def test_spare_stations_are_not_counted(tiny: Tiny) -> None:
    here = ground(tiny("llama"), stations=7)
    facts = MeshFacts(ground=here, cut="layers", topology="chain", context=32)
    drawn = facts.plan(open_model(tiny("llama")))
    assert (len(drawn.shares), drawn.spares) == (4, ("s5", "s6", "s7"))
