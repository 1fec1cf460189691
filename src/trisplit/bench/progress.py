"""How far a bench is, on standard error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")


def shown(items: Sequence[T], what: str) -> Iterator[T]:
    """The items, beside a bar that is drawn only between them and vanishes at the end.

    A bar that moves by itself would take time from what is measured. On something that is no terminal
    nothing is drawn.
    """
    console = Console(stderr=True)
    columns = TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=len(items))
        bar.refresh()
        for item in items:
            yield item
            bar.update(task, advance=1, refresh=True)
