"""Singular values of a matrix, plain and as a text sees it, and what they say about a smaller rank.

Pure functions on arrays. Everything is computed in float64 from the Gram matrix of the smaller side, so that
values under 1e-8 of the largest are noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

RANKS: Final = (0.25, 0.5, 0.75)
"""The shares of full rank at which tails are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spectrum:
    """What the singular values σ1 ≥ σ2 ≥ … of a matrix say.

    `cliff`: σ1/σ2; infinite at rank one, not a number for a matrix of zeros. `stable_rank`: Σσ²/σ1²
    (Rudelson and Vershynin 2007). `effective_rank`: e to the entropy of σ²/Σσ² (Roy and Vetterli 2007, on
    energies). For each of RANKS, r of full rank: `tail`, the share of Σσ² beyond it, which is the relative
    squared error of the best matrix of that rank; and `bound`, σ_{r+1}/σ1, which is its relative error in the
    operator norm (Eckart and Young 1936).
    """

    cliff: float
    stable_rank: float
    effective_rank: float
    tail: tuple[float, ...]
    bound: tuple[float, ...]


def singular_values(matrix: NDArray[np.floating]) -> Doubles:
    """Of any matrix, largest first, [the smaller side]."""
    wide = matrix.astype(np.float64)
    gram = wide @ wide.T if wide.shape[0] <= wide.shape[1] else wide.T @ wide
    return np.asarray(np.sqrt(np.clip(np.linalg.eigvalsh(gram), 0, None))[::-1])


def root(gram: Doubles) -> Doubles:
    """S with S Sᵀ = gram, [n, n]; also where the gram is singular or, by rounding, not quite semidefinite."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    return np.asarray(vectors * np.sqrt(np.clip(values, 0, None)))


def spectrum(values: Doubles) -> Spectrum:
    """What singular values say; `values` largest first, at least one."""
    largest, energies = float(values[0]), values**2
    total = float(energies.sum())
    if not total:
        nothing = (0.0,) * len(RANKS)
        return Spectrum(cliff=math.nan, stable_rank=0.0, effective_rank=0.0, tail=nothing, bound=nothing)
    shares = energies[energies > 0] / total
    kept = [round(share * len(values)) for share in RANKS]
    second = float(values[1]) if len(values) > 1 else 0.0
    return Spectrum(
        cliff=largest / second if second > _NOISE * largest else math.inf,
        stable_rank=total / largest**2,
        effective_rank=float(np.exp(-(shares * np.log(shares)).sum())),
        tail=tuple(float(energies[rank:].sum()) / total for rank in kept),
        bound=tuple(float(values[rank]) / largest if rank < len(values) else 0.0 for rank in kept),
    )


_NOISE: Final = 1e-7
