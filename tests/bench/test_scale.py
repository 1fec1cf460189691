"""At another pace every time is another, and nothing else is."""

from __future__ import annotations

from dataclasses import dataclass

from trisplit.bench.scale import at_scale


@dataclass(frozen=True)
class Leg:
    """A row inside a row."""

    target: str
    p50_ms: float
    trips: int


@dataclass(frozen=True)
class Row:
    """A row of a bench."""

    cut: str
    p50_ms: float
    one_way_ms: float | None
    mbit: float | None
    ratio: float
    legs: tuple[Leg, ...]


def test_times_are_longer_and_rates_lower() -> None:
    row = Row("thirds", 3.0, None, 100.0, 1.5, (Leg("s1", 0.25, 4), Leg("s2", 0.5, 4)))
    assert at_scale(row, 10) == Row("thirds", 30.0, None, 10.0, 1.5, (Leg("s1", 2.5, 4), Leg("s2", 5.0, 4)))
    assert at_scale(row, 1.0) == row
