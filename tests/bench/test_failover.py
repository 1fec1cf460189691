"""A lost station costs a gap and not one token, whatever it was lost by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.bench.failover import FailoverRow, failover


@pytest.mark.parametrize(
    ("how", "tokens", "times"),
    [pytest.param("kill", 5, (1, 2, 4), marks=pytest.mark.slow), ("cut", 3, (1, 2))],
)
def test_each_station_is_lost_at_each_time(
    how: str, tokens: int, times: tuple[int, ...], tiny: Callable[[str], Path]
) -> None:
    rows: list[FailoverRow] = asyncio.run(
        failover(
            tiny("llama"),
            stations=2,
            cut="layers",
            topology="ring",
            tokens=tokens,
            dtype="f32",
            threads=1,
            hows=[how],
        )
    )
    assert [(row.killed, row.at_token) for row in rows] == [
        (name, at) for name in ("s1", "s2") for at in times
    ]
    assert [row.stages for row in rows[:: len(times)]] == ["embed, layers 0-1", "layers 2-3, head"]
    for row in rows:
        assert row.tokens_equal
        assert (row.how, row.topology) == (how, "ring")
        assert row.detect_ms > 0
        assert row.load_ms > 0


def test_a_ring_of_one_is_lost(tiny: Callable[[str], Path]) -> None:
    asked = {"stations": 1, "cut": "layers", "topology": "ring", "tokens": 2, "dtype": "f32", "threads": 1}
    (row,) = asyncio.run(failover(tiny("llama"), **asked, hows=["cut"]))  # type: ignore[arg-type]
    assert (row.killed, row.at_token, row.tokens_equal) == ("s1", 1, True)
