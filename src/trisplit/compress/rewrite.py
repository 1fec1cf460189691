"""A copy of a model with matrices changed one by one, as a folder of safetensors that stock loaders read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from trisplit.compress.describing import own_shapes, restated
from trisplit.compress.translate import Translation
from trisplit.compress.writing import FolderWriter
from trisplit.models.config import EMBED, HEAD, Stage, layer_stages
from trisplit.models.layout import Matrix, layout
from trisplit.models.model import Model
from trisplit.models.session import Floats

# From a stage, a matrix of ours, the role of rows of it that are stored together, and those rows: new ones.
Change = Callable[[Stage, Matrix, str, Floats], Floats]


def as_it_was(stage: Stage, matrix: Matrix, role: str, rows: Floats) -> Floats:  # noqa: ARG001
    """The change that is none."""
    return rows


def rewrite(model: Model, change: Change, folder: Path) -> None:
    """Writes the model with every matrix changed, as float32; a layer in memory at a time.

    Rows come in the order of the family's safetensors, of the whole stored tensor. Problems as of writing.
    """
    target = own_shapes(model)
    config = restated(model, target) | {"torch_dtype": "float32"}  # refused before anything is written
    whole, writer = Translation(model, target, "safetensors"), FolderWriter(folder, files=target.layers + 2)
    for stages in ([EMBED], *(layer_stages(range(n, n + 1)) for n in range(target.layers)), [HEAD]):
        writer.add(dict(pair for stage in stages for pair in _stage(whole, stage, change)))
    writer.close(model, config)


def _stage(whole: Translation, stage: Stage, change: Change) -> Iterator[tuple[str, Floats]]:
    matrices = {part.role: m for m in layout(whole.target, stage).matrices for part in m.parts}
    for name, role, shape in whole.parts(stage):
        rows = whole.tensor(role, stage, shape)
        if role in matrices:
            rows = np.asarray(change(stage, matrices[role], role, rows), np.float32)
        yield name, rows
