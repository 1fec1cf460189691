"""The ledger: sums that hold to the microsecond, and lines that were torn."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
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


def test_it_stays_short_and_loses_no_total(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    for _ in range(300):
        append(
            path, Record(at_s=ledger.now_s(), surface="script", outcome="hit", skipped_cpu_us=7), most_bytes=0
        )
    assert ledger.compact(path)
    assert path.stat().st_size < 500
    assert path.stat().st_mode & 0o777 == 0o600
    append(path, Record(at_s=ledger.now_s(), surface="script", outcome="miss"))
    *_, everything = sums(read(path)[0])
    assert (everything.hits, everything.misses, everything.skipped_cpu_us) == (300, 1, 2100)
    assert [one.name for one in tmp_path.iterdir()] == ["ledger"]
    assert sums(read(path, since_s=ledger.now_s() + 10)[0])[0].requests == 0


def test_a_large_file_is_made_short_by_who_appends(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    line = ledger.encode(Record(at_s=ledger.now_s(), surface="script", outcome="hit"))
    before = ledger.PIECE_BYTES // len(line) + 1
    path.write_bytes(line * before)
    hits = before
    while path.stat().st_size > 1000 and hits < 3 * before:
        append(path, Record(at_s=ledger.now_s(), surface="script", outcome="hit"), most_bytes=1000)
        hits += 1
    assert path.stat().st_size <= 1000
    assert sums(read(path)[0])[-1].hits == hits


def _appending(path: Path, done: str, n: int) -> None:
    with open(done, "a") as told:
        for _ in range(n):
            append(path, Record(at_s=ledger.now_s(), surface="script", outcome="hit"))
            told.write(".")
            told.flush()


def _compacting(path: Path) -> None:
    while True:
        with contextlib.suppress(OSError):
            ledger.compact(path)


def test_no_line_is_lost_while_it_is_made_short_and_who_does_it_is_killed(tmp_path: Path) -> None:
    path, told = tmp_path / "ledger", [str(tmp_path / f"told{n}") for n in range(3)]
    path.touch()
    context, draw = multiprocessing.get_context("forkserver"), random.Random(6)
    writers = [context.Process(target=_appending, args=(path, name, 500)) for name in told]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        compactor = context.Process(target=_compacting, args=(path,))
        compactor.start()
        time.sleep(draw.uniform(0.01, 0.05))
        os.kill(compactor.pid or 0, signal.SIGKILL)
        compactor.join()
    for writer in writers:
        writer.join()
    assert [len(Path(name).read_text()) for name in told] == [500] * 3
    records, torn = read(path)
    assert (sums(records)[-1].hits, torn) == (1500, 0)


def test_who_cannot_have_the_lock_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_TRIES", 2)
    path = tmp_path / "ledger"
    append(path, Record(at_s=1, surface="script", outcome="hit"))
    with path.open("rb") as file:
        ledger.fcntl.flock(file.fileno(), ledger.fcntl.LOCK_EX)  # as one that was stopped would hold it
        append(path, Record(at_s=1, surface="script", outcome="hit"))
        assert not ledger.compact(path)
    assert sums(read(path)[0])[-1].hits == 2
    assert ledger.compact(path)
