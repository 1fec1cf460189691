"""Matrices as products of two factors: the best for the inputs that a text gives them.

Pure functions, in float64. Of all W′ of rank r, E‖Wx - W′x‖² is least where W′ keeps the r directions of the
outputs that have most energy: with W·S = U Σ Vᵀ and S Sᵀ = E[xxᵀ] that is U_r (U_rᵀ W). S is not inverted, as
SVD-LLM (arXiv 2403.07378) does, so it may be singular. What is missed is Σσ² beyond r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trisplit.compress.spectra import Doubles, root
from trisplit.errors import CheckpointProblem, RequestProblem

# Of the mean of the diagonal: inputs that the text never had are not worth nothing.
_DAMPING: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Factors:
    """left [out, rank] @ right [rank, in]."""

    left: Doubles
    right: Doubles

    @property
    def rank(self) -> int:
        return len(self.right)

    def product(self) -> Doubles:
        """The matrix they stand for."""
        return self.left @ self.right


def rank_for(rows: int, columns: int, keep: float) -> int:
    """The largest rank whose two factors have at most the share `keep` of a matrix's numbers; may be 0."""
    return int(keep * rows * columns / (rows + columns))


def factors(matrix: Doubles, gram: Doubles, rank: int) -> Factors:
    """The best factors of [out, in] for inputs of these second moments [in, in].

    CheckpointProblem for values that are no numbers; RequestProblem for shapes that do not belong together,
    and for a rank that is none.
    """
    rows, columns = matrix.shape
    if gram.shape != (columns, columns) or not 0 < rank <= min(rows, columns):
        what = f"a matrix {list(matrix.shape)} of rank {rank} for moments {list(gram.shape)} makes no sense"
        raise RequestProblem(what, fix="calibrate on the model that is made smaller")
    if not (np.isfinite(matrix).all() and np.isfinite(gram).all()):
        raise CheckpointProblem("weights or moments hold what is no number", fix="get the model again")
    lift = _DAMPING * float(np.trace(gram)) / columns or 1.0
    left = np.linalg.svd(matrix @ root(gram + lift * np.eye(columns)), full_matrices=False)[0][:, :rank]
    return Factors(left, left.T @ matrix)
