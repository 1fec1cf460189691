"""A model as a reader: what its last layer leaves of every token it is given, and logits from that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from trisplit.models.config import Stage
from trisplit.models.convert import Dtype
from trisplit.models.decoder import chunks
from trisplit.models.model import Model, context_for
from trisplit.models.session import Floats, Row, StageSession, Tracks

T = TypeVar("T")

# How far what is called by a name has come: (name, done, of how many).
Report = Callable[[str, int, int], None]

HEAD_ROWS: Final = 16
"""Rows whose logits are held at once: a large vocabulary takes a megabyte a row."""


def silent(name: str, done: int, total: int) -> None:
    """The report that nobody reads."""


def told(items: Iterable[T], name: str, total: int, report: Report) -> Iterator[T]:
    """The items, told as each is done with."""
    for done, item in enumerate(items, 1):
        yield item
        report(name, done, total)


class Body:
    """Embedding and layers of a model, which read ids; one sequence at a time.

    `without`: a layer that is left out, as if its attention and its FFN gave zeros. A model so broken is
    what gates are tested with.
    """

    def __init__(
        self, model: Model, dtype: Dtype, *, context: int, threads: int, without: int | None = None
    ) -> None:
        """Makes room for `context` ids. RequestProblem: the model was made for fewer, or memory is short."""
        context_for(model.config, context)
        stages = [stage for stage in model.stages[:-1] if stage.layer != without]
        model.refuse_if_short(stages, dtype, context)
        session = StageSession(
            model.config, list(model.files(stages, dtype)), context=context, threads=threads, spin=False
        )
        self._track = Tracks(session)

    def read(self, ids: Sequence[int], position: int = 0) -> Floats:
        """[ids, hidden]: what the last layer leaves of each; what stood from `position` on is forgotten."""
        pieces = chunks(ids, position)
        return np.concatenate([self._track.run({"ids": np.array(i)}, at).copy() for i, at in pieces])


class Head:
    """The head of a model: logits of any rows, some at a time, each with the bits it gets alone."""

    def __init__(self, model: Model, dtype: Dtype, *, threads: int) -> None:
        head: Stage = model.stages[-1]
        model.refuse_if_short([head], dtype, 1)
        session = StageSession(
            model.config, list(model.files([head], dtype)), context=1, threads=threads, spin=False
        )
        self._track = Tracks(session)
        self._together = HEAD_ROWS if session.rows_equal() else 1

    def logits(self, residuals: Floats) -> Iterator[Floats]:
        """[at most HEAD_ROWS, vocab] after another, for residuals [rows, hidden]."""
        for i in range(0, len(residuals), HEAD_ROWS):
            part = residuals[i : i + HEAD_ROWS]
            yield np.concatenate(
                [self._some(part[j : j + self._together]) for j in range(0, len(part), self._together)]
            )

    def _some(self, residuals: Floats) -> Floats:
        rows = [Row(slot, {"x": x[None]}, 0) for slot, x in enumerate(residuals)]
        return np.concatenate([logits.copy() for logits in self._track.together(rows)])
