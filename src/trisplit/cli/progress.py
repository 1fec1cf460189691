"""Progress bars on standard error, for waits longer than a blink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

T = TypeVar("T")


class Bars:
    """Named bars: `advance(name, done, total)` makes a bar the first time it hears a name."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def advance(self, name: str, done: int, total: int, what: str = "") -> None:
        """Sets a bar; `what` is shown beside it."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, what=what)
        self._progress.update(self._tasks[name], completed=done, total=total, what=what)

    def over(self, items: Iterable[T], name: str, total: int) -> Iterator[T]:
        """The items, the bar moving as each is taken."""
        for done, item in enumerate(items, 1):
            yield item
            self.advance(name, done, total, f"{done} of {total}")


@contextmanager
def bars() -> Iterator[Bars]:
    """Bars that vanish when done; on something that is no terminal nothing is drawn."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bars(progress)
