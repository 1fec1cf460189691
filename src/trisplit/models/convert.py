"""Stage weights in the engine's layout, made once and kept in the cache directory, a file a stage.

Each file is plain safetensors, so any tool can open it; the runtime maps its byte ranges.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from trisplit.errors import CheckpointProblem
from trisplit.models import quantize
from trisplit.models.checkpoint import CHUNK_VALUES, FLOATS, Checkpoint
from trisplit.models.config import EMBED, HEAD, ModelConfig, Stage
from trisplit.models.families import FAMILIES
from trisplit.models.folder import read_member
from trisplit.models.layout import Matrix, Rows, layout
from trisplit.models.quantize import BLOCK, Floats, Grid
from trisplit.paths import cache_dir, unwritable

Dtype = Literal["f32", "int8", "int4"]
DTYPES: Final[tuple[Dtype, ...]] = ("f32", "int8", "int4")

_LAYOUT: Final = 2  # raise it when what a file holds changes: old files are then made again
_STALE_S: Final = 3600.0

Arrays = dict[str, NDArray[Any]]


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

    Forms are `.w` (f32), `.q8` or `.q4` with `.scales` (and `.offsets`), and `.bias`.
    """

    stage: Stage
    folder: Path
    tensors: Mapping[str, Stored]

    @property
    def stem(self) -> str:
        """A name for the stage that is unique in a graph."""
        return _stem(self.stage)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights the stage computes with."""
        return sum(t.n_bytes for t in self.tensors.values())

    def has_matrix(self, name: str) -> bool:
        """Whether a matrix (or a part of one) of this name lies here."""
        return any(f"{name}.{form}" in self.tensors for form in ("w", "q8", "q4"))


def stage_file(checkpoint: Checkpoint, config: ModelConfig, stage: Stage, dtype: Dtype) -> StageFile:
    """The converted weights of one stage; made now unless the cache has them.

    Reads only this stage's tensors. Safe with other processes doing the same: a file appears whole
    or not at all, and one that is not whole is made again. The checkpoint holds what the config promises:
    `open_model` has seen to that. RequestProblem when the cache cannot be written.
    """
    folder = cache_dir() / "engine" / f"{checkpoint.digest[:24]}-{dtype}-{_LAYOUT}"
    path = folder / f"{_stem(stage)}.safetensors"
    is_tied = stage == HEAD and config.tied_head
    n_bytes = stage_bytes(checkpoint, config, stage, dtype)
    n_bytes -= stage_bytes(checkpoint, config, EMBED, dtype) if is_tied else 0
    tensors = _contents(path, n_bytes)
    if tensors is None:
        _write(_Reader(checkpoint, config, dtype).arrays(stage), path)
        tensors = _contents(path, n_bytes)
    if tensors is None:
        raise unwritable(folder, EOFError(f"{path.name} is not whole after it was written"))
    if is_tied:  # the head is the embedding's own bytes
        embed = stage_file(checkpoint, config, EMBED, dtype)
        tensors |= {name.replace("embed", "head"): stored for name, stored in embed.tensors.items()}
    return StageFile(stage, folder, tensors)


def stage_bytes(checkpoint: Checkpoint, config: ModelConfig, stage: Stage, dtype: Dtype) -> int:
    """Bytes of weights `stage_file` would hold, told from the checkpoint's header alone."""
    reader, parts = _Reader(checkpoint, config, dtype), layout(config, stage)
    norms = sum(4 * width for _, width in parts.norms)
    return norms + sum(reader.matrix_bytes(matrix, stage.layer) for matrix in parts.matrices)


def _stem(stage: Stage) -> str:
    return stage.kind if stage.layer < 0 else f"{stage.kind}-{stage.layer:03}"


def _write(arrays: Arrays, path: Path) -> None:
    """Puts the arrays there, whole or not at all; RequestProblem when the cache cannot take them."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        save_file(arrays, draft)
        draft.replace(path)
    except (OSError, SafetensorError) as error:
        raise unwritable(path.parent, error) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Removes drafts that a killed process has left an hour ago or more."""
    for draft in folder.glob(".*"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > _STALE_S:
                draft.unlink()


def _contents(path: Path, n_bytes: int) -> dict[str, Stored] | None:
    """What lies in a file; None if it is missing, foreign or not whole, as after a power cut."""
    try:
        places = read_member(path).places
    except (OSError, CheckpointProblem):
        return None
    if sum(place.info.n_bytes for place in places.values()) != n_bytes:
        return None
    return {
        name: Stored(path.name, place.info.dtype, place.info.shape, place.offset, place.info.n_bytes)
        for name, place in places.items()
    }


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

    def arrays(self, stage: Stage) -> Arrays:
        """All arrays of one stage, but for a head that is the embedding."""
        parts, arrays = layout(self.config, stage), Arrays()
        for matrix in parts.matrices:
            if not (stage == HEAD and self.config.tied_head):
                arrays |= self._matrix(matrix, stage.layer)
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
        at most, for the same reason.
        """
        if self.dtype == "f32" or matrix.columns % BLOCK:
            return _Form(32)
        if self.dtype == "int8" or layer < 0:
            return _Form(8)
        stored = self._stored(part.role, layer)
        if stored in FLOATS:
            return _Form(4, offsets=True)
        bits, offsets = quantize.gguf_form(stored) or (8, False)
        return _Form(bits, offsets)

    # --- reading ---

    def _name(self, role: str, layer: int) -> str:
        names = FAMILIES[self.config.family].names_in(self.checkpoint.format)
        return names[role].format(layer)

    def _stored(self, role: str, layer: int) -> str:
        """The type a tensor is stored as."""
        info = self.checkpoint.tensors.get(self._name(role, layer))
        return info.dtype if info else "F32"  # of a model that lacks it sizes may be asked all the same

    def _bias(self, role: str, layer: int) -> Floats:
        """A bias, in our order."""
        values = self.checkpoint.read(self._name(role, layer))
        return values[self._order(role, len(values))]

    def _norm(self, role: str, layer: int) -> Floats:
        """A norm's weights, as they multiply."""
        weights = self.checkpoint.read(self._name(role, layer))
        stores_plain = FAMILIES[self.config.family].norm_plus_one and self.checkpoint.format == "safetensors"
        return weights + 1 if stores_plain else weights

    def _slabs(self, role: str, layer: int, columns: int) -> Iterator[Floats]:
        """A matrix, some rows at a time, in our order."""
        for slab in self.checkpoint.slabs(self._name(role, layer), self._slab_rows(role, columns)):
            yield slab[self._order(role, len(slab))]

    def _slab_rows(self, role: str, columns: int) -> int:
        """Rows that are worked on together: what stays in the processor's cache, and whole heads of pairs."""
        unit = self.config.head_dim if self._is_paired(role) else 1
        return max(CHUNK_VALUES // columns // unit, 1) * unit

    def _is_paired(self, role: str) -> bool:
        """Whether rows lie in rotary pairs (x0 y0 x1 y1 …), as those of llama-like q and k in GGUF."""
        pairs = self.checkpoint.format == "gguf" and FAMILIES[self.config.family].gguf_pairs_rows
        return pairs and role in ("q", "k", "q_bias", "k_bias")

    def _order(self, role: str, rows: int) -> NDArray[np.int64] | slice:
        """Where the rows of whole heads, in our order, lie in the file's."""
        if not self._is_paired(role):
            return slice(None)
        pairs = np.arange(rows).reshape(-1, self.config.head_dim // 2, 2)
        return pairs.swapaxes(1, 2).reshape(-1)

    # --- packing ---

    def _matrix(self, matrix: Matrix, layer: int) -> Arrays:
        """One matrix in the form of this dtype; rows of mixed forms are kept apart as name.0, name.1, …"""
        forms = [self._form(matrix, part, layer) for part in matrix.parts]
        if forms[0].bits == 32:
            arrays: Arrays = {f"{matrix.name}.w": self._plain(matrix, layer)}
        elif len(set(forms)) == 1:
            arrays = self._packed(matrix.name, matrix.parts, forms[0], layer, matrix.columns)
        else:
            arrays = {}
            for i, (part, form) in enumerate(zip(matrix.parts, forms)):
                arrays |= self._packed(f"{matrix.name}.{i}", [part], form, layer, matrix.columns)
        if matrix.bias:
            biases = [self._bias(f"{part.role}_bias", layer) for part in matrix.parts]
            arrays[f"{matrix.name}.bias"] = np.concatenate(biases)
        return arrays

    def _plain(self, matrix: Matrix, layer: int) -> Floats:
        """A layer's product takes (in, out); embedding and head stay as they are, rows of the vocabulary."""
        is_end = layer < 0
        values = np.empty((matrix.rows, matrix.columns)[:: 1 if is_end else -1], np.float32)
        rows, at = values if is_end else values.T, 0
        for part in matrix.parts:
            for slab in self._slabs(part.role, layer, matrix.columns):
                rows[at : at + len(slab)] = slab
                at += len(slab)
        return values

    def _packed(self, name: str, parts: Sequence[Rows], form: _Form, layer: int, columns: int) -> Arrays:
        """Rows of one form under each other. Grids come in slabs, so that nothing but the result grows."""
        rows, blocks, at = sum(part.n for part in parts), columns // BLOCK, 0
        codes = np.empty((rows, blocks, BLOCK * form.bits // 8), np.uint8)
        scales = np.empty((rows, blocks), np.float32)
        offsets = np.empty((blocks, rows), np.float32) if form.offsets else None
        for part in parts:
            for grid in self._grids(part, form, layer, columns):
                to = at + len(grid.scales)
                codes[at:to], scales[at:to] = grid.codes, grid.scales
                if offsets is not None:
                    offsets[:, at:to] = grid.offsets
                at = to
        arrays: Arrays = {f"{name}.q{form.bits}": codes, f"{name}.scales": scales}
        return arrays if offsets is None else {**arrays, f"{name}.offsets": offsets}

    def _grids(self, part: Rows, form: _Form, layer: int, columns: int) -> Iterator[Grid]:
        """The file's own grid where it is of this form, else one fitted to the values; slab by slab."""
        stored = self._stored(part.role, layer)
        if quantize.gguf_form(stored) != (form.bits, form.offsets):
            fit = quantize.int4 if form.bits == 4 else quantize.int8
            yield from map(fit, self._slabs(part.role, layer, columns))
            return
        raw, n = self.checkpoint.blocks(self._name(part.role, layer)), self._slab_rows(part.role, columns)
        for first in range(0, part.n, n):
            grid = quantize.from_gguf(stored, raw[first : first + n])
            yield grid.rows(self._order(part.role, len(grid.scales)))
