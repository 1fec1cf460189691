"""Scores of others, by hand, and what they miss beside ours."""

from __future__ import annotations

import numpy as np

from tests.compress.methods.test_ffn import fit_of, layer
from trisplit.compress.methods.ffn import path, refit
from trisplit.compress.methods.others import by_score, flap, flap_bias, magnitude, wanda


def test_scores_of_others_by_hand() -> None:
    down, gram, mean = np.array([[3.0, 0.0], [4.0, 1.0]]), np.diag([4.0, 9.0]), np.array([0.0, 3.0])
    assert wanda(down, gram).tolist() == [10.0, 3.0]
    assert magnitude(np.array([[2.0], [1.0]]), np.array([[1.0], [5.0]]), down).tolist() == [10.0, 5.0]
    assert magnitude(None, np.array([[1.0], [5.0]]), down).tolist() == [5.0, 5.0]
    assert flap(down, gram, mean).tolist() == [1.0, -1.0]
    assert flap_bias(down, mean, np.array([0])).tolist() == [0.0, 3.0]
    assert by_score(np.array([3.0, 1.0, 2.0]), 2).tolist() == [0, 2]


def test_ours_misses_less_than_theirs_on_the_same_moments() -> None:
    h, down = layer(48, 96, "dependent")
    fit = fit_of(h, down)
    ours = path(fit, ridge=1e-6, block=8).kept(32)
    theirs = by_score(wanda(down, fit.gram), 32)
    errors = [fit.error(refit(fit, kept, ridge=1e-6).down, kept) for kept in (ours, theirs)]
    assert errors[0] < 0.9 * errors[1] < 0.9 * fit.error(down[:, theirs], theirs)
