"""What a ledger would come to on many machines for a year; an extrapolation, and said to be one. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trisplit.cache.ledger import Rates, Sum
from trisplit.table import Table

DAYS = 365
BOLTZMANN_J_PER_K = 1.380649e-23  # exact, SI
ROOM_K = 300.0

# Landauer 1961: what erasing one bit costs at least, whatever it is erased with.
LANDAUER_J_PER_BIT = BOLTZMANN_J_PER_K * ROOM_K * math.log(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """A year of a fleet: `demand` is one without a cache, `spent` one with it, `skipped` what is between."""

    what: str
    cpu_hours: float
    kwh: float
    money: float
    times_landauer: float

    @property
    def cells(self) -> tuple[str, float, float, float, float]:
        """As the table shows it."""
        return self.what, self.cpu_hours, self.kwh, self.money, self.times_landauer


def year(row: Sum, rates: Rates, *, ops_per_day: float, nodes: int) -> list[Year]:
    """A year of `nodes` machines with `ops_per_day` requests each, that cost what those of `row` did.

    `times_landauer` is how far the energy is above one erased bit a request. Nothing for a row of nothing.
    """
    if not row.requests:
        return []
    requests = ops_per_day * nodes * DAYS
    ways = {"demand": row.demand_cpu_us, "spent": row.spent_cpu_us, "skipped": row.skipped_cpu_us}
    years = []
    for what, cpu_us in ways.items():
        cpu_s = cpu_us / 1e6 / row.requests * requests
        joules = cpu_s * rates.watts * rates.pue
        years.append(
            Year(
                what=what,
                cpu_hours=cpu_s / 3600,
                kwh=joules / 3.6e6,
                money=joules / 3.6e6 * rates.price_per_kwh,
                times_landauer=joules / requests / LANDAUER_J_PER_BIT,
            )
        )
    return years


def table(years: list[Year]) -> Table:
    """The same as a table."""
    columns = ("a year of the fleet", "cpu_hours", "kwh", "money", "times_landauer")
    return Table(columns, tuple(one.cells for one in years))
