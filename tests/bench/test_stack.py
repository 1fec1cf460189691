"""Rows of `bench stack`: steps one on top of the other, alone, and words that are no step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.bench import rounds
from trisplit.bench.measure import Spread
from trisplit.bench.stack import Recipe, _rows, most_threads, stack
from trisplit.bench.stand_ins import narrower
from trisplit.bench.weights import bytes_per_token
from trisplit.errors import RequestProblem
from trisplit.models.model import Model, open_model

Tiny = Callable[[str], Path]


def test_a_row_for_every_step(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)
    model = open_model(tiny("llama"))
    rows = asyncio.run(stack(tiny("llama"), ["sliced50", "int8"], tokens=3, rounds=1))
    narrow = Model(model.checkpoint, narrower(model.config, 50))
    whole, less = bytes_per_token(model, "f32"), bytes_per_token(narrow, "f32")
    least = bytes_per_token(narrow, "int8")
    told = [(row.step, row.bytes_per_token) for row in rows]
    assert told == [("base", whole), ("sliced50", less), ("int8", least)]
    assert rows[0].gain == rows[0].alone == rows[0].product == rows[0].together == 1.0
    assert rows[2].ratio_by_bytes == whole / least
    assert all(0 < row.best_ms <= row.ms_per_token <= row.p95_ms for row in rows)


def spread(ms: float) -> Spread:
    return Spread.of([ms])


def test_single_gains_their_product_and_the_whole() -> None:
    base, half, quick = Recipe(), Recipe(keep=50), Recipe(dtype="int8")
    both = half.then("int8")
    times = {base: spread(24.0), half: spread(16.0), quick: spread(8.0), both: spread(6.0)}
    n_bytes = {base: 100, half: 50, quick: 25, both: 20}
    rows = [*_rows(["base", "sliced50", "int8"], [base, half, both], [base, half, quick], times, n_bytes)]
    assert [row.gain for row in rows] == [1.0, 1.5, pytest.approx(16 / 6)]
    assert [row.alone for row in rows] == [1.0, 1.5, 3.0]
    assert [row.product for row in rows] == [1.0, 1.5, 4.5]
    assert [row.together for row in rows] == [1.0, 1.5, 4.0]
    assert [row.ratio_by_bytes for row in rows] == [1.0, 2.0, 5.0]


def test_steps_in_words() -> None:
    recipe = Recipe().then("fused").then("sliced40").then("int4").then("threads2")
    assert recipe == Recipe(gates="fused", keep=40, dtype="int4", threads=2)
    assert most_threads(["threads3", "fused"]) == 3


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        (["fusd"], "'fusd' is no step"),
        (["sliced100"], "'sliced100' is no step"),
        (["threads0"], "'threads0' is no step"),
        (["f32"], "'f32' is no step"),
        (["fused", "int8", "fused"], "fused changes nothing"),
        (["threads1"], "threads1 changes nothing"),
    ],
)
def test_words_that_are_no_step(steps: list[str], what: str) -> None:
    with pytest.raises(RequestProblem, match=what):
        most_threads(steps)
