"""Gains: each choice alone beside all of them together, and beside what floors allow."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trisplit.bench.gains import gains


@dataclass(frozen=True)
class Rung:
    """As much of a rung as gains need."""

    cut: str
    topology: str
    levers: str
    p50_ms: float
    floor_ms: float


LADDER = [
    Rung("thirds", "star", "none", 120.0, 100.0),
    Rung("thirds", "star", "batched", 100.0, 100.0),
    Rung("thirds", "ring", "none", 60.0, 50.0),
    Rung("recut", "star", "none", 80.0, 70.0),
    Rung("recut", "ring", "none", 30.0, 28.0),
    Rung("recut", "ring", "batched", 24.0, 25.0),
]


def test_singles_multiply_beside_what_they_give_together() -> None:
    found = {(g.cut, g.topology, g.levers): g for g in gains(LADDER)}
    assert len(found) == 5
    both = found["recut", "ring", "none"]
    assert (both.by_cut, both.by_topology, both.by_levers) == (1.5, 2.0, 1.0)
    assert (both.product, both.together) == (3.0, 4.0)
    assert both.of_floors == pytest.approx(100 / 28)
    assert both.beside_floors == pytest.approx(4.0 / (100 / 28))
    everything = found["recut", "ring", "batched"]
    assert (everything.by_levers, everything.product, everything.together) == (1.2, pytest.approx(3.6), 5.0)
    assert found["thirds", "star", "batched"].product == found["thirds", "star", "batched"].together == 1.2


def test_a_single_gain_that_was_not_measured_has_no_product() -> None:
    (found,) = gains([LADDER[0], LADDER[4]])
    assert (found.by_cut, found.by_topology, found.by_levers, found.product) == (None, None, 1.0, None)
    assert found.together == 4.0
