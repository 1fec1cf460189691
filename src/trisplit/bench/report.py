"""What a bench found, as a table for people and as one JSON object for programs: the same facts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING

from trisplit.machine import Machine
from trisplit.table import Table

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Rows of one kind, the machine they were measured on, and the command that measured them.

    Fields of a row may be rows themselves, of a row that has a `name`. `also` are other rows, under a name.
    """

    rows: Sequence[DataclassInstance]
    machine: Machine
    command: str
    also: Mapping[str, Sequence[DataclassInstance]] = field(default_factory=dict)

    def table(self) -> Table:
        """A column for every field of the rows that is no rows itself."""
        return _table(self.rows)

    def tables(self) -> Iterator[Table]:
        """The same, then the rows inside of rows, then the others."""
        yield self.table()
        for name in _nested(self.rows[0]) if self.rows else ():
            inside = [(row, _table(getattr(row, name))) for row in self.rows]
            rows = [(_name(row), *cells) for row, table in inside for cells in table.rows]
            columns = next((table.columns for _, table in inside if table.rows), ())
            yield Table(columns=("of", *columns), rows=tuple(rows), title=name)
        for name, others in self.also.items():
            if others:
                yield replace(_table(others), title=name)

    def json(self) -> str:
        """`{"rows": […], …, "machine": {…}, "command": "…"}` on one line."""
        rows = {
            name: [asdict(row) for row in some] for name, some in {"rows": self.rows, **self.also}.items()
        }
        return json.dumps({**rows, "machine": asdict(self.machine), "command": self.command})


def _table(rows: Sequence[DataclassInstance]) -> Table:
    names = [field.name for field in fields(rows[0]) if field.name not in _nested(rows[0])] if rows else []
    return Table(columns=tuple(names), rows=tuple(tuple(getattr(row, n) for n in names) for row in rows))


def _nested(row: DataclassInstance) -> list[str]:
    """The fields that are rows."""
    return [field.name for field in fields(row) if isinstance(getattr(row, field.name), tuple)]


def _name(row: DataclassInstance) -> str:
    return str(getattr(row, "name"))  # noqa: B009  # a row that has rows has a name
