"""Blockwise grids: exact where the weights lie on one, close where they do not, and the file's own bits."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf import quants as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from trisplit.models import quantize
from trisplit.models.quantize import BLOCK


def normal(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4))
def test_int8_is_off_by_half_a_step_at_most(seed: int, rows: int, blocks: int) -> None:
    weights = normal(rows, blocks * BLOCK, seed)
    grid = quantize.int8(weights)
    half_step = np.repeat(grid.scales, BLOCK, axis=1) / 2
    assert (np.abs(grid.dequantize() - weights) <= half_step * 1.0001).all()


@given(st.integers(0, 2**32 - 1))
def test_int8_keeps_a_grid_it_meets(seed: int) -> None:
    weights = quantize.int8(normal(4, 64, seed)).dequantize()
    np.testing.assert_allclose(quantize.int8(weights).dequantize(), weights, rtol=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_int4_recovers_weights_that_lie_on_a_grid(seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (3, 2, BLOCK))
    codes[..., 0], codes[..., 1] = 0, 15  # both ends are taken, as a min/max quantizer leaves them
    scales, lows = random.uniform(0.01, 1, (3, 2, 1)), random.uniform(-2, 0, (3, 2, 1))
    weights = (codes * scales + lows).astype(np.float32).reshape(3, -1)
    np.testing.assert_allclose(quantize.int4(weights).dequantize(), weights, atol=1e-5)


def test_int4_search_beats_plain_minimum_and_maximum() -> None:
    weights = normal(64, 256)
    blocks = weights.reshape(64, 8, BLOCK)
    low, step = blocks.min(-1, keepdims=True), np.ptp(blocks, axis=-1, keepdims=True) / 15
    plain = (np.rint((blocks - low) / step) * step + low).reshape(64, -1)
    fitted = quantize.int4(weights).dequantize()
    assert np.square(fitted - weights).mean() < 0.9 * np.square(plain - weights).mean()


def test_blocks_of_one_value_and_of_zeros_are_exact() -> None:
    weights = np.zeros((2, 64), np.float32)
    weights[0, :32], weights[1, 32:] = 0.75, -3.0
    for quantized in (quantize.int4(weights), quantize.int8(weights)):
        np.testing.assert_allclose(quantized.dequantize(), weights, rtol=1e-6)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_a_file_s_own_grid_is_kept_to_the_last_bit(kind: str) -> None:
    raw = reference.quantize(normal(5, 128), GGMLQuantizationType[kind])
    grid = quantize.from_gguf(kind, raw)
    bits, offsets = quantize.gguf_form(kind) or (0, False)
    assert (grid.bits, grid.offsets is not None) == (bits, offsets)
    expected = reference.dequantize(raw, GGMLQuantizationType[kind])
    # w = d·q + m is computed as d·(q - 8) + (m + 8d): equal but for the last rounding.
    np.testing.assert_allclose(grid.dequantize(), expected, rtol=0, atol=4e-7 * np.abs(expected).max())


def test_a_q4_k_super_block_is_eight_blocks_of_ours() -> None:
    random = np.random.default_rng(1)
    raw = random.integers(0, 256, (6, 2 * 144), dtype=np.uint8)
    for half in (0, 144):
        raw[:, half : half + 4] = np.array([0.01, 0.02], np.float16).view(np.uint8)
    expected = reference.dequantize(raw, GGMLQuantizationType.Q4_K)
    grid = quantize.from_gguf("Q4_K", raw)
    assert grid.scales.shape == (6, 16)
    np.testing.assert_allclose(grid.dequantize(), expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["Q5_0", "Q6_K", "F16"])
def test_other_types_have_no_grid_of_ours(kind: str) -> None:
    assert quantize.gguf_form(kind) is None
