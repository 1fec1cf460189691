"""Follows the ledger: hits that were answered without us, and what was asked for then."""

from __future__ import annotations

from pathlib import Path

from trisplit.cache import ledger
from trisplit.cache.records import Record, Reuse, decode
from trisplit.scripts.runner import SURFACE


class Followed:
    """A ledger from now on. One that is made shorter meanwhile is followed from its new end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._at = self._end()

    def hits(self) -> list[Record]:
        """Those of scripts since the last time, line by line; hits that were added up are not among them."""
        file, end = self._end()
        if file != self._file or end < self._at:
            self._file, self._at = file, end
        if end == self._at:
            return []
        with self._path.open("rb") as stream:
            stream.seek(self._at)
            lines = stream.read(end - self._at).splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]  # a last one may be on its way
        self._at += sum(map(len, whole))
        return [one for one in decode(whole).records if (one.surface, one.outcome) == (SURFACE, "hit")]

    def words(self, key: str) -> tuple[str, ...]:
        """The script and the arguments that were asked for when this was kept; empty if that is not told."""
        lines = ledger.lines_of(self._path)
        told: list[Record | Reuse] = [*lines.reuses, *lines.records]
        return next((one.words for one in reversed(told) if one.key == key and one.words), ())

    def _end(self) -> tuple[tuple[int, int], int]:
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            return (0, 0), 0
        return (facts.st_dev, facts.st_ino), facts.st_size
