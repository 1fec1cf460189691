"""A copy of a model with narrower FFNs, as a folder of safetensors that stock loaders read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from trisplit.compress.anatomy import Anatomy
from trisplit.compress.methods.ffn import Neurons, Refit
from trisplit.compress.writing import FolderWriter, config_json
from trisplit.errors import RequestProblem
from trisplit.models import head_order
from trisplit.models.config import EMBED, HEAD, Stage
from trisplit.models.families import FAMILIES
from trisplit.models.layout import layout
from trisplit.models.model import Model
from trisplit.models.session import Floats


def write_narrow(anatomy: Anatomy, refits: Iterable[Refit], width: int, folder: Path) -> None:
    """Writes the model with each layer's FFN cut to its refit, as float32; a layer in memory at a time.

    All layers get `width` neurons, the most that any keeps: stock loaders know one width. What a layer has
    fewer is filled up with neurons of zeros, which give nothing. RequestProblem for what is no decoder.
    """
    model = anatomy.model
    if model is None:
        raise RequestProblem("only decoders can be written", fix="name a decoder")
    config_json(model)  # refused before anything is written
    tied = model.config.tied_head
    writer = FolderWriter(folder, files=model.config.layers + 2)
    writer.add(dict(_plain(model, EMBED)))
    for layer, refit in enumerate(refits):
        writer.add(dict(_layer(model, layer, refit, width)))
    writer.add(dict(_plain(model, HEAD, without=("head",) if tied else ())))
    writer.finish(model, {"intermediate_size": width, "torch_dtype": "float32"})


def _layer(model: Model, layer: int, refit: Refit, width: int) -> Iterator[tuple[str, Floats]]:
    yield from _plain(model, Stage(layer, "attention"))
    yield from _plain(model, Stage(layer, "gate_up"), without=("gate", "up", "gate_up"))
    for role, rows in _wide(model, layer, refit.kept, width).items():
        yield _name(model, role, layer), rows
    yield from _plain(model, Stage(layer, "down"), without=("down",))
    down = np.zeros((model.config.hidden, width), np.float32)
    down[:, : len(refit.kept)] = refit.down
    yield _name(model, "down", layer), down


def _wide(model: Model, layer: int, kept: Neurons, width: int) -> Mapping[str, Floats]:
    """Rows of the kept neurons of gate and up, and their biases; fused ones by parts."""
    wide: dict[str, Floats] = {}
    (matrix,) = layout(model.config, Stage(layer, "gate_up")).matrices
    for part in matrix.parts:
        for role in (part.role, f"{part.role}_bias") if matrix.bias else (part.role,):
            halves = np.split(_read(model, role, layer), part.n // model.config.ffn[layer])
            wide[role] = np.concatenate([_filled(half[kept], width) for half in halves])
    return wide


def _filled(rows: Floats, width: int) -> Floats:
    more = np.zeros((width - len(rows), *rows.shape[1:]), np.float32)
    return np.concatenate([rows, more])


def _plain(model: Model, stage: Stage, without: Sequence[str] = ()) -> Iterator[tuple[str, Floats]]:
    """All of a stage as it is, but for what is cut."""
    parts = layout(model.config, stage)
    roles = [part.role for matrix in parts.matrices for part in matrix.parts]
    biases = [f"{part.role}_bias" for matrix in parts.matrices if matrix.bias for part in matrix.parts]
    cut = {*without, *(f"{role}_bias" for role in without if role != "down")}
    for role in [*roles, *biases, *(norm for norm, _ in parts.norms)]:
        if role not in cut:
            yield _name(model, role, stage.layer), _read(model, role, stage.layer)


def _read(model: Model, role: str, layer: int) -> Floats:
    """A tensor in the order of rows that safetensors of the family have."""
    checkpoint = model.checkpoint
    stored = FAMILIES[model.config.family].names_in(checkpoint.format)[role].format(layer)
    values = checkpoint.read(stored)
    if checkpoint.format != "gguf":
        return values
    places = head_order.places(model.config, "gguf", role, len(values))
    if places is None:
        return values
    ours = np.empty_like(values)
    ours[places] = values
    return ours


def _name(model: Model, role: str, layer: int) -> str:
    return FAMILIES[model.config.family].names[role].format(layer)
