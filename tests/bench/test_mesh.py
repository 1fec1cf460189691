"""Rows of `bench mesh`: legs, ratios, and tokens that are really compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from trisplit.bench import mesh as bench
from trisplit.bench import rounds
from trisplit.bench.mesh import MeshRow, mesh, planned
from trisplit.bench.peers import Answer, Order
from trisplit.bench.posts import Post
from trisplit.errors import PlanProblem, UnknownName
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)


def rows_of(path: Path, **how: Any) -> list[MeshRow]:
    given = {"stations": 3, "cuts": ["layers"], "tokens": 4, "dtype": "f32", "threads": 1, "rounds": 2}
    return asyncio.run(mesh(path, **{**given, **how}))


def answer(*token_ids: int, ms: float = 2.0) -> Answer:
    return {"token_ids": list(token_ids), "ms": [ms] * len(token_ids)}


def test_every_cut_beside_one_process(tiny: Tiny) -> None:
    rows = rows_of(tiny("llama"), cuts=["layers", "thirds", "recut"])
    facts = [(r.cut, r.topology, r.stations, r.one_way_ms, r.legs_per_token, r.tokens_equal) for r in rows]
    assert facts == [
        ("layers", "chain", 3, 0.0, 4, True),
        ("thirds", "chain", 3, 0.0, 13, True),
        ("recut", "chain", 3, 0.0, 10, True),
    ]
    assert {(r.dtype, r.threads) for r in rows} == {("f32", 1)}
    assert len({r.one_process_ms for r in rows}) == 1
    assert all(r.ratio == pytest.approx(r.p50_ms / r.one_process_ms) for r in rows)
    assert all(0 < r.best_ms <= r.p50_ms <= r.p95_ms for r in rows)


Answers = list[list[Answer]]
Taken = list[list[str]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], Taken]:
    """Lets the bench hear these answers instead of starting processes; who took turns is noted."""

    def hear(answers: Answers) -> Taken:
        taken: Taken = []

        @asynccontextmanager
        async def started(posts: Sequence[Post]) -> AsyncIterator[Sequence[Post]]:
            yield posts

        async def alternate(turns: Sequence[tuple[Post, Order]], _: int) -> Answers:
            taken.append([post.name for post, _ in turns])
            return answers

        monkeypatch.setattr(bench, "started", started)
        monkeypatch.setattr(bench, "alternate", alternate)
        return taken

    return hear


def test_one_process_takes_its_turn_in_every_round(tiny: Tiny, answering: Callable[[Answers], Taken]) -> None:
    taken = answering([[answer(1, ms=ms)] * 2 for ms in (4.0, 6.0, 8.0)])
    rows = rows_of(tiny("llama"), cuts=["layers", "recut"])
    own = ["one process", "cut layers", "cut recut"]
    assert taken == [[f"{name}, f32, --threads 1" for name in own]]
    assert [(r.p50_ms, r.one_process_ms, r.ratio) for r in rows] == [(6.0, 4.0, 1.5), (8.0, 4.0, 2.0)]


@pytest.mark.parametrize(
    ("one", "many", "equal"),
    [
        ([answer(1, 2, 3), answer(1, 2, 3)], [answer(1, 2, 3), answer(1, 2, 3)], True),
        ([answer(1, 2, 3), answer(1, 2, 3)], [answer(1, 2, 3), answer(1, 2, 4)], False),
        ([answer(1, 2, 3), answer(1, 2, 3)], [answer(0, 2, 3), answer(1, 2, 3)], False),
        ([answer(1, 2, 3)], [answer(1, 2)], False),
    ],
)
def test_one_other_token_in_one_round_is_not_equal(
    one: list[Answer],
    many: list[Answer],
    equal: bool,
    tiny: Tiny,
    answering: Callable[[Answers], Taken],
) -> None:
    answering([one, many])
    assert [row.tokens_equal for row in rows_of(tiny("llama"))] == [equal]


def test_too_few_stations_for_a_cut_are_refused_before_anything_starts(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(bench, "started")
    with pytest.raises(PlanProblem, match="thirds"):
        rows_of(tiny("llama"), stations=2, cuts=["layers", "thirds"])
    with pytest.raises(UnknownName, match="halves"):
        rows_of(tiny("llama"), cuts=["halves"])


def test_spare_stations_are_not_counted(tiny: Tiny) -> None:
    drawn = planned(open_model(tiny("llama")), "layers", 7, dtype="f32", context=32)
    assert (len(drawn.shares), drawn.spares) == (4, ("s5", "s6", "s7"))
