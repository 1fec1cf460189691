"""Width pruning: planted redundancy goes without a trace, refits are optimal, errors only grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trisplit.compress.methods.ffn import (
    Fit,
    best_refit,
    path,
    protected,
    refit,
    same_stream,
)
from trisplit.errors import CheckpointProblem, RequestProblem

HIDDEN = 24


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def layer(
    true: int, neurons: int, kind: str, seed: int = 0, tokens: int = 2000
) -> tuple[np.ndarray, np.ndarray]:
    """What a gated FFN gives, [tokens, neurons], of which only `true` neurons say something of their own.

    The others are copies, twice or half as loud, or, `dependent`, sums of them. Then down [hidden, neurons].
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal((tokens, HIDDEN))
    gate, up = (random.standard_normal((true, HIDDEN)) / np.sqrt(HIDDEN) for _ in range(2))
    own = silu(x @ gate.T) * (x @ up.T)
    more = neurons - true
    if kind == "copies":
        rest = own[:, np.arange(more) % true] * np.where(np.arange(more) % 2, 2.0, 0.5)
    else:
        rest = own @ random.standard_normal((true, more)) / np.sqrt(true)
    shuffle = random.permutation(neurons)
    return np.concatenate([own, rest], axis=1)[:, shuffle], random.standard_normal((HIDDEN, neurons))


def fit_of(h: np.ndarray, down: np.ndarray) -> Fit:
    return same_stream(down, h.T @ h / len(h))


# --- planted --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["copies", "dependent"])
@pytest.mark.parametrize("block", [1, 8, 16])
def test_redundant_neurons_go_down_to_the_true_width(kind: str, block: int) -> None:
    h, down = layer(32, 96, kind)
    fit = fit_of(h, down)
    found = path(fit, ridge=1e-10, block=block)
    kept = found.kept(32)
    smaller = refit(fit, kept, ridge=1e-12)
    assert fit.error(smaller.down, kept) <= 1e-6
    y = h @ down.T
    assert ((y - h[:, kept] @ smaller.down.T) ** 2).mean() <= 1e-6 * (y**2).mean()
    errors = dict(zip(found.widths.tolist(), found.errors.tolist()))
    assert errors[32] <= 1e-6 < 1e-3 < errors[16]


def test_dead_neurons_go_first() -> None:
    h, down = layer(40, 40, "copies")
    dead = [3, 17, 30, 31]
    h[:, dead] = 0
    found = path(fit_of(h, down), ridge=1e-6, block=4)
    assert set(found.order[:4].tolist()) == set(dead)
    assert found.errors[1] == pytest.approx(found.errors[0], abs=1e-12)


def test_an_ffn_that_says_nothing_costs_nothing() -> None:
    fit = same_stream(np.ones((3, 8)), np.zeros((8, 8)))
    found = path(fit, ridge=1e-4, block=2)
    assert not found.errors.any()
    assert fit.error(refit(fit, found.kept(4), ridge=1e-4).down, found.kept(4)) == 0


# --- the path -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1e-8, 1e-4, 1e-1]))
def test_errors_only_grow_and_are_those_of_the_refit(seed: int, block: int, ridge: float) -> None:
    """At every width the curve is the least of the ridge problem, found again from nothing."""
    h, down = layer(32, 40, "dependent", seed, tokens=300)
    fit = fit_of(h, down)
    found = path(fit, ridge=ridge, block=block)
    assert (np.diff(found.errors) >= 0).all()
    assert found.widths.tolist() == list(range(40, -1, -block))
    assert sorted(found.order.tolist()) == list(range(40))
    for width in (32, 16, 8):
        kept = found.kept(width)
        solved = refit(fit, kept, ridge=ridge)
        least = fit.error(solved.down, kept) + solved.ridge * (solved.down**2).sum() / fit.energy
        assert found.errors[found.widths.tolist().index(width)] == pytest.approx(least, abs=1e-6)


def test_one_by_one_the_cheapest_goes() -> None:
    """Each that goes is the one whose loss, with all others refitted, is least: tried out."""
    h, down = layer(12, 12, "copies", seed=4)
    fit = fit_of(h, down)
    found, left = path(fit, ridge=1e-9, block=1), list(range(12))
    for gone in found.order[:8].tolist():
        losses = {}
        for j in left:
            kept = np.array([i for i in left if i != j])
            losses[j] = fit.error(refit(fit, kept, ridge=1e-9).down, kept)
        assert losses[gone] == pytest.approx(min(losses.values()), abs=1e-9)
        left.remove(gone)


def test_what_is_protected_stays() -> None:
    h, down = layer(64, 64, "copies")
    h[:, 11] *= 30
    fit = fit_of(h, down)
    assert 11 in protected(fit, down)
    assert len(protected(fit, down, share=0.1)) == 6
    guarded = [1, 2, 50]
    found = path(fit, ridge=1e-4, block=8, keep=guarded)
    assert not set(found.order.tolist()) & set(guarded)
    assert found.widths[-1] == 8  # the next whole block would take one of them
    assert set(guarded) <= set(found.kept(8).tolist())
    assert path(fit, ridge=1e-4, block=8, least=40).widths[-1] == 40


def test_a_width_that_is_not_on_the_path_is_refused() -> None:
    found = path(fit_of(*layer(32, 32, "copies")), ridge=1e-4, block=8)
    with pytest.raises(RequestProblem, match="width of 20"):
        found.kept(20)


# --- refit ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-6, 1e-2]))
def test_the_gradient_is_zero_at_a_refit(seed: int, ridge: float) -> None:
    h, down = layer(32, 32, "copies", seed)
    fit, kept = fit_of(h, down), np.arange(0, 32, 2)
    solved = refit(fit, kept, ridge=ridge)
    gradient = solved.down @ (fit.gram[np.ix_(kept, kept)] + solved.ridge * np.eye(16)) - fit.target[:, kept]
    assert np.abs(gradient).max() < 1e-9
    for step in (-1e-3, 1e-3):
        other = solved.down * (1 + step)
        assert fit.error(other, kept) + solved.ridge * (other**2).sum() / fit.energy >= (
            fit.error(solved.down, kept) + solved.ridge * (solved.down**2).sum() / fit.energy
        )


def test_doing_both_is_least_squares_on_the_rows_of_both() -> None:
    random = np.random.default_rng(3)
    dense, down = layer(32, 32, "copies", tokens=600)
    narrow = dense[:400] + 0.3 * random.standard_normal((400, 32))
    wanted, kept = random.standard_normal((400, HIDDEN)), np.arange(0, 32, 2)
    own = Fit(narrow.T @ narrow / 400, wanted.T @ narrow / 400, float((wanted**2).sum() / 400))
    both = own.of(kept).with_more(fit_of(dense, down).of(kept), 3.0)
    rows = np.concatenate([narrow[:, kept] / 20, dense[:, kept] * np.sqrt(3 / 600)])
    y = np.concatenate([wanted / 20, dense @ down.T * np.sqrt(3 / 600)])
    expected = np.linalg.lstsq(rows, y, rcond=None)[0].T
    solved = refit(both, np.arange(16), ridge=0.0)
    assert solved.down == pytest.approx(expected, abs=1e-6)
    missed = ((y - rows @ expected.T) ** 2).sum() / (y**2).sum()
    assert both.error(solved.down, np.arange(16)) == pytest.approx(missed)


def test_the_error_is_that_of_the_outputs() -> None:
    h, down = layer(32, 48, "dependent")
    fit, kept = fit_of(h, down), np.arange(30)
    some = np.random.default_rng(0).standard_normal((HIDDEN, 30))
    y = h @ down.T
    missed = ((y - h[:, kept] @ some.T) ** 2).sum() / (y**2).sum()
    assert fit.error(some, kept) == pytest.approx(missed)


def test_fewer_tokens_than_neurons_are_refitted_all_the_same() -> None:
    h, down = layer(64, 64, "copies", tokens=20)
    fit = fit_of(h, down)
    solved = refit(fit, np.arange(48), ridge=0.0)
    assert np.isfinite(solved.down).all()
    assert fit.error(solved.down, np.arange(48)) < 1e-6


def test_a_gram_not_quite_semidefinite_is_lifted_and_one_far_from_it_refused() -> None:
    gram = np.diag([1.0, 1.0, -1e-9])
    lifted = refit(same_stream(np.ones((2, 3)), gram), np.arange(3), ridge=1e-12)
    assert lifted.ridge > 1e-9
    with pytest.raises(CheckpointProblem, match="semidefinite"):
        refit(Fit(np.diag([1.0, -5.0]), np.ones((2, 2)), 1.0), np.arange(2), ridge=1e-12)


def test_lambda_is_chosen_by_what_was_held_out() -> None:
    """Few noisy tokens: more λ than least; many: as good as none."""
    random = np.random.default_rng(2)
    kept = np.arange(24)

    def noisy(tokens: int) -> Fit:
        return fit_of(random.standard_normal((tokens, 32)), np.ones((HIDDEN, 32)))

    judge = noisy(5000)
    few, many = (best_refit(noisy(tokens), judge, kept) for tokens in (26, 20000))
    assert few.ridge > many.ridge
    assert judge.error(few.down, kept) < 1


# --- what makes no problem -------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["down", "gram"])
def test_what_is_no_number_is_refused(wrong: str) -> None:
    down, gram = np.ones((3, 4)), np.eye(4)
    (down if wrong == "down" else gram)[1, 1] = np.nan
    with pytest.raises(CheckpointProblem, match="no number"):
        same_stream(down, gram)


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(RequestProblem, match="4 neurons"):
        same_stream(np.ones((3, 5)), np.eye(4))
