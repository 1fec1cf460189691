"""Spectra: of planted singular values, beside numpy's own, and what rank and rounding do to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trisplit.compress.spectra import RANKS, Doubles, root, singular_values, spectrum


def planted(values: list[float], rows: int, columns: int, seed: int = 0) -> Doubles:
    """A matrix with these singular values."""
    random, n = np.random.default_rng(seed), len(values)
    left, _ = np.linalg.qr(random.standard_normal((rows, n)))
    right, _ = np.linalg.qr(random.standard_normal((columns, n)))
    return (left * np.array(values)) @ right.T


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 2**32 - 1))
def test_singular_values_are_numpys(rows: int, columns: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    ours, theirs = singular_values(matrix), np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    assert ours == pytest.approx(theirs, abs=1e-6 * theirs[0])
    said = spectrum(ours)
    assert 1 <= said.stable_rank <= said.effective_rank + 1e-9 <= min(rows, columns) + 1e-6
    assert sorted(said.tail, reverse=True) == list(said.tail)


def test_a_cliff_says_little_about_energy() -> None:
    """σ1/σ2 is 8, and half the rank holds half the energy."""
    said = spectrum(singular_values(planted([8.0] + [1.0] * 63, 96, 64)))
    assert said.cliff == pytest.approx(8)
    assert said.tail[RANKS.index(0.5)] == pytest.approx(32 / (64 + 63))
    assert said.bound[RANKS.index(0.5)] == pytest.approx(1 / 8)
    assert said.stable_rank == pytest.approx((64 + 63) / 64)


def test_equal_values_have_full_rank_and_no_cliff() -> None:
    said = spectrum(singular_values(planted([3.0] * 16, 20, 16)))
    assert (said.cliff, said.stable_rank, said.effective_rank) == pytest.approx((1, 16, 16))
    assert said.tail == pytest.approx((0.75, 0.5, 0.25))


def test_low_rank_is_seen() -> None:
    said = spectrum(singular_values(planted([2.0] * 8, 40, 32)))
    assert said.effective_rank == pytest.approx(8)
    assert said.tail == pytest.approx((0, 0, 0), abs=1e-12)


def test_tail_and_bound_are_the_errors_of_the_best_matrix_of_that_rank() -> None:
    matrix = np.random.default_rng(3).standard_normal((24, 16))
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    said = spectrum(singular_values(matrix))
    for rank, tail, bound in zip((4, 8, 12), said.tail, said.bound):
        left_out = matrix - (left[:, :rank] * values[:rank]) @ right[:rank]
        assert tail == pytest.approx((left_out**2).sum() / (matrix**2).sum())
        assert bound == pytest.approx(np.linalg.norm(left_out, 2) / np.linalg.norm(matrix, 2))


def test_rank_one_and_zeros_have_words() -> None:
    assert spectrum(singular_values(planted([5.0], 9, 7))).cliff == math.inf
    nothing = spectrum(singular_values(np.zeros((4, 6))))
    assert math.isnan(nothing.cliff)
    assert (nothing.stable_rank, nothing.effective_rank, nothing.tail) == (0, 0, (0, 0, 0))
    assert spectrum(singular_values(np.ones((1, 5)))).stable_rank == pytest.approx(1)


@pytest.mark.parametrize("rank", [12, 5])
def test_whitened_energies_are_output_energies(rank: int) -> None:
    """Σσ²(W·S) beyond r is E‖(W - W')x‖² of the best W' of rank r, also where inputs fill no space."""
    random = np.random.default_rng(1)
    inputs = random.standard_normal((400, rank)) @ random.standard_normal((rank, 12))
    gram, matrix = inputs.T @ inputs / len(inputs), random.standard_normal((20, 12))
    side = root(gram)
    assert side @ side.T == pytest.approx(gram, abs=1e-9)
    values = singular_values(matrix @ side)
    assert (values**2).sum() == pytest.approx(((inputs @ matrix.T) ** 2).sum() / len(inputs))
    left = np.linalg.svd(matrix @ side)[0][:, :3]
    best = left @ left.T @ matrix
    error = ((inputs @ (matrix - best).T) ** 2).sum() / len(inputs)
    assert (values[3:] ** 2).sum() == pytest.approx(error)


def test_a_gram_not_quite_semidefinite_has_a_root() -> None:
    gram = np.diag([1.0, 1e-18, 0.0])
    gram[1, 1] = -1e-18
    assert np.isfinite(root(gram)).all()
