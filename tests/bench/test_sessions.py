"""Many sessions: the rate of all together, and tokens that are each session's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.bench import rounds
from trisplit.bench.levers import Levers
from trisplit.bench.meshes import Ground, Subject
from trisplit.bench.sessions import between, rate, sessions
from trisplit.bench.waiting import Waits
from trisplit.bench.wires import names_of, wires_between
from trisplit.mesh.overlap import Ahead, Early


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)


def test_the_rate_is_of_all_from_the_first_to_the_last() -> None:
    came_ms = [[0.0, 10.0, 20.0, 30.0, 40.0], [15.0, 25.0, 35.0, 45.0, 55.0]]
    assert rate({"came_ms": came_ms}) == pytest.approx(9 / 55e-3)
    assert rate({"came_ms": came_ms[:1]}) == pytest.approx(100.0)
    assert between({"came_ms": came_ms}) == [10.0] * 8


def test_eight_at_once_are_each_their_own(tiny: Callable[[str], Path]) -> None:
    here = Ground(
        subject=Subject(path=str(tiny("llama"))),
        wires=wires_between(names_of(2), 1.0),
        dtype="f32",
        threads=1,
    )
    levers = [Levers(), Levers(batched=True)]
    rows = asyncio.run(sessions(here, "layers", "ring", sessions=8, levers=levers, tokens=6, rounds=1))
    facts = [(r.levers, r.sessions, r.legs_per_token, r.tokens_equal) for r in rows]
    assert facts == [
        ("none", 1, 2, True),
        ("none", 8, 2, True),
        ("batched", 1, 2, True),
        ("batched", 8, 2, True),
    ]
    assert [row.gain for row in rows[::2]] == [1.0, 1.0]
    assert all(
        row.gain == pytest.approx(row.tok_per_s / one.tok_per_s) for one, row in zip(rows[::2], rows[1::2])
    )


def test_stations_that_wait_serve_many_at_once() -> None:
    waits = Waits(layers=2, attention_ms=0.5, gate_up_ms=0.5, down_ms=0.5, ends_ms=1.0, width=64)
    here = Ground(subject=Subject(waits=waits), wires=wires_between(names_of(2), 2.0), dtype="f32", threads=1)
    one, three = asyncio.run(
        sessions(here, "layers", "chain", sessions=3, levers=[Levers()], tokens=6, rounds=1)
    )
    assert one.tokens_equal
    assert three.tokens_equal
    assert one.p50_ms >= 3 * 2.0 + 4.0


def test_many_may_start_ahead_at_once() -> None:
    waits = Waits(layers=2, attention_ms=0.5, gate_up_ms=0.5, down_ms=0.5, ends_ms=1.0, width=64)
    here = Ground(subject=Subject(waits=waits), wires=wires_between(names_of(3), 0.0), dtype="f32", threads=1)
    levers, ahead = [Levers(overlap=True)], Ahead((1,), Early())
    rows = asyncio.run(
        sessions(here, "thirds", "ring", sessions=3, levers=levers, tokens=6, rounds=1, ahead=ahead)
    )
    assert [(row.levers, row.sessions, row.tokens_equal) for row in rows] == [
        ("overlap", 1, True),
        ("overlap", 3, True),
    ]
