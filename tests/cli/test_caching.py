"""`trisplit cache …` and `trisplit ledger`: for people and for machines, and words that make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from trisplit.cache import Key, ledger, open_store
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.recall import answer

ONE, OTHER = Key("ab" * 32), Key("ac" * 32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in which a result was made once and used twice, and an impure run remembered."""
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    plain = Entry(
        frames=(Frame(1, b"hello\n"),), surface="script", label="hello.js", cpu_us=40_000, wall_us=50_000
    )
    with open_store() as store:
        for _ in range(3):
            answer(store, ONE, lambda: plain)
        answer(store, OTHER, lambda: Entry(surface="script", label="now.js", impure="reads the clock"))
        return store.folder


def test_stats() -> None:
    facts = facts_of("cache", "stats")
    assert (facts["entries"], facts["hits"], facts["misses"], facts["impure"]) == (2, 2, 1, 1)
    assert facts["percent_c"] == 50
    assert "percent_c" in run("cache", "stats").stdout


def test_list_and_show(folder: Path) -> None:
    rows = facts_of("cache", "list")["rows"]
    assert [(r["label"], r["uses"]) for r in rows] == [("hello.js", 2), ("now.js", 0)]
    assert rows[0]["cpu_ms"] == 40
    assert run("cache", "list").stdout.splitlines()[2].startswith(ONE[:12])
    facts = facts_of("cache", "show", "ab")
    assert (facts["key"], facts["exit_code"]) == (ONE, 0)
    assert facts["frames"] == [{"fd": 1, "text": "hello\n"}]
    assert run("cache", "show", "ab").stdout.endswith("\nhello\n")
    assert facts_of("cache", "show", OTHER)["impure"] == "reads the clock"
    (folder / OTHER).write_bytes(b"?")
    assert "damaged" in problem_of("cache", "show", OTHER).what


def test_verify_prune_clear(folder: Path) -> None:
    assert facts_of("cache", "verify") == {"whole": 2, "damaged": [], "swept": 0}
    (folder / OTHER).write_bytes(b"?")
    assert facts_of("cache", "verify") == {"whole": 1, "damaged": [OTHER], "swept": 0}
    assert facts_of("cache", "prune", "--max-size", "1MB")["removed"] == []
    assert facts_of("cache", "prune", "--max-size", "0") == {"removed": [ONE], "entries": 0, "n_bytes": 0}
    assert facts_of("cache", "clear") == {"removed": 0}
    assert facts_of("cache", "stats")["hits"] == 2
    assert "0 entries are whole" in run("cache", "verify").stdout
    assert "removed" in run("cache", "prune", "--max-size", "1.5 GB").stdout
    assert "removed" in run("cache", "clear").stdout


def test_the_ledger_holds_to_the_microsecond(folder: Path) -> None:
    facts = facts_of("ledger", "--watts", "100", "--price", "0.3", "--pue", "1.5")
    script, everything = facts["rows"]
    assert script == {**everything, "surface": "script"}
    records, _ = ledger.read(folder / ledger.FILE)
    spent = sum(record.spent_cpu_us for record in records)
    assert script["spent_cpu_us"] == spent
    hits = sum(record.spent_cpu_us for record in records if record.outcome == "hit")
    assert script["skipped_cpu_us"] == 2 * 40_000 - hits
    assert script["demand_cpu_us"] == script["spent_cpu_us"] + script["skipped_cpu_us"]
    assert script["percent_c"] == 50
    assert script["skipped_joules"] == pytest.approx(script["skipped_cpu_us"] / 1e6 * 150)
    assumed = {"watts": 100, "price_per_kwh": 0.3, "pue": 1.5}
    assumed |= {"watts_source": "stated", "ops_per_day": 0, "nodes": 1}
    assert (facts["assumptions"], facts["fleet"]) == (assumed, [])
    assert "100 W a busy core (stated), 0.27 a kWh, PUE 1\n" in run("ledger", "--watts", "100").stdout
    source = facts_of("ledger")["assumptions"]["watts_source"]
    assert source.startswith(("assumed: ", "measured"))


def test_a_year_of_a_fleet() -> None:
    words = ("ledger", "--ops-per-day", "1e9", "--nodes", "1000")
    demand, spent, skipped = facts_of(*words)["fleet"]
    assert [one["what"] for one in (demand, spent, skipped)] == ["demand", "spent", "skipped"]
    assert spent["kwh"] + skipped["kwh"] == pytest.approx(demand["kwh"])
    told = run(*words).stdout
    assert "fleet: 1,000 machines with 1,000,000,000 requests a day each" in told
    assert "2.87e-21 J" in told


def test_the_ledger_of_a_while() -> None:
    assert facts_of("ledger", "--since", "1h")["rows"][-1]["requests"] == 4
    assert "all" in run("ledger", "--since", "7d").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cache", "show", ""), "2 keys begin with ''"),
        (("cache", "show", "a"), "2 keys begin with 'a'"),
        (("cache", "show", "ff"), "0 keys begin with 'ff'"),
        (("cache", "prune", "--max-size", "much"), "'much' is no size"),
        (("cache", "prune", "--max-size", "-1"), "'-1' is no size"),
        (("ledger", "--since", "yesterday"), "'yesterday' is no span"),
        (("ledger", "--watts", "-1"), "--watts -1.0"),
        (("ledger", "--pue", "nan"), "--pue nan"),
        (("ledger", "--nodes", "-1"), "--nodes -1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(words: Sequence[str], said: str) -> None:
    problem = problem_of(*words)
    assert said in problem.what
    assert problem.fix
