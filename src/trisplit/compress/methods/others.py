"""How others choose neurons, for comparing: by a score of each, and down is not refitted."""

from __future__ import annotations

import numpy as np

from trisplit.compress.methods.ffn import Neurons
from trisplit.compress.spectra import Doubles


def wanda(down: Doubles, gram: Doubles) -> Doubles:
    """A score for each neuron, the norm of what it gives times that of its weights (Sun et al. 2023)."""
    return np.asarray(np.sqrt(np.clip(np.diag(gram), 0, None)) * np.linalg.norm(down, axis=0))


def magnitude(gate: Doubles | None, up: Doubles, down: Doubles) -> Doubles:
    """A score for each neuron, the norms of its weights multiplied: rows of gate and up, column of down."""
    norms = [np.linalg.norm(rows, axis=1) for rows in (gate, up) if rows is not None]
    return np.asarray(np.prod(norms, axis=0) * np.linalg.norm(down, axis=0))


def flap(down: Doubles, gram: Doubles, mean: Doubles) -> Doubles:
    """A score for each neuron, Var(h_j)·‖w_j‖², standardised over the layer (An et al. 2024)."""
    varied = np.clip(np.diag(gram) - mean**2, 0, None) * (down.astype(np.float64) ** 2).sum(axis=0)
    return np.asarray((varied - varied.mean()) / (varied.std() or 1.0))


def flap_bias(down: Doubles, mean: Doubles, kept: Neurons) -> Doubles:
    """What FLAP adds for the neurons that went: what they gave on average, [hidden]."""
    gone = np.setdiff1d(np.arange(down.shape[1]), kept)
    return np.asarray(down[:, gone] @ mean[gone])


def by_score(scores: Doubles, width: int) -> Neurons:
    """The `width` neurons of the highest scores, in order."""
    return np.sort(np.argsort(scores, kind="stable")[len(scores) - width :])
