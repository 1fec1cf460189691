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


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A row inside a row."""

    kind: str
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A row with rows inside."""

    name: str
    parts: tuple[Part, ...]


WHOLES = (
    Whole(name="one", parts=(Part(kind="down", ms=1.0), Part(kind="head", ms=2.0))),
    Whole(name="two", parts=()),
)


def test_rows_inside_of_rows_and_beside_them_are_tables_of_their_own() -> None:
    report = Report(rows=WHOLES, machine=MACHINE, command="", also={"others": ROWS, "none": ()})
    main, parts, others = report.tables()
    assert main == report.table()
    assert (main.columns, main.rows) == (("name",), (("one",), ("two",)))
    assert (parts.title, parts.columns) == ("parts", ("of", "kind", "ms"))
    assert parts.rows == (("one", "down", 1.0), ("one", "head", 2.0))
    assert (others.title, others.rows) == ("others", REPORT.table().rows)
    said = json.loads(report.json())
    assert list(said) == ["rows", "others", "none", "machine", "command"]
    assert said["rows"][0] == {
        "name": "one",
        "parts": [{"kind": "down", "ms": 1.0}, {"kind": "head", "ms": 2.0}],
    }


def test_no_rows_make_an_empty_table() -> None:
    assert Report(rows=(), machine=MACHINE, command="").table().rows == ()
