"""Grids whose scales and offsets are halves, as files of 8 and 4 bits hold them: writing them loses nothing.

Weights on such a grid come back whoever looks for it: Q8_0 takes a block's largest magnitude for 127 steps,
Q4_1 its smallest and largest for codes 0 and 15 (ggml-quants), and `quantize.int8` and `int4` do the same. So
each block here reaches both ends of its codes, and a half times a code is exact in float32.
"""

from __future__ import annotations

import numpy as np

from trisplit.models.quantize import BLOCK, Codes, Floats, Grid, on_grid


def int8_halves(weights: Floats) -> Grid:
    """Symmetric 8-bit codes of (rows, columns), the scale a half."""
    blocks = weights.reshape(len(weights), -1, BLOCK)
    largest = np.abs(blocks).max(axis=-1)
    scales = _half(largest / np.float32(127))
    # Of halves near the smallest there is, the next may be so much larger that no code would reach 127.
    short = largest < np.float32(126.5) * scales
    scales = np.where(short, _below(scales), scales)
    safe = np.where(scales == 0, np.float32(1), scales)
    codes = np.clip(np.rint(blocks / safe[..., None]), -127, 127)
    codes = np.where(scales[..., None] == 0, 0, codes)
    return Grid(8, (codes + 128).astype(np.uint8), scales)


def int4_halves(grid: Grid, weights: Floats) -> Grid:
    """A 4-bit grid with offsets, its scales and offsets rounded to halves.

    A block whose codes leave out 0 or 15 would not be found again by its smallest and largest value: it is
    rounded anew between those of its `weights`, which are what `grid` was fitted to.
    """
    if grid.offsets is None:
        raise ValueError("a grid without offsets")
    low4 = np.stack([grid.codes & 15, grid.codes >> 4], axis=-1)
    codes = low4.reshape(*grid.codes.shape[:2], BLOCK)
    minimums = grid.offsets.T - 8 * grid.scales
    wide = (codes.min(axis=-1) == 0) & (codes.max(axis=-1) == 15) & (_half(grid.scales) > 0)
    blocks = weights.reshape(len(weights), -1, BLOCK)
    low, high = blocks.min(axis=-1), blocks.max(axis=-1)
    scales = _half(np.where(wide, grid.scales, (high - low) / np.float32(15)))
    starts = _half(np.where(wide, minimums, low))
    anew = _reaching(blocks, starts, scales)
    return on_grid(np.where(wide[..., None], codes, anew), scales, starts)


def _reaching(blocks: Floats, starts: Floats, scales: Floats) -> Codes:
    """The nearest codes, the smallest of a block being 0 and the largest 15; all 0 where there is no step."""
    safe = np.where(scales == 0, np.float32(1), scales)
    codes = np.clip(np.rint((blocks - starts[..., None]) / safe[..., None]), 0, 15)
    for code, place in ((15, blocks.argmax(axis=-1)), (0, blocks.argmin(axis=-1))):
        np.put_along_axis(codes, place[..., None], code, axis=-1)
    return np.where(scales[..., None] == 0, 0, codes).astype(np.uint8)


def _half(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def _below(values: Floats) -> Floats:
    """The next smaller halves; of zero zero."""
    return np.nextafter(values.astype(np.float16), np.float16(0)).astype(np.float32)
