"""Stages with random weights, of any shape and form: how long they take depends on nothing they say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from trisplit.models.config import EMBED, HEAD, ModelConfig, Stage
from trisplit.models.convert import Dtype
from trisplit.models.layout import Matrix, layout
from trisplit.models.quantize import BLOCK
from trisplit.models.stage_file import StageFile, Stored, as_head, stem

Gates = Literal["fused", "separate"]
"""gate and up as one matrix, as our decoder has them, or as two."""

_ALIGNED: Final = 64  # bytes: a line of the processor's cache
_KINDS: Final = {np.dtype(np.float32): "F32", np.dtype(np.uint8): "U8"}

Arrays = Iterator[tuple[str, NDArray[Any]]]


def stand_ins(
    config: ModelConfig, stages: Sequence[Stage], dtype: Dtype, folder: Path, *, gates: Gates = "fused"
) -> list[StageFile]:
    """Files of these stages, with the arrays that conversion makes of float weights, in `folder`.

    A head that is the embedding shares its bytes, so embed must be among the stages then. Values are small
    enough that what passes stays finite. No two are made alike: a virtual machine's host may keep pages that
    say the same only once, and weights that repeat every 4 MB were read three times as fast as real ones.
    """
    made: dict[Stage, StageFile] = {}
    make = _Maker(config, dtype, gates, np.random.default_rng())
    for stage in stages:
        tensors = _write(folder, f"{stem(stage)}.bin", make.arrays(stage))
        if stage == HEAD and config.tied_head:
            tensors |= as_head(made[EMBED].tensors)
        made[stage] = StageFile(stage, folder, tensors)
    return [*made.values()]


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the arrays of a stage."""

    config: ModelConfig
    dtype: Dtype
    gates: Gates
    random: np.random.Generator

    def arrays(self, stage: Stage) -> Arrays:
        parts = layout(self.config, stage)
        for role, width in parts.norms:
            yield role, np.ones(width, np.float32)
        for matrix in parts.matrices:
            if not (stage == HEAD and self.config.tied_head):
                yield from self._matrix(matrix, is_end=stage.layer < 0)

    def _matrix(self, matrix: Matrix, *, is_end: bool) -> Arrays:
        name, columns = matrix.name, matrix.columns
        apart = self.gates == "separate" and name == "gate_up" and len(matrix.parts) == 2
        parts = (
            {f"{name}.{i}": part.n for i, part in enumerate(matrix.parts)} if apart else {name: matrix.rows}
        )
        for part, rows in parts.items():
            yield from self._weights(part, rows, columns, is_end=is_end)
        if matrix.bias:
            yield f"{name}.bias", np.zeros(matrix.rows, np.float32)

    def _weights(self, name: str, rows: int, columns: int, *, is_end: bool) -> Arrays:
        """In the form that float weights take at this dtype: embedding and head have 8 bits at least."""
        scale = np.float32(columns**-0.5)
        if self.dtype == "f32" or columns % BLOCK:
            yield f"{name}.w", self._floats((rows, columns) if is_end else (columns, rows), scale)
            return
        bits, blocks = 4 if self.dtype == "int4" and not is_end else 8, columns // BLOCK
        shape = rows, blocks, BLOCK * bits // 8
        yield f"{name}.q{bits}", np.frombuffer(self.random.bytes(math.prod(shape)), np.uint8).reshape(shape)
        yield f"{name}.scales", abs(self._floats((rows, blocks), scale)) / np.float32(2 ** (bits - 1))
        if bits == 4:
            yield f"{name}.offsets", self._floats((blocks, rows), scale)

    def _floats(self, shape: tuple[int, ...], scale: np.float32) -> NDArray[np.float32]:
        values = self.random.random(shape, dtype=np.float32)
        values -= np.float32(0.5)
        values *= 3 * scale
        return values


def _write(folder: Path, name: str, arrays: Arrays) -> dict[str, Stored]:
    tensors: dict[str, Stored] = {}
    with (folder / name).open("wb") as file:
        for key, array in arrays:
            file.write(bytes(-file.tell() % _ALIGNED))
            tensors[key] = Stored(name, _KINDS[array.dtype], array.shape, file.tell(), array.nbytes)
            file.write(array.data)
    return tensors


def bytes_of(files: Sequence[StageFile]) -> int:
    """Bytes of weights these stages compute with."""
    return sum(file.weight_bytes for file in files)


def kept(width: int, percent: int) -> int:
    """Neurons that are left of `width`: whole blocks of 32, as pruning leaves them, and one at least.

    >>> [kept(1536, percent) for percent in (75, 50, 40)]
    [1152, 768, 608]
    """
    return width if percent == 100 else min(width, max(1, round(width * percent / 100 / BLOCK)) * BLOCK)


def narrower(config: ModelConfig, percent: int) -> ModelConfig:
    """The same model with that share of every layer's neurons."""
    return replace(config, ffn=tuple(kept(width, percent) for width in config.ffn))
