"""One stage's weights on disk: where every array lies, and whether they are what the stage computes with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.models.config import ModelConfig, Stage
from trisplit.models.layout import Matrix, layout
from trisplit.models.quantize import BLOCK

_ITEM_BYTES: Final = {"F32": 4, "U8": 1}
_MOST_PARTS: Final = 3  # a matrix of mixed forms lies in as many as q, k and v


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one array lies: `file` beside the others, bytes [offset, offset + n_bytes)."""

    file: str
    kind: str  # safetensors dtype: F32, U8
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class StageFile:
    """One stage's weights on disk, by name: a norm's role, or a matrix's and its form.

    Forms are `.w` (f32), `.q8` or `.q4` with `.scales` (and `.offsets`), and `.bias`. They lie in one file,
    and those of a head that is the embedding in two: its own, and the embedding's.
    """

    stage: Stage
    folder: Path
    tensors: Mapping[str, Stored]

    @property
    def stem(self) -> str:
        """A name for the stage that is unique in a graph."""
        return stem(self.stage)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files, its own first."""
        return tuple(dict.fromkeys(stored.file for stored in self.tensors.values()))

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights the stage computes with."""
        return sum(t.n_bytes for t in self.tensors.values())

    def has_matrix(self, name: str) -> bool:
        """Whether a matrix (or a part of one) of this name lies here."""
        return any(f"{name}.{form}" in self.tensors for form in ("w", "q8", "q4"))

    def parts_of(self, matrix: str) -> list[str]:
        """The matrix's name, or those of its parts where rows of mixed forms are kept apart."""
        names = (matrix, *(f"{matrix}.{i}" for i in range(_MOST_PARTS)))
        return [name for name in names if self.has_matrix(name)]


def stem(stage: Stage) -> str:
    """`attention-007`, `embed`: a name for the stage that can be one of a file."""
    return stage.kind if stage.layer < 0 else f"{stage.kind}-{stage.layer:03}"


def matrix_name(stage: Stage, matrix: str) -> str:
    """`attention-007.qkv`: a name for a matrix of the stage that is unique in a model."""
    return f"{stem(stage)}.{matrix}"


def as_head(embedding: Mapping[str, Stored]) -> dict[str, Stored]:
    """The embedding's own bytes, as a tied head reads them."""
    return {name.replace("embed", "head"): stored for name, stored in embedding.items()}


def misfit(config: ModelConfig, file: StageFile) -> str:
    """Why the stage of this model cannot be computed from these arrays; empty if it can.

    Whoever made the file, what the graph would read is in it, of the right type, shape and length.
    """
    parts = layout(config, file.stage)
    due: dict[str, tuple[str, tuple[int, ...]]] = {role: ("F32", (width,)) for role, width in parts.norms}
    for matrix in parts.matrices:
        names = file.parts_of(matrix.name)
        rows = sum(_rows(file, name, matrix.columns) for name in names)
        if rows != matrix.rows:
            return f"{matrix.name} has {rows:,} rows of {matrix.columns:,} where {matrix.rows:,} belong"
        due |= {name: array for part in names for name, array in _arrays(file, part, matrix)}
        due |= {f"{matrix.name}.bias": ("F32", (matrix.rows,))} if matrix.bias else {}
    if odd := due.keys() ^ file.tensors.keys():
        return f"{min(odd)} is {'missing' if min(odd) in due else 'no part of it'}"
    for name, (kind, shape) in due.items():
        stored = file.tensors[name]
        if (stored.kind, stored.shape) != (kind, shape) or stored.n_bytes != _n_bytes(kind, shape):
            return f"{name} is {stored.kind} {list(stored.shape)} where {kind} {list(shape)} belongs"
    return ""


def _n_bytes(kind: str, shape: tuple[int, ...]) -> int:
    return _ITEM_BYTES[kind] * math.prod(shape)


def _rows(file: StageFile, name: str, columns: int) -> int:
    """Rows of (a part of) a matrix, from its size alone."""
    plain = file.tensors.get(f"{name}.w")
    if plain is not None:
        return plain.n_bytes // (4 * columns)
    scales = file.tensors.get(f"{name}.scales")
    return scales.n_bytes * BLOCK // (4 * columns) if scales is not None and columns % BLOCK == 0 else 0


def _arrays(file: StageFile, name: str, matrix: Matrix) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Every array of (a part of) a matrix, its type and shape, in the form that the file has it in."""
    rows, blocks = _rows(file, name, matrix.columns), matrix.columns // BLOCK
    if f"{name}.w" in file.tensors:
        is_end = file.stage.layer < 0
        yield f"{name}.w", ("F32", (rows, matrix.columns) if is_end else (matrix.columns, rows))
        return
    bits = 4 if f"{name}.q4" in file.tensors else 8
    yield f"{name}.q{bits}", ("U8", (rows, blocks, BLOCK * bits // 8))
    yield f"{name}.scales", ("F32", (rows, blocks))
    if bits == 4 and f"{name}.offsets" in file.tensors:
        yield f"{name}.offsets", ("F32", (blocks, rows))
