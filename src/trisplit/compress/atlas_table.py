"""An atlas as a packed table of 32-bit words: a file of some kilobytes, or a key of a model's own file.

All words are little endian. Sixteen of a header: `TATL`, version, layers, words of a layer, matrices of a
layer, the threshold, 1 if calibrated, CRC-32 of what follows, eight of zero. Then the layers, one after the
other, all as long: what a layer has begins at 16 + layer · words, and nothing before it needs to be read.
A layer: cliff, zone, a bit for each matrix that passes, heads, heads that pass, neurons, how many of these
carry 90 % and 99 % of the variance (0 where not known); then for each of q k v out gate up down its COLUMNS.
Numbers that are not whole are IEEE floats; what is not there is not a number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.compress.anatomy import ROLES, Role
from trisplit.compress.atlas import ZONES, Atlas, Layer, Row, Zone
from trisplit.errors import CheckpointProblem, RequestProblem

Words = NDArray[np.uint32]

KEY: Final = "trisplit.atlas"
"""The name of the table among the keys of a GGUF, and in the metadata of a safetensors file (base64)."""

COLUMNS: Final = (
    "cliff",
    "stable_rank",
    "effective_rank",
    "tail_25",
    "tail_50",
    "tail_75",
    "white_effective_rank",
    "white_tail_25",
    "white_tail_50",
    "white_tail_75",
)
_MAGIC: Final = int.from_bytes(b"TATL", "little")
_VERSION: Final = 1
_HEADER: Final = 16
_OF_LAYER: Final = 8
_STRIDE: Final = _OF_LAYER + len(ROLES) * len(COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the table has of one layer; `passes` and `columns` of the matrices it has."""

    layer: int
    cliff: float
    zone: Zone
    heads: int
    heads_passing: int
    neurons: int
    carry_90: int
    carry_99: int
    passes: Mapping[Role, bool]
    columns: Mapping[Role, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class AtlasTable:
    """The words of a table, checked; a layer is found without reading any other."""

    words: Words

    @property
    def layers(self) -> int:
        return int(self.words[2])

    @property
    def threshold(self) -> float:
        return _float(self.words[5])

    def layer(self, layer: int) -> Entry:
        """What it has of one layer; RequestProblem for one it has not."""
        if not 0 <= layer < self.layers:
            raise RequestProblem(f"the atlas has no layer {layer}", fix=f"ask for 0 to {self.layers - 1}")
        of = self.words[_HEADER + layer * _STRIDE :][:_STRIDE]
        values = of[_OF_LAYER:].view(np.float32).reshape(len(ROLES), len(COLUMNS))
        there = {role: row for role, row in zip(ROLES, values) if not np.isnan(row[1])}
        return Entry(
            layer=layer,
            cliff=_float(of[0]),
            zone=ZONES[int(of[1])],
            heads=int(of[3]),
            heads_passing=int(of[4]),
            neurons=int(of[5]),
            carry_90=int(of[6]),
            carry_99=int(of[7]),
            passes={role: bool(int(of[2]) >> ROLES.index(role) & 1) for role in there},
            columns={role: dict(zip(COLUMNS, map(float, row))) for role, row in there.items()},
        )


def pack(atlas: Atlas) -> AtlasTable:
    """The table of an atlas."""
    body = np.concatenate([_packed(atlas, layer) for layer in atlas.layers])
    header = np.zeros(_HEADER, np.uint32)
    calibrated = any(row.white for row in atlas.rows)
    header[:5] = _MAGIC, _VERSION, len(atlas.layers), _STRIDE, len(ROLES)
    header[5:8] = _bits(atlas.threshold), calibrated, zlib.crc32(body.astype("<u4").tobytes())
    return AtlasTable(np.concatenate([header, body]))


def _packed(atlas: Atlas, layer: Layer) -> Words:
    of = np.zeros(_STRIDE, np.uint32)
    matrices = {row.matrix: row for row in atlas.of(layer.layer)}
    heads = atlas.of(layer.layer, heads=True)
    passing = [ROLES.index(role) for role, row in matrices.items() if atlas.passes(row.plain.cliff)]
    of[0], of[1], of[2] = _bits(layer.cliff), ZONES.index(layer.zone), sum(1 << bit for bit in passing)
    of[3], of[4] = len(heads), sum(atlas.passes(row.plain.cliff) for row in heads)
    if layer.neurons:
        of[5:8] = len(layer.neurons.shares), layer.neurons.carrying(0.9), layer.neurons.carrying(0.99)
    values = np.full((len(ROLES), len(COLUMNS)), np.nan, np.float32)
    for role, row in matrices.items():
        values[ROLES.index(role)] = _columns(row)
    of[_OF_LAYER:] = values.reshape(-1).view(np.uint32)
    return of


def _columns(row: Row) -> list[float]:
    plain, white = row.plain, row.white
    seen = [math.nan] * 4 if white is None else [white.effective_rank, *white.tail]
    return [plain.cliff, plain.stable_rank, plain.effective_rank, *plain.tail, *seen]


def table_of(raw: bytes, where: str) -> AtlasTable:
    """The table in these bytes; CheckpointProblem when they are none, or damaged."""
    words = np.frombuffer(raw[: len(raw) // 4 * 4], "<u4").astype(np.uint32)
    if len(words) < _HEADER or words[0] != _MAGIC:
        raise CheckpointProblem(f"{where} holds no atlas", fix="make one with trisplit atlas … --save FILE")
    if words[1] != _VERSION or words[3] != _STRIDE or words[4] != len(ROLES):
        raise CheckpointProblem(f"{where} holds an atlas of another version", fix="make it again")
    body = words[_HEADER:]
    if len(body) != int(words[2]) * _STRIDE or zlib.crc32(body.astype("<u4").tobytes()) != words[7]:
        raise CheckpointProblem(f"the atlas in {where} is damaged", fix="make it again")
    if any(zone >= len(ZONES) for zone in body[1::_STRIDE]):
        raise CheckpointProblem(f"the atlas in {where} is damaged", fix="make it again")
    return AtlasTable(words)


def save_table(table: AtlasTable, path: Path) -> None:
    """Writes the words; RequestProblem when that cannot be done."""
    try:
        path.write_bytes(table.words.astype("<u4").tobytes())
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror or error}"
        raise RequestProblem(what, fix="make room there, or name another file") from error


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _float(word: np.uint32) -> float:
    return float(np.uint32(word).view(np.float32))
