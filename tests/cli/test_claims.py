"""`trisplit claims`: the same rows for people, for machines, and as a page."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.running import facts_of, run

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"


def test_for_people_and_for_machines() -> None:
    lines = run("claims").stdout.splitlines()
    rows = facts_of("claims")["rows"]
    assert re.split("  +", lines[0]) == ["area", "the origin states", "our command", "our figure", "verdict"]
    assert len(lines) == 2 + len(rows)
    for line, row in zip(lines[2:], rows):
        assert all(row[word] in line for word in ("area", "statement", "command", "figure", "verdict"))
    assert list(rows[0]) == ["area", "statement", "command", "figure", "verdict", "why"]


def test_as_a_page() -> None:
    assert run("claims", "--markdown").stdout == PAGE.read_text()
    assert facts_of("claims", "--markdown") == facts_of("claims")
