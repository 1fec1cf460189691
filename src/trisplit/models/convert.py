"""Stage weights in the engine's layout, made once and kept on the shelf, a file a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from trisplit.models import head_order, quantize
from trisplit.models.checkpoint import CHUNK_VALUES, FLOATS, Checkpoint
from trisplit.models.config import EMBED, HEAD, ModelConfig, Stage
from trisplit.models.families import FAMILIES
from trisplit.models.layout import Matrix, Rows, layout
from trisplit.models.quantize import BLOCK, Floats, Grid
from trisplit.models.rounding import ROWS, Fit, Rounding
from trisplit.models.shelf import contents, drafted, put, recorded, remember, shelf
from trisplit.models.stage_file import StageFile, Stored, as_head, stem
from trisplit.paths import unwritable

Dtype = Literal["f32", "int8", "int4"]
DTYPES: Final[tuple[Dtype, ...]] = ("f32", "int8", "int4")

_LAYOUT: Final = 3  # raise it when what a file holds changes: old files are then made again

Arrays = dict[str, NDArray[Any]]
Places = slice | NDArray[np.int64]


def stage_file(
    checkpoint: Checkpoint,
    config: ModelConfig,
    stage: Stage,
    dtype: Dtype,
    rounding: Rounding | None = None,
) -> StageFile:
    """The converted weights of one stage; made now unless the shelf has them.

    `rounding` says how a layer's matrices become int4; see `_Reader._form`.
    Reads only this stage's tensors. Safe with other processes doing the same: a file appears whole
    or not at all, and one that is not whole is made again. The checkpoint holds what the config promises:
    `open_model` has seen to that. RequestProblem when the cache cannot be written.
    """
    folder, reader = shelf(), _Reader(checkpoint, config, dtype, rounding)
    kind = f"{dtype}-{_LAYOUT}" + (f"-{rounding.name}" if rounding and reader.rounds(stage) else "")
    record = folder / f"{checkpoint.digest[:24]}-{kind}" / f"{stem(stage)}.sha256"
    is_tied = stage == HEAD and config.tied_head
    n_bytes = stage_bytes(checkpoint, config, stage, dtype, rounding)
    n_bytes -= stage_bytes(checkpoint, config, EMBED, dtype) if is_tied else 0
    tensors = _whole(recorded(record), n_bytes)
    if tensors is None:
        tensors = _whole(_write(reader.arrays(stage), record), n_bytes)
    if tensors is None:
        raise unwritable(folder, EOFError(f"the file of {stage} is not whole after it was written"))
    if is_tied:
        tensors |= as_head(stage_file(checkpoint, config, EMBED, dtype).tensors)
    return StageFile(stage, folder, tensors)


def stage_bytes(
    checkpoint: Checkpoint,
    config: ModelConfig,
    stage: Stage,
    dtype: Dtype,
    rounding: Rounding | None = None,
) -> int:
    """Bytes of weights `stage_file` would hold, told from the checkpoint's header alone."""
    reader, parts = _Reader(checkpoint, config, dtype, rounding), layout(config, stage)
    norms = sum(4 * width for _, width in parts.norms)
    return norms + sum(reader.matrix_bytes(matrix, stage.layer) for matrix in parts.matrices)


def _write(arrays: Arrays, record: Path) -> str:
    """Puts the arrays on the shelf and notes where; RequestProblem when it cannot take them."""
    try:
        with drafted() as draft:
            save_file(arrays, draft)
            digest = put(draft)
        remember(record, digest)
    except (OSError, SafetensorError) as error:
        raise unwritable(record.parent, error) from error
    return digest


def _whole(digest: str | None, n_bytes: int) -> dict[str, Stored] | None:
    """What lies in a file of the shelf, if that is as many bytes as there should be."""
    tensors = contents(digest) if digest else None
    return tensors if tensors and sum(stored.n_bytes for stored in tensors.values()) == n_bytes else None


@dataclass(frozen=True, slots=True)
class _Form:
    """How the rows of one tensor are kept: 32 bits plain, 8 and 4 in blocks, 4 with or without offsets."""

    bits: int
    offsets: bool = False

    def n_bytes(self, rows: int, columns: int) -> int:
        if self.bits == 32:
            return 4 * rows * columns
        return rows * columns * self.bits // 8 + rows * columns // BLOCK * (8 if self.offsets else 4)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the tensors of a stage under our names, and packs them."""

    checkpoint: Checkpoint
    config: ModelConfig
    dtype: Dtype
    rounding: Rounding | None

    def rounds(self, stage: Stage) -> bool:
        """Whether the rounding has a say in this stage."""
        return self.dtype == "int4" and stage.layer >= 0

    def arrays(self, stage: Stage) -> Arrays:
        """All arrays of one stage, but for a head that is the embedding."""
        parts, arrays = layout(self.config, stage), Arrays()
        for matrix in parts.matrices:
            if not (stage == HEAD and self.config.tied_head):
                arrays |= self._matrix(matrix, stage)
        for role, _ in parts.norms:
            arrays[role] = self._norm(role, stage.layer)
        return arrays

    def matrix_bytes(self, matrix: Matrix, layer: int) -> int:
        """Bytes the packed matrix takes."""
        forms = [self._form(matrix, part, layer) for part in matrix.parts]
        sizes = [form.n_bytes(part.n, matrix.columns) for form, part in zip(forms, matrix.parts)]
        return sum(sizes) + (4 * matrix.rows if matrix.bias else 0)

    def _form(self, matrix: Matrix, part: Rows, layer: int) -> _Form:
        """The form a tensor takes at this dtype.

        int4 keeps the 4-bit grids of a file and fits one to floats; a file's 5-, 6- and 8-bit tensors
        become int8, for they were given more bits because they need them. Embedding and head are int8
        at most, for the same reason. With a rounding all of a layer become int4: it is better than none.
        """
        if self.dtype == "f32" or matrix.columns % BLOCK:
            return _Form(32)
        if self.dtype == "int8" or layer < 0:
            return _Form(8)
        stored = self._stored(part.role, layer)
        if stored in FLOATS:
            return _Form(4, offsets=True)
        bits, offsets = quantize.gguf_form(stored) or (8, False)
        return _Form(4, offsets=True) if bits == 8 and self.rounding else _Form(bits, offsets)

    # --- reading ---

    def _name(self, role: str, layer: int) -> str:
        names = FAMILIES[self.config.family].names_in(self.checkpoint.format)
        return names[role].format(layer)

    def _stored(self, role: str, layer: int) -> str:
        """The type a tensor is stored as."""
        info = self.checkpoint.tensors.get(self._name(role, layer))
        return info.dtype if info else "F32"  # of a model that lacks it sizes may be asked all the same

    def _vector(self, role: str, layer: int) -> Floats:
        """A bias or a norm as the file has it, in our order."""
        values = self.checkpoint.read(self._name(role, layer))
        ours = np.empty_like(values)
        ours[self._places(role, len(values), 0, len(values))] = values
        return ours

    def _norm(self, role: str, layer: int) -> Floats:
        """A norm's weights, as they multiply."""
        weights = self._vector(role, layer)
        stores_plain = FAMILIES[self.config.family].norm_plus_one and self.checkpoint.format == "safetensors"
        return weights + 1 if stores_plain else weights

    def _slabs(self, part: Rows, layer: int, n_rows: int) -> Iterator[tuple[Places, Floats]]:
        """A tensor some rows at a time, and where they go."""
        first = 0
        for slab in self.checkpoint.slabs(self._name(part.role, layer), n_rows):
            yield self._places(part.role, part.n, first, first + len(slab)), slab
            first += len(slab)

    def _places(self, role: str, rows: int, first: int, stop: int) -> Places:
        """Where the rows `first` … `stop`-1 of the file's `rows` go in ours."""
        ours = head_order.places(self.config, self.checkpoint.format, role, rows)
        return slice(first, stop) if ours is None else ours[first:stop]

    # --- packing ---

    def _matrix(self, matrix: Matrix, stage: Stage) -> Arrays:
        """One matrix in the form of this dtype; rows of mixed forms are kept apart as name.0, name.1, …"""
        layer = stage.layer
        forms = [self._form(matrix, part, layer) for part in matrix.parts]
        if forms[0].bits == 32:
            arrays: Arrays = {f"{matrix.name}.w": self._plain(matrix, layer)}
        elif len(set(forms)) == 1:
            arrays = self._packed(matrix.name, matrix, matrix.parts, forms[0], stage)
        else:
            arrays = {}
            for i, (part, form) in enumerate(zip(matrix.parts, forms)):
                arrays |= self._packed(f"{matrix.name}.{i}", matrix, [part], form, stage)
        if matrix.bias:
            biases = [self._vector(f"{part.role}_bias", layer) for part in matrix.parts]
            arrays[f"{matrix.name}.bias"] = np.concatenate(biases)
        return arrays

    def _plain(self, matrix: Matrix, layer: int) -> Floats:
        """A layer's product takes (in, out); embedding and head stay as they are, rows of the vocabulary."""
        is_end = layer < 0
        values = np.empty((matrix.rows, matrix.columns)[:: 1 if is_end else -1], np.float32)
        rows, at = values if is_end else values.T, 0
        for part in matrix.parts:
            ours = rows[at : at + part.n]
            for places, slab in self._slabs(part, layer, _slab_rows(matrix.columns)):
                ours[places] = slab
            at += part.n
        return values

    def _packed(self, name: str, matrix: Matrix, parts: Sequence[Rows], form: _Form, stage: Stage) -> Arrays:
        """Rows of one form under each other. Grids come in slabs, so that nothing but the result grows."""
        rows, blocks, at = sum(part.n for part in parts), matrix.columns // BLOCK, 0
        codes = np.empty((rows, blocks, BLOCK * form.bits // 8), np.uint8)
        scales = np.empty((rows, blocks), np.float32)
        offsets = np.empty((blocks, rows), np.float32) if form.offsets else None
        for part in parts:
            ours = slice(at, at + part.n)
            for places, grid in self._grids(part, form, matrix, stage):
                codes[ours][places], scales[ours][places] = grid.codes, grid.scales
                if offsets is not None:
                    offsets[:, ours][:, places] = grid.offsets
            at += part.n
        arrays: Arrays = {f"{name}.q{form.bits}": codes, f"{name}.scales": scales}
        return arrays if offsets is None else {**arrays, f"{name}.offsets": offsets}

    def _grids(self, part: Rows, form: _Form, matrix: Matrix, stage: Stage) -> Iterator[tuple[Places, Grid]]:
        """The file's own grid where it is of this form, else one fitted to the values; slab by slab."""
        stored, layer = self._stored(part.role, stage.layer), stage.layer
        if quantize.gguf_form(stored) != (form.bits, form.offsets):
            fit, rows = self._fit(form, matrix, stage)
            for places, slab in self._slabs(part, layer, rows):
                yield places, fit(slab)
            return
        raw, n = self.checkpoint.blocks(self._name(part.role, layer)), _slab_rows(matrix.columns)
        for first in range(0, part.n, n):
            grid = quantize.from_gguf(stored, raw[first : first + n])
            yield self._places(part.role, part.n, first, first + len(grid.scales)), grid

    def _fit(self, form: _Form, matrix: Matrix, stage: Stage) -> tuple[Fit, int]:
        """How values become codes, and how many rows at a time."""
        if form.bits == 4 and self.rounding:
            return self.rounding.fit(stage, matrix), ROWS
        return quantize.int4 if form.bits == 4 else quantize.int8, _slab_rows(matrix.columns)


def _slab_rows(columns: int) -> int:
    """Rows that are worked on together: what stays in the processor's cache."""
    return max(CHUNK_VALUES // columns, 1)
