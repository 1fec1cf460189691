"""A report says the same as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

from trisplit.bench.report import Report
from trisplit.machine import Machine

MACHINE = Machine(cpu="a processor", cores=2, memory_bytes=8, system="Linux", python="3.11.9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a bench."""

    engine: str
    ms: float
    ratio: float | None
    equal: bool


ROWS = (Row(engine="ours", ms=9.5, ratio=None, equal=True), Row(engine="theirs", ms=11, ratio=2, equal=False))
REPORT = Report(rows=ROWS, machine=MACHINE, command="trisplit bench decode 'my model.gguf'")


def test_json_holds_rows_machine_and_command() -> None:
    assert json.loads(REPORT.json()) == {
        "rows": [
            {"engine": "ours", "ms": 9.5, "ratio": None, "equal": True},
            {"engine": "theirs", "ms": 11, "ratio": 2, "equal": False},
        ],
        "machine": {
            "cpu": "a processor",
            "cores": 2,
            "memory_bytes": 8,
            "system": "Linux",
            "python": "3.11.9",
        },
        "command": "trisplit bench decode 'my model.gguf'",
    }
    assert "\n" not in REPORT.json()


def test_the_table_holds_the_same_facts() -> None:
    rows = json.loads(REPORT.json())["rows"]
    table = REPORT.table()
    assert [dict(zip(table.columns, row)) for row in table.rows] == rows


def test_no_rows_make_an_empty_table() -> None:
    assert Report(rows=(), machine=MACHINE, command="").table().rows == ()
