"""`trisplit cache charge`: from paths, a jar and history, as a table and as one object."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from tests.scripts.worlds import needs_node
from trisplit.scripts import charge as charging
from trisplit.scripts.charge import Costs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and hits that cost what those of a small program do: ours by Python take longer."""
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(charging, "measured_costs", lambda *_: Costs(door="test", hit_ms=0.2, closed_ms=0.0))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.js").write_text("console.log('a')")
    (tmp_path / "now.js").write_text("console.log(Date.now())")
    return tmp_path


@needs_node
def test_paths_jars_and_history(folder: Path) -> None:
    (folder / "jar").write_text("3 a.js\n9 now.js # never kept\n2 a.js x\n")
    facts = facts_of("cache", "charge", "--jar", "jar")
    assert [(row["script"], row["charged"]) for row in facts["rows"]] == [
        ("a.js", True),
        ("now.js", False),
        ("a.js", True),
    ]
    assert facts["rows"][0]["break_even"] == 2
    assert facts["rows"][1]["why"] == "impure: reads the clock: Date.now, at line 1"
    assert (facts["charged"], facts["left_out"], facts["costs"]["door"]) == (2, 1, "test")
    (again,) = facts_of("cache", "charge", "a.js", "--expect", "5")["rows"]
    assert (again["expected"], again["why"]) == (5, "is kept already")
    (unknown,) = facts_of("cache", "charge", "now.js")["rows"]
    assert unknown["expected"] == 0
    assert facts_of("cache", "charge", "--history")["rows"] == []
    table = run("cache", "charge", "--jar", "jar").stdout
    assert "0 charged, 3 left out" in table
    assert "a.js x" in table


@needs_node
def test_history_is_what_was_asked_for(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        run("run", "--explain", "a.js", "y")
    capfd.readouterr()
    assert facts_of("cache", "clear")["removed"]
    (row,) = facts_of("cache", "charge", "--history")["rows"]
    assert (row["script"], row["arguments"]) == (str(folder / "a.js"), ["y"])
    assert (row["expected"], row["costs"], row["charged"]) == (3, "ledger", True)


def test_refused() -> None:
    assert "nothing to charge" in problem_of("cache", "charge").what
    assert "no span" in problem_of("cache", "charge", "--history", "--since", "long").what
    assert "no-such-node" in problem_of("cache", "charge", "a.js", "--engine", "no-such-node").what
