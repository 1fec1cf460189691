"""How a command shows what it found: tables and lines for people, or one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trisplit.table import Table


def print_result(facts: dict[str, Any] | None, tables: Sequence[Table], lines: Sequence[str] = ()) -> None:
    """The facts as JSON; without them the tables, drawn where there is a terminal, and the lines."""
    import json
    import sys

    from rich.console import Console

    if facts is not None:
        print(json.dumps(facts))
        return
    draw = Console().print if sys.stdout.isatty() else print
    for table in tables:
        draw(table)
        if lines or table is not tables[-1]:
            print()
    for line in lines:
        print(line)
