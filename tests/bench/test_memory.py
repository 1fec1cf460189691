"""Rows of `bench memory`: every process, both loads, and a verdict that follows from the numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.bench import memory as bench
from trisplit.bench.memory import memory
from trisplit.bench.weights import weight_bytes
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


def test_every_process_the_first_time_and_the_second(tiny: Tiny) -> None:
    rows = asyncio.run(memory(tiny("qwen2"), stations=2, cut="layers", dtypes=["int8"]))
    one, mesh = rows[:2], rows[2:]
    processes = [
        ("one process", "all"),
        ("s1", "layers 0-1"),
        ("s2", "layers 2-3"),
        ("coordinator", "embed, head"),
    ]
    assert [(row.process, row.stages, row.load) for row in one] == [
        (*processes[0], "first"),
        (*processes[0], "second"),
    ]
    assert [(row.process, row.stages, row.load) for row in mesh] == [
        (*process, load) for load in ("first", "second") for process in processes[1:]
    ]
    weights = weight_bytes(open_model(tiny("qwen2")), "int8")
    assert {row.weight_bytes for row in one} == {weights}
    assert sum(row.weight_bytes for row in mesh) == 2 * weights
    assert all(row.dtype == "int8" and row.rss_bytes > 20_000_000 for row in rows)


def test_what_is_allowed_follows_from_the_weights(tiny: Tiny) -> None:
    model = open_model(tiny("qwen2"))
    facts = {"name": "s1", "stages": "layers 0", "weight_bytes": 1_000_000_000, "rss_bytes": 1_370_000_000}
    row = bench.row_of("int8", "first", facts, model)
    assert (row.allowed_bytes, row.peak_bytes, row.allowed_peak_bytes) == (1_370_000_000, None, None)
    assert row.within
    assert not bench.row_of("int8", "first", facts | {"rss_bytes": 1_370_000_001}, model).within


def test_one_process_is_held_to_its_peak(tiny: Tiny) -> None:
    model = open_model(tiny("qwen2"))
    allowed = round(1.6 * weight_bytes(model, "f32"))
    facts = {"name": "one process", "stages": "all", "weight_bytes": 5, "rss_bytes": 7}
    row = bench.row_of("int4", "second", facts | {"peak_bytes": allowed}, model)
    assert (row.allowed_bytes, row.peak_bytes, row.allowed_peak_bytes) == (None, allowed, allowed)
    assert row.within
    assert not bench.row_of("int4", "second", facts | {"peak_bytes": allowed + 1}, model).within


def test_the_second_load_finds_what_the_first_one_kept(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    found: list[list[str]] = []

    async def loaded(post: bench.Post, _: bench.Order) -> bench.Answer:
        folder = Path(post.environment["TRISPLIT_CACHE"])
        assert folder.parent == tmp_path
        found.append([path.name for path in folder.iterdir()])
        (folder / "converted").touch()
        return {"processes": []}

    monkeypatch.setattr(bench, "loaded", loaded)
    asyncio.run(memory(tiny("llama"), stations=2, cut="layers", dtypes=["f32"]))
    assert found == [[], ["converted"], [], ["converted"]]  # one process, and then stations anew
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("bench-")]
