"""The draft `auto`: prompt lookup while that is as good as always right, else a twin with fewer bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from trisplit.errors import RequestProblem
from trisplit.mesh.drafts.draft import Asked, Draft, Source
from trisplit.mesh.drafts.ngram import NgramDraft
from trisplit.mesh.drafts.reading import common
from trisplit.mesh.drafts.twin import open_twin
from trisplit.models.convert import Dtype
from trisplit.models.sampling import Sampling

TWINS: Final[dict[Dtype, Dtype]] = {"f32": "int8", "int8": "int4"}
"""The twin of a target: the next with fewer bits."""
GOOD: Final = 0.94
"""The share of right guesses from which on the free draft is used; a twin has 0.96, and takes time."""
_HOPE: Final = 0.5
_MEMORY: Final = 8.0
_BEHIND: Final = 64
"""Ids after which a guess that still stands was right: no more than these are ever under way."""


class AutoDraft:
    """Asks the free draft always and the other one when the free one is silent or has been wrong of late.

    Which guesses were right is read off the ids it is given next: those that have changed were wrong.
    """

    name = "auto"

    def __init__(self, twin: Draft | None) -> None:
        self._free, self._twin = NgramDraft(), twin
        self._share = _HOPE
        self._last: list[int] = []
        self._said: dict[int, int] = {}  # by position, what the free one has said, not judged yet

    @property
    def share(self) -> float:
        """Of the free draft's guesses, those that were right of late."""
        return self._share

    def guess(self, ids: Sequence[int]) -> int | None:
        """The free guess where it is good enough, else the twin's."""
        given = list(ids)
        self._judge(given)
        free = self._free.guess(given)
        if free is not None:
            self._said[len(given)] = free
        if self._twin is None or (free is not None and self._share >= GOOD):
            return free
        return self._twin.guess(given)

    def close(self) -> None:
        """Closes the twin."""
        if self._twin is not None:
            self._twin.close()

    def _judge(self, given: list[int]) -> None:
        """What stands before a change stands for good; the rest was guessed behind something wrong."""
        kept = common(self._last, given)
        was_changed = kept < len(self._last)
        sure = kept if was_changed else len(given) - _BEHIND
        for position in [position for position in self._said if position < sure]:
            self._count(given[position] == self._said.pop(position))
        if was_changed:
            if kept in self._said and kept < len(given):
                self._count(given[kept] == self._said[kept])
            self._said.clear()
        self._last = given

    def _count(self, hit: bool) -> None:  # it is the only thing there is to say
        self._share += (hit - self._share) / _MEMORY


class Auto:
    """Where such drafts come from; without memory for a twin, of the free draft alone."""

    name = "auto"

    def __init__(self, twin: Source | None) -> None:
        self._twin = twin

    @property
    def weight_bytes(self) -> int:
        return self._twin.weight_bytes if self._twin else 0

    @property
    def kv_bytes(self) -> int:
        return self._twin.kv_bytes if self._twin else 0

    @property
    def steps(self) -> int:
        return self._twin.steps if self._twin else 0

    def load(self) -> Iterator[None]:
        """Loads the twin; if memory is short there is none."""
        if self._twin is not None:
            try:
                yield from self._twin.load()
            except RequestProblem:
                self._twin = None

    def draft(self, how: Sampling) -> Draft:
        for _ in self.load():
            pass
        return AutoDraft(self._twin.draft(how) if self._twin else None)


def open_auto(asked: Asked) -> Source:
    """The source of `auto`."""
    if asked.argument:
        raise RequestProblem(f"the draft {asked.text} makes no sense", fix="write auto alone")
    dtype = TWINS.get(asked.target.dtype)
    if dtype is None:
        return Auto(None)
    return Auto(open_twin(replace(asked, text=f"twin:{dtype}", argument=dtype)))
