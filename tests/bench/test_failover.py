"""A lost station costs a gap and not one token, whatever it was lost by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.bench.failover import FailoverRow, failover


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_each_station_is_lost_at_each_time(how: str, tiny: Callable[[str], Path]) -> None:
    rows: list[FailoverRow] = asyncio.run(
        failover(
            tiny("llama"),
            stations=2,
            cut="layers",
            topology="ring",
            tokens=5,
            dtype="f32",
            threads=1,
            hows=[how],
        )
    )
    assert [(row.killed, row.at_token) for row in rows] == [
        ("s1", 1),
        ("s1", 2),
        ("s1", 4),
        ("s2", 1),
        ("s2", 2),
        ("s2", 4),
    ]
    assert [row.stages for row in rows[::3]] == ["embed, layers 0-1", "layers 2-3, head"]
    for row in rows:
        assert row.tokens_equal
        assert (row.how, row.topology) == (how, "ring")
        assert row.detect_ms > 0
        assert row.load_ms > 0
