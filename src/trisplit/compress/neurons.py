"""How much of an FFN's output each of its neurons makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trisplit.compress.spectra import Doubles
from trisplit.models.session import Floats


@dataclass(frozen=True, slots=True)
class Neurons:
    """`shares` [neurons] of the summed output variance; zeros where there is none."""

    shares: Doubles

    def carrying(self, share: float) -> int:
        """How many of the largest it takes to hold this share of the variance."""
        total = float(self.shares.sum())
        if not total:
            return 0
        held = np.cumsum(np.sort(self.shares)[::-1])
        # A hair less, for the sum of all may stay under 1 by rounding.
        return min(int(np.searchsorted(held, share * total * (1 - 1e-12))) + 1, len(held))


def neurons(down: Floats, gram: Doubles, mean: Doubles) -> Neurons:
    """Shares of Var(h_j)·‖w_j‖², h_j what neuron j gives and w_j its column of down [hidden, neurons].

    `gram` is E[hhᵀ], `mean` E[h]. What neurons have in common is counted for each of them.
    """
    variance = np.clip(np.diag(gram) - mean**2, 0, None)
    made = variance * (down.astype(np.float64) ** 2).sum(axis=0)
    total = float(made.sum())
    return Neurons(made / total if total else made)
