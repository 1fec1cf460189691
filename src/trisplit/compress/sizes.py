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
            rows, columns = matrix_shape(model, shape, layer, role)
            factors = rank * (rows + columns)
            parameters += factors - rows * columns
            n_bytes += 4 * factors - _matrix_bytes(rows, columns, shape.dtype)
    return parameters, n_bytes


def matrix_shape(model: Model, shape: Shape, layer: int, role: str) -> tuple[int, int]:
    """(out, in) of rows of a layer that are stored together, without what only fills them up."""
    config = replace(model.config, ffn=shape.widths)
    parts = [layout(config, stage) for stage in layer_stages(range(layer, layer + 1))]
    matrices = [matrix for of_stage in parts for matrix in of_stage.matrices]
    return {part.role: (part.n, matrix.columns) for matrix in matrices for part in matrix.parts}[role]


def neuron_parameters(model: Model) -> int:
    """Numbers of one neuron of an FFN: rows of what goes up, a column of down, biases."""
    wide, down = (layout(model.config, Stage(0, kind)).matrices[0] for kind in ("gate_up", "down"))
    return (wide.rows * (wide.columns + wide.bias) + down.rows * down.columns) // model.config.ffn[0]


def _matrix_bytes(rows: int, columns: int, dtype: Dtype) -> int:
    return round(rows * columns * _N_BYTES["f32" if columns % BLOCK else dtype])
