"""Two factors: the best there are for what a text gives, and exact where a matrix is of that rank."""

from __future__ import annotations

import numpy as np
import pytest

from trisplit.compress.methods.lowrank import factors, rank_for
from trisplit.compress.spectra import Doubles
from trisplit.errors import CheckpointProblem, RequestProblem


def gram_of(n: int, tokens: int, seed: int = 0) -> Doubles:
    random = np.random.default_rng(seed)
    x = random.standard_normal((tokens, n)) * np.geomspace(1, 1e-2, n)
    return x.T @ x / tokens


def missed(matrix: Doubles, gram: Doubles, other: Doubles) -> float:
    return float((((matrix - other) @ gram) * (matrix - other)).sum())


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (32, 32)])
def test_a_matrix_of_that_rank_comes_back(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    matrix = random.standard_normal((shape[0], 5)) @ random.standard_normal((5, shape[1]))
    found = factors(matrix, gram_of(shape[1], 300), 5)
    assert found.rank == 5
    assert (found.left.shape, found.right.shape) == ((shape[0], 5), (5, shape[1]))
    assert found.product() == pytest.approx(matrix, abs=1e-9)


def test_no_other_of_that_rank_misses_less() -> None:
    """What is missed is the tail of the whitened spectrum, and the plain SVD and random ones miss more."""
    random = np.random.default_rng(2)
    matrix, gram = random.standard_normal((30, 40)), gram_of(40, 300)
    found = missed(matrix, gram, factors(matrix, gram, 8).product())
    values = np.linalg.eigvalsh(matrix @ gram @ matrix.T)[::-1]
    assert found == pytest.approx(values[8:].sum(), rel=0.02)  # a little is given to what the text never had
    u, s, vt = np.linalg.svd(matrix)
    assert found < 0.7 * missed(matrix, gram, (u[:, :8] * s[:8]) @ vt[:8])
    left = factors(matrix, gram, 8).left
    for seed in range(5):
        turned = left + 0.1 * np.random.default_rng(seed).standard_normal(left.shape)
        basis = np.linalg.qr(turned)[0]
        assert found < missed(matrix, gram, basis @ (basis.T @ matrix))


@pytest.mark.parametrize("tokens", [0, 3])
def test_a_text_that_shows_little(tokens: int) -> None:
    """Fewer tokens than columns, or none: still a matrix of numbers, of that rank, exact on the text."""
    matrix = np.random.default_rng(3).standard_normal((20, 16))
    gram = gram_of(16, tokens) if tokens else np.zeros((16, 16))
    product = factors(matrix, gram, 4).product()
    assert np.isfinite(product).all()
    assert np.linalg.matrix_rank(product) == 4
    assert missed(matrix, gram, product) <= 1e-3 * missed(matrix, gram, np.zeros_like(matrix))


def test_the_largest_rank_of_a_share() -> None:
    assert rank_for(576, 576, 0.5) == 144
    assert rank_for(1, 8, 0.5) == 0
    for keep in (0.1, 0.5, 0.99, 1.0):
        rank = rank_for(192, 576, keep)
        assert rank * (192 + 576) <= keep * 192 * 576 < (rank + 1) * (192 + 576)


def test_refused() -> None:
    matrix, gram = np.ones((4, 6)), np.eye(6)
    for odd_matrix, odd_gram, rank, kind in (
        (matrix, np.eye(4), 2, RequestProblem),
        (matrix, gram, 0, RequestProblem),
        (matrix, gram, 5, RequestProblem),
        (np.full((4, 6), np.nan), gram, 2, CheckpointProblem),
        (matrix, np.full((6, 6), np.inf), 2, CheckpointProblem),
    ):
        with pytest.raises(kind):
            factors(odd_matrix, odd_gram, rank)
