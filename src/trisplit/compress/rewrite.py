"""A copy of a model with matrices changed one by one, as a folder of safetensors that stock loaders read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from trisplit.compress.writing import FolderWriter, config_json
from trisplit.models import head_order
from trisplit.models.config import EMBED, HEAD, Stage, layer_stages
from trisplit.models.families import FAMILIES
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
    config_json(model)  # refused before anything is written
    writer = FolderWriter(folder, files=model.config.layers + 2)
    writer.add(dict(_stage(model, EMBED, change)))
    for layer in range(model.config.layers):
        stages = layer_stages(range(layer, layer + 1))
        writer.add({name: rows for stage in stages for name, rows in _stage(model, stage, change)})
    writer.add(dict(_stage(model, HEAD, change)))
    writer.finish(model, {"torch_dtype": "float32"})


def _stage(model: Model, stage: Stage, change: Change) -> Iterator[tuple[str, Floats]]:
    parts = layout(model.config, stage)
    for matrix in parts.matrices:
        if stage == HEAD and model.config.tied_head:
            continue
        for part in matrix.parts:
            rows = change(stage, matrix, part.role, stored(model, part.role, stage.layer))
            yield _name(model, part.role, stage), np.ascontiguousarray(rows, np.float32)
            if matrix.bias:
                bias = f"{part.role}_bias"
                yield _name(model, bias, stage), stored(model, bias, stage.layer)
    for role, _ in parts.norms:
        yield _name(model, role, stage), stored(model, role, stage.layer)


def stored(model: Model, role: str, layer: int) -> Floats:
    """A tensor as float32, in the order of rows that safetensors of the family have."""
    checkpoint = model.checkpoint
    values = checkpoint.read(FAMILIES[model.config.family].names_in(checkpoint.format)[role].format(layer))
    places = None
    if checkpoint.format == "gguf":
        places = head_order.places(model.config, "gguf", role, len(values))
    if places is None:
        return values
    ours = np.empty_like(values)
    ours[places] = values
    return ours


def _name(model: Model, role: str, stage: Stage) -> str:
    return FAMILIES[model.config.family].names[role].format(stage.layer)
