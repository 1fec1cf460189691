"""Grids of halves: whoever looks for them finds them again, ours and ggml's."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st

from trisplit.models.halves import int4_halves, int8_halves
from trisplit.models.quantize import BLOCK, Floats, int4, int4_nearest, int8


def weights(seed: int, size: float, shift: float = 0.0) -> Floats:
    random = np.random.default_rng(seed)
    return ((random.standard_normal((8, 4 * BLOCK)) + shift) * size).astype(np.float32)


SIZES = st.floats(1e-9, 1e3)


@given(seed=st.integers(0, 2**32), size=SIZES)
def test_eight_bits_come_back_exactly(seed: int, size: float) -> None:
    grid = int8_halves(weights(seed, size))
    values = grid.dequantize()
    again = int8(values)
    assert np.array_equal(again.codes, grid.codes)
    assert np.array_equal(again.scales, grid.scales)
    assert np.array_equal(dequantize(quantize(values, Kind.Q8_0), Kind.Q8_0), values)
    assert np.array_equal(int8_halves(values).dequantize(), values)


@given(seed=st.integers(0, 2**32), size=SIZES, shift=st.floats(-3, 3))
def test_four_bits_come_back(seed: int, size: float, shift: float) -> None:
    original = weights(seed, size, shift)
    grid = int4_halves(int4(original), original)
    values = grid.dequantize()
    assert np.array_equal(dequantize(quantize(values, Kind.Q4_1), Kind.Q4_1), values)
    again = int4(values).dequantize()
    assert np.abs(again - values).max() <= 1e-6 * np.abs(values).max()
    nearest = int4_nearest(values)
    assert np.array_equal(int4_halves(nearest, values).dequantize(), values)


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_halves_cost_next_to_nothing(size: float) -> None:
    original = weights(1, size)
    for plain, halves in (
        (int8(original), int8_halves(original)),
        (int4(original), int4_halves(int4(original), original)),
    ):
        errors = [np.square(grid.dequantize() - original).sum() for grid in (plain, halves)]
        assert errors[1] <= 1.02 * errors[0]


def test_blocks_without_a_step_are_what_they_were() -> None:
    zeros, alike = np.zeros((1, BLOCK), np.float32), np.full((1, BLOCK), 0.5, np.float32)
    assert np.array_equal(int8_halves(zeros).dequantize(), zeros)
    for block in (zeros, alike):
        assert np.array_equal(int4_halves(int4(block), block).dequantize(), block)


def test_a_block_that_leaves_out_an_end_is_rounded_anew() -> None:
    """Codes 1 to 14 of a grid: whoever looks at the smallest and largest would find another step."""
    codes = np.tile(np.arange(16, dtype=np.uint8), 2)[None, None].clip(1, 14)
    from trisplit.models.quantize import on_grid

    odd = on_grid(codes, np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32))
    values = int4_halves(odd, odd.dequantize()).dequantize()
    assert np.array_equal(dequantize(quantize(values, Kind.Q4_1), Kind.Q4_1), values)
