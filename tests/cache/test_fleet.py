"""A year of a fleet: averages times requests, and what is between is what is skipped."""

from __future__ import annotations

import pytest

from trisplit.cache.fleet import LANDAUER_J_PER_BIT, table, year
from trisplit.cache.ledger import Rates, Sum

ROW = Sum(surface="all", hits=3, misses=1, spent_cpu_us=100_000, skipped_cpu_us=300_000)
RATES = Rates(watts=100, price_per_kwh=0.25, pue=1.2)


def test_a_year_is_averages_times_requests() -> None:
    demand, spent, skipped = year(ROW, RATES, ops_per_day=1000, nodes=10)
    cpu_s = 0.1 * 1000 * 10 * 365  # 0.4 s in 4 requests
    assert demand.cpu_hours == pytest.approx(cpu_s / 3600)
    assert demand.kwh == pytest.approx(cpu_s * 120 / 3.6e6)
    assert demand.money == pytest.approx(demand.kwh * 0.25)
    for name in ("cpu_hours", "kwh", "money"):
        assert getattr(spent, name) + getattr(skipped, name) == pytest.approx(getattr(demand, name))
    assert demand.times_landauer == pytest.approx(0.1 * 120 / 2.871e-21, rel=1e-3)


def test_the_floor_is_that_of_a_bit_at_room_temperature() -> None:
    assert pytest.approx(2.871e-21, rel=1e-3) == LANDAUER_J_PER_BIT


def test_nothing_comes_of_nothing() -> None:
    assert year(Sum(surface="all"), RATES, ops_per_day=1e9, nodes=1000) == []


def test_it_can_be_shown() -> None:
    assert "skipped" in str(table(year(ROW, RATES, ops_per_day=1e9, nodes=1000)))
