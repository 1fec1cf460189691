"""A small table any result can turn itself into: plain text, or rich in a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_SIZE = re.compile(r"[0-9.]+ (B|kB|MB|GB)")

Cell = str | int | float | bool | None


def show(cell: Cell) -> str:
    """One cell as text: 3 significant digits for floats, thousands for integers, `-` for nothing.

    >>> [show(c) for c in (None, True, 1234567, 0.012345, 12.3456, 1234.5, "x")]
    ['-', 'yes', '1,234,567', '0.0123', '12.3', '1,234', 'x']
    """
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return cell


def size(n_bytes: float) -> str:
    """Bytes in decimal units, as disks and memory limits are quoted here.

    >>> size(538_060_032), size(900)
    ('538.1 MB', '900 B')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes:.0f} B"


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns and rows of cells; numbers stay numbers until they are drawn."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""

    def __str__(self) -> str:
        text = [self.columns, *(tuple(show(c) for c in row) for row in self.rows)]
        widths = [max(len(line[i]) for line in text) for i in range(len(self.columns))]
        right = [self._is_number(i) for i in range(len(self.columns))]
        lines = [
            "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right)).rstrip()
            for line in text
        ]
        lines.insert(1, "  ".join("-" * w for w in widths))
        return "\n".join(([self.title] if self.title else []) + lines)

    def __rich__(self) -> RichTable:
        from rich.table import Table as RichTable

        table = RichTable(title=self.title or None, title_justify="left")
        for i, name in enumerate(self.columns):
            table.add_column(name, justify="right" if self._is_number(i) else "left", no_wrap=i == 0)
        for row in self.rows:
            table.add_row(*(show(c) for c in row))
        return table

    def _is_number(self, column: int) -> bool:
        cells = [row[column] for row in self.rows if row[column] is not None]
        return bool(cells) and all(
            _SIZE.fullmatch(c) if isinstance(c, str) else not isinstance(c, bool) for c in cells
        )
