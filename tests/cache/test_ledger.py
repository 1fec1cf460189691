"""The ledger: sums that hold to the microsecond, and lines that were torn."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.cache import ledger
from trisplit.cache.ledger import Rates, Record, append, read, sums, table

RECORDS = st.lists(
    st.builds(
        Record,
        at_s=st.integers(0, 2**40),
        surface=st.sampled_from(("script", "generate", "memo")),
        outcome=st.sampled_from(("hit", "miss", "impure")),
        spent_cpu_us=st.integers(0, 2**50),
        skipped_cpu_us=st.integers(-(2**20), 2**50),
    )
)


@given(RECORDS)
def test_demand_is_spent_and_skipped_to_the_microsecond(records: list[Record]) -> None:
    *surfaces, everything = sums(records)
    assert everything.surface == ledger.ALL
    assert everything.requests == len(records) == sum(s.requests for s in surfaces)
    assert everything.demand_cpu_us == sum(r.spent_cpu_us + r.skipped_cpu_us for r in records)
    assert everything.demand_cpu_us == sum(s.demand_cpu_us for s in surfaces)
    assert 0 <= everything.percent_c <= 100


def test_a_miss_counts_nothing() -> None:
    outcomes = ("hit", "hit", "miss", "impure")
    (script, everything) = sums(Record(at_s=1, surface="script", outcome=o) for o in outcomes)
    assert script.percent_c == everything.percent_c == 50
    assert sums([])[0].percent_c == 0


def test_lines_come_back_and_torn_ones_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    records = [Record(at_s=n, surface="script", outcome="hit", skipped_cpu_us=n) for n in range(5)]
    for record in records[:3]:
        append(path, record)
    with path.open("ab") as file:
        file.write(b'{"at_s": 3, "surf\n')
    for record in records[3:]:
        append(path, record)
    assert read(path) == (records, 1)
    assert read(path, since_s=3) == (records[3:], 1)
    assert read(tmp_path / "none") == ([], 0)


def test_a_ledger_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    append(tmp_path / "no" / "folder", Record(at_s=1, surface="script", outcome="hit"))


def test_joules_and_money_follow_from_what_is_assumed() -> None:
    rates = Rates(watts=100, price_per_kwh=0.27, pue=1.2)
    assert rates.joules(1_000_000) == pytest.approx(120)
    assert rates.money(3_600_000_000) == pytest.approx(0.27 * 0.12)
    shown = str(table(sums([Record(at_s=1, surface="memo", outcome="hit", skipped_cpu_us=1_000_000)]), rates))
    assert "120" in shown
