"""How far predictions are from others: divergences worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trisplit.models.predictions import scores


def logits(*rows: list[float]) -> np.ndarray:
    """Logits of these probabilities, off by a constant as real ones are."""
    return (np.log(np.array(rows)) + 5).astype(np.float32)


def test_scores_worked_out_by_hand() -> None:
    exact, twin = logits([0.5, 0.25, 0.25], [0.1, 0.8, 0.1]), logits([0.25, 0.5, 0.25], [0.1, 0.8, 0.1])
    measured = scores(exact, twin, np.array([0, 2]))
    divergence = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert measured[0] == pytest.approx([divergence, 0, -math.log(0.25), -math.log(0.5)], abs=1e-6)
    assert measured[1] == pytest.approx([0, 1, -math.log(0.1), -math.log(0.1)], abs=1e-6)


def test_logits_far_from_zero_do_not_overflow() -> None:
    exact = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    divergence, agree, *_ = scores(exact, exact - 7, np.array([0]))[0]
    assert (divergence, agree) == (pytest.approx(0, abs=1e-9), 1)
