"""Blockwise int8 and int4: 32 weights share a scale, and at 4 bits an offset too.

Layouts are those of onnxruntime's MatMulNBits: codes [rows, blocks, bytes], scales [rows, blocks].
All functions take matrices as (rows, columns) = (out, in) and quantise along the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCK: Final = 32

Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]

# Ends tried for each block when a 4-bit grid is fitted: fractions of the block's range cut off
# below and above. Both ends move alone, for outliers mostly stand on one side.
_CUTS: Final = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2)


@dataclass(frozen=True, slots=True)
class Grid:
    """Codes and what they mean: w = scale · (code - zero) + offset, zero being 8 or 128."""

    bits: int
    codes: Codes  # [rows, blocks, 32 * bits / 8]; 4-bit: the even column in the low half of a byte
    scales: Floats  # [rows, blocks]
    offsets: Floats | None = None  # [blocks, rows]: transposed, as the product with block sums wants it

    def dequantize(self) -> Floats:
        """The weights the codes stand for, (rows, columns)."""
        if self.bits == 4:
            both = np.stack([self.codes & 15, self.codes >> 4], axis=-1)
            codes = both.reshape(*self.codes.shape[:2], BLOCK).astype(np.float32) - 8
        else:
            codes = self.codes.astype(np.float32) - 128
        blocks = codes * self.scales[..., None]
        if self.offsets is not None:
            blocks += self.offsets.T[..., None]
        return blocks.reshape(len(blocks), -1)


def _blocks(weights: Floats) -> Floats:
    rows, columns = weights.shape
    return weights.reshape(rows, columns // BLOCK, BLOCK)


def pack4(codes: Codes) -> Codes:
    """4-bit codes [..., 32] to bytes [..., 16], the even column in the low half."""
    packed: Codes = codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))
    return packed


def int8(weights: Floats) -> Grid:
    """Symmetric: scale = largest magnitude of the block / 127.

    Values already on such a grid (a Q8_0 block) come back exactly.
    """
    blocks = _blocks(weights)
    scales = np.abs(blocks).max(axis=-1) / np.float32(127)
    safe = np.where(scales == 0, np.float32(1), scales)
    codes = (np.rint(blocks / safe[..., None]) + 128).astype(np.uint8)
    return Grid(8, codes, scales)


def int4_nearest(weights: Floats) -> Grid:
    """Round-to-nearest: 16 levels from the smallest to the largest of each block."""
    blocks = _blocks(weights)
    low = blocks.min(axis=-1)
    step = (blocks.max(axis=-1) - low) / np.float32(15)
    return on_grid(_nearest(blocks, low, step).astype(np.uint8), step, low)


def int4(weights: Floats) -> Grid:
    """Scale and offset per block, fitted by a search over both ends of its range.

    For each pair of ends the block is rounded to 16 levels, then scale and offset are refitted to
    the codes by least squares; the pair with the smallest squared error is kept. A block that lies
    on a 4-bit grid already is recovered exactly (the uncut ends).
    """
    blocks = _blocks(weights)
    low, high, mean = blocks.min(axis=-1), blocks.max(axis=-1), blocks.mean(axis=-1)
    around = blocks - mean[..., None]
    best = np.full(low.shape, np.inf, dtype=np.float32)
    codes = np.zeros(blocks.shape, dtype=np.uint8)
    scales, offsets = np.zeros_like(low), np.zeros_like(low)
    for below in _CUTS:
        for above in _CUTS:
            span = high - low
            step = (span * np.float32(1 - below - above)) / np.float32(15)
            q = _nearest(blocks, low + span * np.float32(below), step)
            scale, offset = _line(q, around, mean)
            error = np.square(q * scale[..., None] + offset[..., None] - blocks).sum(axis=-1)
            better = error < best
            best = np.where(better, error, best)
            codes = np.where(better[..., None], q.astype(np.uint8), codes)
            scales, offsets = np.where(better, scale, scales), np.where(better, offset, offsets)
    return on_grid(codes, scales, offsets)


def _nearest(blocks: Floats, start: Floats, step: Floats) -> Floats:
    """The codes 0-15 of a grid beginning at `start` that lie next to the weights."""
    safe = np.where(step == 0, np.float32(1), step)
    codes: Floats = np.clip(np.rint((blocks - start[..., None]) / safe[..., None]), 0, 15)
    return codes


def _line(q: Floats, around: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Scale and offset that suit these codes best (least squares); the weights are mean + around."""
    q_mean = q.mean(axis=-1)
    q_around = q - q_mean[..., None]
    spread, slope = np.square(q_around).sum(axis=-1), (q_around * around).sum(axis=-1)
    scale = np.where(spread > 0, slope / np.where(spread > 0, spread, 1), 0).astype(np.float32)
    return scale, (mean - scale * q_mean).astype(np.float32)


def on_grid(codes: Codes, scales: Floats, minimums: Floats | None) -> Grid:
    """A grid that is already chosen: w = scale · code + minimum, codes 0-15 [rows, blocks, 32].

    The kernel reads codes as code - 8, so the offset it must add is minimum + 8 · scale. With
    `minimums` None the grid is symmetric around code 8 and needs no offset.
    """
    if minimums is None:
        return Grid(4, pack4(codes), scales)
    offsets = np.ascontiguousarray((minimums + 8 * scales).T)
    return Grid(4, pack4(codes), scales, offsets)


# --- grids as GGUF files store them -----------------------------------------------------------------
# Layouts: ggml-quants (block_q4_0, block_q4_1, block_q4_K, block_q8_0).


def _halves(quants: Codes) -> Codes:
    """ggml keeps columns 0-15 in the low and 16-31 in the high halves of 16 bytes."""
    return np.concatenate([quants & 15, quants >> 4], axis=-1)


def _f16(raw: Codes) -> Floats:
    return np.ascontiguousarray(raw).view(np.float16)[..., 0].astype(np.float32)


def _q4_0(raw: Codes) -> Grid:
    blocks = raw.reshape(len(raw), -1, 18)
    return on_grid(_halves(blocks[..., 2:]), _f16(blocks[..., :2]), None)


def _q4_1(raw: Codes) -> Grid:
    blocks = raw.reshape(len(raw), -1, 20)
    return on_grid(_halves(blocks[..., 4:]), _f16(blocks[..., :2]), _f16(blocks[..., 2:4]))


def _q8_0(raw: Codes) -> Grid:
    blocks = raw.reshape(len(raw), -1, 34)
    return Grid(8, blocks[..., 2:] ^ np.uint8(128), _f16(blocks[..., :2]))


def _q4_k(raw: Codes) -> Grid:
    """Super-blocks of 256: w = d · scale · code - dmin · minimum, six-bit scales and minimums of 8 blocks."""
    supers = raw.reshape(len(raw), -1, 144)
    d, dmin = _f16(supers[..., 0:2]), _f16(supers[..., 2:4])
    low, mid, high = supers[..., 4:8], supers[..., 8:12], supers[..., 12:16]
    scales6 = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=-1)
    mins6 = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=-1)
    quants = supers[..., 16:].reshape(*supers.shape[:2], 4, 32)
    codes = np.stack([quants & 15, quants >> 4], axis=-2).reshape(len(raw), -1, BLOCK)
    scales = (d[..., None] * scales6).astype(np.float32).reshape(len(raw), -1)
    minimums = (-dmin[..., None] * mins6).astype(np.float32).reshape(len(raw), -1)
    return on_grid(codes, scales, minimums)


_GGUF: Final[Mapping[str, tuple[int, bool, Callable[[Codes], Grid]]]] = {
    "Q4_0": (4, False, _q4_0),
    "Q4_1": (4, True, _q4_1),
    "Q4_K": (4, True, _q4_k),
    "Q8_0": (8, False, _q8_0),
}
"""Types whose grid is one of ours: bits, whether it has offsets, and how it is read."""


def gguf_form(kind: str) -> tuple[int, bool] | None:
    """Bits and offsets of a GGUF type's own grid; None if it is not one of ours."""
    return _GGUF[kind][:2] if kind in _GGUF else None


def from_gguf(kind: str, raw: Codes) -> Grid:
    """The grid of GGUF blocks [rows, bytes per row], bit for bit; KeyError for kinds without a form."""
    return _GGUF[kind][2](raw)
