"""How far predictions of the next token are from others: divergence, agreement, surprise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trisplit.models.session import Floats

Doubles = NDArray[np.float64]


def scores(exact: Floats, other: Floats, next_ids: NDArray[np.int64]) -> Doubles:
    """[rows, 4] from logits [rows, vocab]: KL(exact ‖ other) in nats, whether the likeliest agree, surprises.

    The last two are how surprised other and exact are by the id that followed, in nats: the exponential of
    their mean is the perplexity.
    """
    p, q = log_softmax(exact), log_softmax(other)
    rows = np.arange(len(p))
    divergence = (np.exp(p) * (p - q)).sum(axis=-1)
    agree = p.argmax(axis=-1) == q.argmax(axis=-1)
    return np.stack([divergence, agree, -q[rows, next_ids], -p[rows, next_ids]], axis=-1)


def log_softmax(logits: Floats) -> Doubles:
    """[rows, vocab]: the logarithm of each token's probability, in nats."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide
