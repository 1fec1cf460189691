"""A layer with one matrix changed, tried on what the layers before it leave of a text.

Whatever is changed is measured by the same thing: how far the residual behind the layer is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from trisplit.compress.altered import altered, arrays_of, beside
from trisplit.compress.lanes import embedded
from trisplit.compress.spectra import Doubles
from trisplit.models.config import Stage, layer_stages
from trisplit.models.layout import layout
from trisplit.models.model import Model
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.models.stage_file import StageFile
from trisplit.paths import scratch

# By the role of rows that are stored together: new ones, in our order.
Changed = Mapping[str, Doubles]


@dataclass(frozen=True, slots=True)
class Place:
    """A layer in its place: what it is given of each passage and what it leaves, [rows, hidden]."""

    model: Model
    layer: int
    files: Sequence[StageFile]
    given: Sequence[Floats]
    left: Sequence[Floats]
    threads: int

    def rows(self, role: str) -> Doubles:
        """Rows of the layer that are stored together, [out, in], in our order."""
        stage, name, span = _where(self.model, self.layer, role)
        file = next(file for file in self.files if file.stage == stage)
        return arrays_of(file)[name].T[span].astype(np.float64)

    def error(self, changed: Changed) -> float:
        """E‖x′ - x‖², x what the layer leaves and x′ what it leaves with these rows changed."""
        with _files(self.model, self.files, changed) as files:
            run = _Run(self.model, files, max(map(len, self.given)), self.threads)
            missed = [np.square(run(x).astype(np.float64) - exact) for x, exact in zip(self.given, self.left)]
        return float(np.concatenate(missed).sum(axis=1).mean())


def places(model: Model, passages: Sequence[Sequence[int]], *, threads: int) -> Iterator[Place]:
    """Every layer on the dense stream of these passages, one after the other."""
    longest = max(map(len, passages))
    x = list(embedded(model, passages, "f32", threads=threads))
    for layer in range(model.config.layers):
        files = list(model.files(layer_stages(range(layer, layer + 1)), "f32"))
        run = _Run(model, files, longest, threads)
        left = [run(rows) for rows in x]
        yield Place(model, layer, files, x, left, threads)
        x = left


class _Run:
    """A layer made of these files."""

    def __init__(self, model: Model, files: Sequence[StageFile], longest: int, threads: int) -> None:
        session = StageSession(model.config, files, context=longest, threads=threads, spin=False)
        self._track = Tracks(session)

    def __call__(self, x: Floats) -> Floats:
        return self._track.run({"x": x}, 0).copy()


def _where(model: Model, layer: int, role: str) -> tuple[Stage, str, slice]:
    """Stage, array and rows of the array's transpose in which these rows lie."""
    for stage in layer_stages(range(layer, layer + 1)):
        for matrix in layout(model.config, stage).matrices:
            at = 0
            for part in matrix.parts:
                if part.role == role:
                    return stage, f"{matrix.name}.w", slice(at, at + part.n)
                at += part.n
    raise KeyError(role)


@contextmanager
def _files(model: Model, files: Sequence[StageFile], changed: Changed) -> Iterator[list[StageFile]]:
    """The files with these rows changed, all in one folder, as a session wants them; gone at the end."""
    asked = [(_where(model, files[0].stage.layer, role), rows) for role, rows in changed.items()]
    with scratch() as folder:
        made = []
        for file in files:
            mine = [(name, span, rows) for (stage, name, span), rows in asked if stage == file.stage]
            if not mine:
                made.append(beside(file, folder))
                continue
            arrays = arrays_of(file)
            for name, span, rows in mine:
                arrays[name].T[span] = rows
            made.append(altered(file.stage, arrays, folder))
        yield made
