"""Width pruning: which neurons of an FFN can go, and the down matrix that makes the best of the others.

Pure functions on second moments, in float64. h [n] is what the neurons give on the stream that the pruned
layer will see; down takes it to y [hidden]. Removing neurons and refitting down is a least-squares problem:
of all W over the kept K, E‖y - W h_K‖² + λ‖W‖² is least at W = B_K (G_KK + λ)⁻¹, B = E[y hᵀ], G = E[hhᵀ].
What a neuron costs when all others are refitted is known in closed form (Hassibi and Stork 1993), and so the
error for every width comes free with the order in which neurons go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.compress.spectra import Doubles
from trisplit.errors import CheckpointProblem, RequestProblem

Neurons = NDArray[np.int64]

RIDGES: Final = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Shares of the mean diagonal of G that λ is chosen from."""

# Blocks between two inversions from the start: what downdating gathers of rounding ends there.
_REFRESH: Final = 8
# Candidates of a block, in blocks: of two neurons that say the same both are cheap, but not together.
_CANDIDATES: Final = 3
_JITTER_STEPS: Final = 12
_LEAST_RIDGE: Final = 1e-14


@dataclass(frozen=True, slots=True)
class Fit:
    """The problem of one layer: gram E[hhᵀ] [n, n], target E[y hᵀ] [hidden, n], energy E‖y‖²."""

    gram: Doubles
    target: Doubles
    energy: float

    @property
    def neurons(self) -> int:
        return len(self.gram)

    def ridge(self, share: float) -> float:
        """λ as a share of the mean diagonal; 1 for a layer whose neurons are all dead."""
        return share * (float(np.trace(self.gram)) / max(self.neurons, 1) or 1.0)

    def of(self, kept: Neurons) -> Fit:
        """The problem with these neurons alone."""
        return Fit(self.gram[np.ix_(kept, kept)], self.target[:, kept], self.energy)

    def with_more(self, other: Fit, weight: float) -> Fit:
        """The problem of doing both, a row of the other counting `weight` times as much as one of this."""
        return Fit(
            self.gram + weight * other.gram,
            self.target + weight * other.target,
            self.energy + weight * other.energy,
        )

    def error(self, down: Doubles, kept: Neurons) -> float:
        """E‖y - down h_K‖² as a share of E‖y‖², for down [hidden, kept]; 0 where y is nothing."""
        within = self.gram[np.ix_(kept, kept)]
        missed = self.energy - 2 * float((down * self.target[:, kept]).sum())
        missed += float(((down @ within) * down).sum())
        return max(missed, 0.0) / self.energy if self.energy else 0.0


def same_stream(down: Doubles, gram: Doubles) -> Fit:
    """The problem of doing what down did, on the stream that it had.

    CheckpointProblem for values that are no numbers; RequestProblem for shapes that do not belong together.
    """
    n = len(gram)
    if down.shape[1:] != (n,) or gram.shape != (n, n):
        what = f"down {list(down.shape)} and moments of {n} neurons do not belong together"
        raise RequestProblem(what, fix="calibrate on the model that is pruned")
    if not all(np.isfinite(values).all() for values in (down, gram)):
        what = "weights or moments of an FFN hold what is no number"
        raise CheckpointProblem(what, fix="get the model again")
    weights = down.astype(np.float64)
    target = weights @ gram
    return Fit((gram + gram.T) / 2, target, float((target * weights).sum()))


# --- which ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Path:
    """The order in which neurons go, and what is missed at each width.

    `order`: all that may go, first to last. `widths` falls from all neurons; `errors`, as long, are the least
    E‖y - W h_K‖² + λ‖W‖² as a share of E‖y‖², which can only grow. `protected` never go.
    """

    order: Neurons
    widths: Neurons
    errors: Doubles
    protected: Neurons

    def kept(self, width: int) -> Neurons:
        """The neurons of this width, in order. RequestProblem when it is none of `widths`."""
        if width not in self.widths:
            fix = f"choose one of {self.widths[-1]} to {self.widths[0]}, in whole blocks"
            raise RequestProblem(f"a width of {width} is not on the path", fix=fix)
        n = int(self.widths[0])
        return np.setdiff1d(np.arange(n), self.order[: n - width])


def protected(fit: Fit, down: Doubles, share: float = 0.01) -> Neurons:
    """The few neurons that carry a layer: the largest G_jj·‖w_j‖², at least one (2604.23475 protects so)."""
    carried = np.diag(fit.gram) * (down.astype(np.float64) ** 2).sum(axis=0)
    count = min(max(round(share * fit.neurons), 1), fit.neurons)
    return np.sort(np.argsort(carried)[-count:])


def path(
    fit: Fit, *, ridge: float, block: int = 32, least: int = 0, keep: Sequence[int] | Neurons = ()
) -> Path:
    """The elimination path down to `least` neurons (and never less than what is to `keep`), block by block.

    A block goes neuron by neuron among the cheapest, each cost counted after those before it went. Inverses
    are downdated, and made again every few blocks.
    """
    n, lam = fit.neurons, fit.ridge(ridge)
    guarded = np.unique(np.asarray(keep, np.int64))
    last = max(least, len(guarded))
    left, order = np.arange(n), list[int]()
    inverse, down = _solved(fit, left, lam)
    errors, widths = [_missed(fit, left, down)], [n]
    for number in range((n - last) // block):
        if number and number % _REFRESH == 0:
            inverse, down = _solved(fit, left, lam)
        places = _cheapest(inverse, down, np.isin(left, guarded), block)
        inverse, down, cost = _without(inverse, down, places)
        order += left[places].tolist()
        left = np.delete(left, places)
        widths.append(len(left))
        # By rounding a neuron that says nothing new may seem to cost less than nothing.
        errors.append(errors[-1] + max(cost, 0.0))
    share = np.array(errors) / fit.energy if fit.energy else np.zeros(len(errors))
    return Path(np.array(order, np.int64), np.array(widths), share, guarded)


def _missed(fit: Fit, left: Neurons, down: Doubles) -> float:
    """The least of the problem, not divided: E‖y‖² - tr(W B_Kᵀ)."""
    return max(fit.energy - float((down * fit.target[:, left]).sum()), 0.0)


def _solved(fit: Fit, left: Neurons, lam: float) -> tuple[Doubles, Doubles]:
    """(G_KK + λ)⁻¹ and the best down over K."""
    within = fit.gram[np.ix_(left, left)] + lam * np.eye(len(left))
    inverse = np.linalg.inv(within)
    inverse = (inverse + inverse.T) / 2
    return inverse, fit.target[:, left] @ inverse


def _cheapest(inverse: Doubles, down: Doubles, guarded: NDArray[np.bool_], count: int) -> Neurons:
    """Places of `count` neurons to go next: one at a time among candidates, costs counted anew each time."""
    costs = (down**2).sum(axis=0) / np.diag(inverse)
    costs[guarded] = np.inf
    free = int((~guarded).sum())
    candidates = np.argsort(costs)[: min(_CANDIDATES * count, free)]
    small, ways = inverse[np.ix_(candidates, candidates)].copy(), down[:, candidates].copy()
    alive, chosen = np.ones(len(candidates), bool), list[int]()
    for _ in range(count):
        pivots = np.where(alive, np.diag(small), 1.0)
        cost = np.where(alive, (ways**2).sum(axis=0) / np.maximum(pivots, np.finfo(float).tiny), np.inf)
        j = int(np.argmin(cost))
        ways -= np.outer(ways[:, j] / small[j, j], small[j])
        small -= np.outer(small[:, j] / small[j, j], small[j])
        alive[j] = False
        chosen.append(int(candidates[j]))
    return np.array(chosen, np.int64)


def _without(inverse: Doubles, down: Doubles, places: Neurons) -> tuple[Doubles, Doubles, float]:
    """Inverse and down after these have gone, and what that costs."""
    gone = inverse[np.ix_(places, places)]
    solved = np.linalg.solve(gone, inverse[places])  # [gone, left]
    cost = float((down[:, places] * np.linalg.solve(gone, down[:, places].T).T).sum())
    inverse = inverse - inverse[:, places] @ solved
    down = down - down[:, places] @ solved
    kept = np.delete(np.arange(len(inverse)), places)
    return inverse[np.ix_(kept, kept)], down[:, kept], cost


# --- refit ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refit:
    """The best down over the kept neurons [hidden, kept], and the λ it was found with."""

    kept: Neurons
    down: Doubles
    ridge: float

    def change_of(self, whole: Doubles) -> Doubles:
        """What it gives more than the whole down does, [hidden, neurons], of all neurons."""
        change = -whole
        change[:, self.kept] += self.down
        return change


def refit(fit: Fit, kept: Neurons, *, ridge: float) -> Refit:
    """Least squares over the kept neurons; λ grows tenfold until the matrix is positive definite.

    Of fewer tokens than neurons the gram is singular, and of rounding it may be a little less than that.
    """
    within, lam = fit.gram[np.ix_(kept, kept)], fit.ridge(ridge)
    for _ in range(_JITTER_STEPS):
        shifted = within + lam * np.eye(len(kept))
        try:
            np.linalg.cholesky(shifted)
        except np.linalg.LinAlgError:
            lam = 10 * lam or fit.ridge(_LEAST_RIDGE)
            continue
        solved = np.linalg.solve(shifted, fit.target[:, kept].T).T
        return Refit(kept, np.asarray(solved, np.float64), lam)
    what = "the moments of an FFN are no moments: far from semidefinite"
    raise CheckpointProblem(what, fix="calibrate again")


def best_refit(fit: Fit, judge: Fit, kept: Neurons, ridges: Sequence[float] = RIDGES) -> Refit:
    """The refit on `fit` that misses least of `judge`, the same problem on text that was held out."""
    found = [refit(fit, kept, ridge=ridge) for ridge in ridges]
    return min(found, key=lambda one: judge.error(one.down, kept))
