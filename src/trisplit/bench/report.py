"""What a bench found, as a table for people and as one JSON object for programs: the same facts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from trisplit.machine import Machine
from trisplit.table import Table

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Rows of one kind, the machine they were measured on, and the command that measured them."""

    rows: Sequence[DataclassInstance]
    machine: Machine
    command: str

    def table(self) -> Table:
        """A column for every field of the rows."""
        names = tuple(field.name for field in fields(self.rows[0])) if self.rows else ()
        cells = tuple(tuple(getattr(row, name) for name in names) for row in self.rows)
        return Table(columns=names, rows=cells)

    def json(self) -> str:
        """`{"rows": […], "machine": {…}, "command": "…"}` on one line."""
        rows = [asdict(row) for row in self.rows]
        return json.dumps({"rows": rows, "machine": asdict(self.machine), "command": self.command})
