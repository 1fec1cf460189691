"""What a copy takes: numbers in it, and bytes at its dtype, of what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from trisplit.compress.evaluate import Weight
from trisplit.compress.steps.step import Shape
from trisplit.models.config import Stage, layer_stages
from trisplit.models.convert import Dtype
from trisplit.models.layout import layout
from trisplit.models.model import Model
from trisplit.models.quantize import BLOCK

# Of a number: codes, and a scale for each block, at 4 bits an offset too.
_N_BYTES: Final[dict[Dtype, float]] = {"f32": 4, "int8": 1 + 4 / BLOCK, "int4": 0.5 + 8 / BLOCK}


def counted(model: Model) -> list[tuple[Stage, ...]]:
    """All stages that have weights of their own: an end, the thirds of each layer, an end."""
    embed, head = model.ends
    layers = [layer_stages(range(layer, layer + 1)) for layer in range(model.config.layers)]
    return [*layers, (head,)] if model.config.tied_head else [(embed,), *layers, (head,)]


def weigh_shape(model: Model, shape: Shape) -> Weight:
    """The whole of a copy of this shape."""
    each = [weight_of(model, shape, stages) for stages in counted(model)]
    parameters, n_bytes = (sum(numbers) for numbers in zip(*each))
    return Weight(parameters=parameters, weight_bytes=n_bytes, tokens_per_s=None)


def weight_of(model: Model, shape: Shape, stages: Sequence[Stage]) -> tuple[int, int]:
    """Parameters and bytes of these stages of a copy of this shape.

    Matrices that are products count as their factors, which stay in f32.
    """
    narrow = replace(model, config=replace(model.config, ffn=shape.widths))
    parameters = sum(narrow.weight_bytes(stage, "f32") // 4 for stage in stages)
    n_bytes = sum(narrow.weight_bytes(stage, shape.dtype) for stage in stages)
    for (layer, role), rank in shape.ranks.items():
        if layer == stages[0].layer:
            rows, columns = matrix_shape(narrow, layer, role)
            factors = rank * (rows + columns)
            parameters += factors - rows * columns
            n_bytes += 4 * factors - _matrix_bytes(rows, columns, shape.dtype)
    return parameters, n_bytes


def matrix_shape(model: Model, layer: int, role: str) -> tuple[int, int]:
    """(out, in) of a stored matrix of a layer."""
    parts = (layout(model.config, stage) for stage in layer_stages(range(layer, layer + 1)))
    every = {
        part.role: (part.n, matrix.columns) for of in parts for matrix in of.matrices for part in matrix.parts
    }
    return every[role]


def _matrix_bytes(rows: int, columns: int, dtype: Dtype) -> int:
    return round(rows * columns * _N_BYTES["f32" if columns % BLOCK else dtype])
