"""Fitted 4-bit grids: exact where weights lie on one, never worse than rounding, whatever the inputs were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trisplit.errors import RequestProblem
from trisplit.models import quantize
from trisplit.models.fitting import Fitter, metric
from trisplit.models.quantize import BLOCK, Grid

SEEDS = st.integers(0, 2**32 - 1)


def normal(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def gram(columns: int, seed: int = 0, *, tokens: int = 400, dead: int = 0) -> np.ndarray:
    """Of inputs that lean on each other and differ in size; the first `dead` are always zero."""
    random = np.random.default_rng(seed)
    mixing = np.eye(columns) + 0.3 * random.standard_normal((columns, columns))
    x = random.standard_normal((tokens, columns)) @ mixing * random.lognormal(0, 1, columns)
    x[:, :dead] = 0
    return x.T @ x / tokens


def cost(weights: np.ndarray, grid: Grid, measure: np.ndarray) -> float:
    off = (weights - grid.dequantize()).astype(np.float64)
    return float(((off @ measure) * off).sum())


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_weights_on_a_grid_are_recovered_whatever_they_are_given(seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (5, 2, BLOCK))
    codes[..., 0], codes[..., 1] = 0, 15
    scales, lows = random.uniform(0.01, 1, (5, 2, 1)), random.uniform(-2, 0, (5, 2, 1))
    weights = (codes * scales + lows).astype(np.float32).reshape(5, -1)
    found = Fitter(gram(2 * BLOCK, seed % 1000))(weights)
    np.testing.assert_allclose(found.dequantize(), weights, atol=2e-5)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 3), st.sampled_from([1, 5, 300]), st.integers(0, 40), st.floats(0.1, 4))
def test_never_further_off_than_round_to_nearest(
    seed: int, blocks: int, tokens: int, dead: int, tail: float
) -> None:
    weights = normal(4, blocks * BLOCK, seed)
    weights = np.sign(weights) * np.abs(weights) ** np.float32(tail)
    seen = gram(blocks * BLOCK, seed, tokens=tokens, dead=dead)
    fitted, nearest = Fitter(seen)(weights), quantize.int4_nearest(weights)
    assert cost(weights, fitted, metric(seen)) <= cost(weights, nearest, metric(seen)) * 1.0001 + 1e-9


def test_far_nearer_in_what_comes_out_than_a_fit_to_the_weights_alone() -> None:
    weights, seen = normal(64, 256), gram(256)
    fitted, searched = Fitter(seen)(weights), quantize.int4(weights)
    assert cost(weights, fitted, seen) < 0.4 * cost(weights, searched, seen)
    assert cost(weights, searched, seen) < cost(weights, quantize.int4_nearest(weights), seen)


def test_inputs_that_lean_on_each_other_are_used() -> None:
    """The same sizes without the leaning do worse: errors must be handed on to make up for each other."""
    weights, seen = normal(64, 256), gram(256)
    alone = Fitter(np.diag(np.diag(seen)))(weights)
    assert cost(weights, Fitter(seen)(weights), seen) < 0.7 * cost(weights, alone, seen)


def test_without_any_input_it_is_a_good_grid_all_the_same() -> None:
    weights = normal(16, 64)
    fitted = Fitter(np.zeros((64, 64)))(weights)
    off, of_search = (np.square(g.dequantize() - weights).sum() for g in (fitted, quantize.int4(weights)))
    assert off <= of_search * 1.01


def test_dead_inputs_keep_their_weights() -> None:
    weights = normal(16, 96)
    fitted = Fitter(gram(96, dead=48))(weights).dequantize()
    off = np.abs(fitted - weights)
    assert off[:, :BLOCK].max() < 0.25  # a block of none but dead ones
    assert off[:, BLOCK:48].mean() < 0.3  # beside others, which count for more


def test_fewer_tokens_than_inputs_are_enough_for_a_fit() -> None:
    weights, seen = normal(16, 128), gram(128, tokens=20)
    fitted = Fitter(seen)(weights)
    assert cost(weights, fitted, seen) < 0.5 * cost(weights, quantize.int4(weights), seen)
    assert np.abs(fitted.dequantize() - weights).max() < 2


def test_rows_are_fitted_alone() -> None:
    """More rows than are worked on together, and each as it would be by itself."""
    weights, fitter = normal(520, 64), Fitter(gram(64))
    together = fitter(weights)
    alone = fitter(weights[513:514])
    np.testing.assert_allclose(together.dequantize()[513:514], alone.dequantize(), atol=1e-5)


def test_any_multiple_of_the_moments_gives_the_same() -> None:
    weights, seen = normal(8, 64), gram(64)
    grids = [Fitter(seen * factor)(weights) for factor in (1.0, 1024.0)]
    assert np.array_equal(grids[0].codes, grids[1].codes)


def test_blocks_of_one_value_are_exact() -> None:
    weights = np.zeros((2, 64), np.float32)
    weights[0, :32], weights[1, 32:] = 0.75, -3.0
    np.testing.assert_allclose(Fitter(gram(64))(weights).dequantize(), weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        np.full((64, 64), np.nan),
        np.full((64, 64), np.inf),
        -np.eye(64),
        np.eye(40),
        np.ones((64, 32)),
        np.ones(64),
    ],
    ids=["nan", "inf", "negative", "no blocks", "not square", "no matrix"],
)
def test_what_cannot_be_second_moments_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(RequestProblem, match="second moments"):
        Fitter(bad)
