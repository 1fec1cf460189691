"""Runs of the same passages side by side, a layer at a time: what each has left so far lies in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from trisplit.models.config import EMBED, Stage
from trisplit.models.convert import Dtype
from trisplit.models.model import Model, context_for
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.paths import cache_dir


class Lanes:
    """Residuals of `count` runs of passages, all tokens but each passage's last, [rows, hidden] each.

    Used in a `with`, at whose end the file is gone. Few of it are in memory at a time.
    """

    def __init__(self, hidden: int, passages: Sequence[Sequence[int]], count: int) -> None:
        self._first = [0, *accumulate(len(passage) - 1 for passage in passages)]
        self._file = tempfile.TemporaryFile(dir=cache_dir())  # noqa: SIM115
        shape = (count, self._first[-1], hidden)
        self._rows = np.memmap(self._file, np.float32, "w+", shape=shape)

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        del self._rows
        self._file.close()

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self._first) - 1

    def read(self, lane: int, passage: int, rows: slice = slice(None)) -> Floats:
        """What one run has left of (some rows of) one passage, [rows, hidden]."""
        return np.array(self._rows[lane, slice(*self._first[passage : passage + 2])][rows])

    def write(self, lane: int, passage: int, rows: Floats) -> None:
        """Puts others in their place."""
        self._rows[lane, slice(*self._first[passage : passage + 2])] = rows


class Span:
    """Neighbouring stages of a model, which take whole passages of up to `longest` tokens."""

    def __init__(
        self, model: Model, stages: Sequence[Stage], dtype: Dtype, *, longest: int, threads: int
    ) -> None:
        """RequestProblem: the model was made for fewer tokens, or memory is short."""
        context = context_for(model.config, longest)
        model.refuse_if_short(stages, dtype, context)
        files = list(model.files(stages, dtype))
        self._track = Tracks(StageSession(model.config, files, context=context, threads=threads, spin=False))
        self._hidden = model.config.hidden

    def run(self, x: Floats) -> Floats:
        """What they leave of residuals [rows, hidden]; of attention the residual after it."""
        # In parallel blocks attention leaves its own input first, then what is wanted.
        return self._track.run({"x": x}, 0)[:, -self._hidden :].copy()


def embedded(
    model: Model, passages: Sequence[Sequence[int]], dtype: Dtype, *, threads: int
) -> Iterator[Floats]:
    """What the embedding makes of each passage, [rows, hidden], all tokens but the last."""
    model.refuse_if_short([EMBED], dtype, 1)
    files = list(model.files([EMBED], dtype))
    longest = max(map(len, passages)) - 1
    track = Tracks(StageSession(model.config, files, context=longest, threads=threads, spin=False))
    for passage in passages:
        yield track.run({"ids": np.array(passage[:-1])}, 0)
