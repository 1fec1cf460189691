"""What was computed and what was not: one line per run or hit, only ever appended, and sums over them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from trisplit.table import Table

FILE = "ledger.jsonl"
ALL = "all"

# The last three are no requests: runs ahead of any, and hits that were run again in the background.
Outcome = Literal["hit", "miss", "impure", "charge", "verified", "mismatch"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Of a hit, `spent` is what it took, and `skipped` what the run had taken more than that.

    So spent and skipped together are what there would have been to compute without a cache. What was run for
    the cache alone (`charge`, `verified`, `mismatch`) is spent, and taken from what was skipped. Times are
    whole microseconds, so that sums are exact; `at_s` is seconds since 1970.
    """

    at_s: int
    surface: str
    outcome: Outcome
    key: str = ""
    spent_cpu_us: int = 0
    spent_wall_us: int = 0
    skipped_cpu_us: int = 0
    skipped_wall_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What turns seconds into joules and money; every figure is the user's assumption, and is printed."""

    watts: float = 15.0
    price_per_kwh: float = 0.27
    pue: float = 1.0

    def joules(self, cpu_us: int) -> float:
        """Energy of that much processor time at the wall of the building."""
        return cpu_us / 1e6 * self.watts * self.pue

    def money(self, cpu_us: int) -> float:
        """Its price."""
        return self.joules(cpu_us) / 3.6e6 * self.price_per_kwh


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """One surface, or all. `demand` is what would have been computed without a cache.

    `percent_c` counts a hit as 100 and everything that ran, misses and impure runs alike, as 0.
    """

    surface: str
    hits: int = 0
    misses: int = 0
    impure: int = 0
    charges: int = 0
    verified: int = 0
    mismatches: int = 0
    spent_cpu_us: int = 0
    spent_wall_us: int = 0
    skipped_cpu_us: int = 0
    skipped_wall_us: int = 0

    @property
    def requests(self) -> int:
        """Runs there would have been."""
        return self.hits + self.misses + self.impure

    @property
    def percent_c(self) -> float:
        """Requests that were answered without computing, in percent."""
        return 100 * self.hits / self.requests if self.requests else 0.0

    @property
    def demand_cpu_us(self) -> int:
        """Spent and skipped together."""
        return self.spent_cpu_us + self.skipped_cpu_us


def append(path: Path, record: Record) -> None:
    """Adds a line; a ledger that cannot be written is no reason to fail the work it counts."""
    line = msgspec.json.encode(record) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, line)  # in one piece, so that writers do not come between each other's bytes
        finally:
            os.close(fd)


def read(path: Path, *, since_s: float = 0.0) -> tuple[list[Record], int]:
    """The records from `since_s` on, and how many lines could not be read: torn by a full disk or a crash."""
    records, torn = list[Record](), 0
    for line in _lines(path):
        try:
            record = msgspec.json.decode(line, type=Record)
        except msgspec.DecodeError:
            torn += 1
            continue
        if record.at_s >= since_s:
            records.append(record)
    return records, torn


def sums(records: Iterable[Record]) -> list[Sum]:
    """One sum per surface in the order of their names, then that of all."""
    by_surface: dict[str, list[Record]] = {}
    for record in records:
        by_surface.setdefault(record.surface, []).append(record)
    everything = [record for some in by_surface.values() for record in some]
    return [_sum(name, by_surface[name]) for name in sorted(by_surface)] + [_sum(ALL, everything)]


def table(rows: Iterable[Sum], rates: Rates) -> Table:
    """Sums as a table: seconds of processor time, joules, money."""
    columns = (
        *("surface", "requests", "hits", "misses", "impure", "percent_c"),
        *("demand_cpu_s", "spent_cpu_s", "skipped_cpu_s", "skipped_joules", "skipped_money"),
    )
    return Table(
        columns,
        tuple(
            (
                *(row.surface, row.requests, row.hits, row.misses, row.impure, row.percent_c),
                *(row.demand_cpu_us / 1e6, row.spent_cpu_us / 1e6, row.skipped_cpu_us / 1e6),
                *(rates.joules(row.skipped_cpu_us), rates.money(row.skipped_cpu_us)),
            )
            for row in rows
        ),
    )


def now_s() -> int:
    """Seconds since 1970, for a record."""
    return int(time.time())


def _sum(surface: str, records: list[Record]) -> Sum:
    outcomes = [record.outcome for record in records]
    return Sum(
        surface=surface,
        hits=outcomes.count("hit"),
        misses=outcomes.count("miss"),
        impure=outcomes.count("impure"),
        charges=outcomes.count("charge"),
        verified=outcomes.count("verified"),
        mismatches=outcomes.count("mismatch"),
        spent_cpu_us=sum(record.spent_cpu_us for record in records),
        spent_wall_us=sum(record.spent_wall_us for record in records),
        skipped_cpu_us=sum(record.skipped_cpu_us for record in records),
        skipped_wall_us=sum(record.skipped_wall_us for record in records),
    )


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError:
        return
