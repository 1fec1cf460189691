"""The step that puts weights on a grid of 8 or 4 bits, whose scales are halves as files have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final, Literal

import numpy as np

from trisplit.compress.anatomy import Anatomy
from trisplit.compress.calibrate import statistics_of
from trisplit.compress.rewrite import rewrite
from trisplit.compress.sizes import counted, weight_of
from trisplit.compress.steps.step import Edit, Means, Plan, Shape
from trisplit.errors import CheckpointProblem
from trisplit.models.config import Stage
from trisplit.models.halves import int4_halves, int8_halves
from trisplit.models.layout import Matrix, layout
from trisplit.models.model import Model
from trisplit.models.quantize import BLOCK, Floats
from trisplit.models.rounding import ROWS, SEARCHED, Fit, Fitted, Rounding

_LARGEST: Final = 65_504  # half


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantize:
    """`fitted`: 4-bit codes are those that change least of what the calibration text shows.

    Embedding and head get 8 bits. What is a product of two factors stays as it is: rounding would make it one
    matrix of full rank again; and so does what has no whole blocks of 32 columns.
    """

    method: ClassVar[str] = "quantize"
    what: ClassVar[str] = "weights on a grid of 8 or 4 bits, 32 of them to a scale"
    dtype: Literal["int8", "int4"] = "int8"
    fitted: bool = True

    def plan(self, anatomy: Anatomy, shape: Shape, means: Means) -> Plan:
        """As `Step`."""
        model, then = anatomy.decoder(), replace(shape, dtype=self.dtype)
        edits = [_edit(model, stages, shape, then) for stages in counted(model)]
        left = sum(matrix.columns % BLOCK > 0 for stage in model.stages for matrix in _matrices(model, stage))
        notes = [f"{len(shape.ranks)} matrices of two factors stay in f32"] if shape.ranks else []
        notes += [f"{left} matrices have no whole blocks of {BLOCK} and stay in f32"] if left else []

        def write(folder: Path) -> None:
            rounding = self._rounding(model, means)

            def change(stage: Stage, matrix: Matrix, role: str, rows: Floats) -> Floats:
                means.report("rounding stages", model.stages.index(stage) + 1, len(model.stages))
                if (stage.layer, role) in shape.ranks or matrix.columns % BLOCK:
                    return rows
                _refuse_odd(rows, role, stage)
                return _on_grid(rows, rounding.fit(stage, matrix) if rounding and stage.layer >= 0 else None)

            rewrite(model, change, folder)

        return Plan(edits=tuple(edits), shape=then, write=write, notes=tuple(notes))

    def _rounding(self, model: Model, means: Means) -> Rounding | None:
        """How 4-bit codes are found; None at 8 bits, where there is nothing to choose."""
        if self.dtype == "int8":
            return None
        if not self.fitted:
            return SEARCHED
        return Fitted(statistics_of(model, means.passages, threads=means.threads, report=means.report))


def _refuse_odd(rows: Floats, role: str, stage: Stage) -> None:
    """CheckpointProblem for what no code with a half for its scale stands for."""
    if not float(np.abs(rows).max(initial=0)) < _LARGEST:
        what = f"{role} of {stage} holds what is no number, or none that a half can be"
        raise CheckpointProblem(what, fix="get the model again: a weight of it is damaged")


def _on_grid(rows: Floats, fit: Fit | None) -> Floats:
    """What codes of 4 bits so fitted stand for, or codes of 8 bits; some rows at a time."""
    slabs = (rows[at : at + ROWS] for at in range(0, len(rows), ROWS))
    grids = (int4_halves(fit(slab), slab) if fit else int8_halves(slab) for slab in slabs)
    return np.concatenate([grid.dequantize() for grid in grids])


def _edit(model: Model, stages: Sequence[Stage], before: Shape, after: Shape) -> Edit:
    """What the matrices of a layer, or of an end, save."""
    layer = stages[0].layer
    return Edit(
        layer=layer if layer >= 0 else None,
        what="all matrices" if layer >= 0 else stages[0].kind,
        before=before.dtype,
        after=after.dtype if layer >= 0 else "int8",
        parameters=0,
        n_bytes=weight_of(model, before, stages)[1] - weight_of(model, after, stages)[1],
    )


def _matrices(model: Model, stage: Stage) -> tuple[Matrix, ...]:
    return layout(model.config, stage).matrices
