"""4-bit grids fitted to what a matrix is given: the codes that change its products least.

The measure is ‖(W - Ŵ)X‖², told by the Gram matrix G = E[xxᵀ] alone: a row that is off by d costs d G dᵀ, and
no row touches another. Errors are handed on from block to block as in GPTQ (arXiv 2210.17323), but with a
scale and an offset chosen for each block under what later blocks cannot mend; then codes, scales and offsets
are improved in turns, each exactly, until little is left to gain (coordinate descent, as QuantEase,
arXiv 2309.01885).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import RequestProblem
from trisplit.models.quantize import BLOCK, Floats, Grid, on_grid

Doubles = NDArray[np.float64]

ROWS: Final = 256  # fitted together: their blocks stay in the cache, and BLAS takes one thread for a block
_DAMPING: Final = 1e-3  # of the mean of the diagonal: inputs the text never had are not worth nothing
_ROUNDS: Final = 2  # of rounding and refitting within a block
SWEEPS: Final = 3  # over all blocks
# Ends tried for each block: fractions of its range cut off below and above, alone and together.
_CUTS: Final = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2)


Keeps = Literal["all", "blocks", "diagonal"]


@dataclass(slots=True)
class _Blocks:
    """A fit under way, columns first: w ≈ codes · scales + offsets."""

    codes: Floats  # [columns, rows]
    scales: Floats  # [blocks, rows]
    offsets: Floats  # [blocks, rows]

    def block(self, b: int) -> tuple[Floats, Floats, Floats]:
        return self.codes[b * BLOCK : (b + 1) * BLOCK], self.scales[b], self.offsets[b]

    def values(self) -> Floats:
        apart = self.codes.reshape(*self.scales.shape[:1], BLOCK, -1)
        values = apart * self.scales[:, None] + self.offsets[:, None]
        return values.reshape(self.codes.shape)


class Fitter:
    """Fits rows of matrices that are given inputs with one Gram matrix."""

    def __init__(self, gram: Doubles, *, sweeps: int = SWEEPS) -> None:
        """`gram`: [columns, columns], E[xxᵀ] or any multiple; RequestProblem for what can be none."""
        self.metric, self._sweeps = metric(gram), sweeps
        inverse = np.linalg.inv(self.metric)
        # upper[b, c] says how much an error in column b moves the best of the columns c after it.
        self._upper = np.linalg.cholesky((inverse + inverse.T) / 2).T
        self._plain = self.metric.astype(np.float32)

    def __call__(self, weights: Floats) -> Grid:
        """The grid of rows [rows, columns]; never further off, by `metric`, than round-to-nearest."""
        fits = [self._fit(weights[i : i + ROWS].T) for i in range(0, len(weights), ROWS)]
        codes = np.concatenate([fit.codes for fit in fits], axis=1)
        scales = np.concatenate([fit.scales for fit in fits], axis=1)
        offsets = np.concatenate([fit.offsets for fit in fits], axis=1)
        apart = codes.T.reshape(len(weights), -1, BLOCK).astype(np.uint8)
        return on_grid(apart, np.ascontiguousarray(scales.T), np.ascontiguousarray(offsets.T))

    def _fit(self, columns: Floats) -> _Blocks:
        columns = np.ascontiguousarray(columns)
        fit = self._handed_on(columns)
        self._improve(fit, columns)
        plain = _nearest(columns)
        worse = self._cost(columns - fit.values()) > self._cost(columns - plain.values())
        fit.codes[:, worse] = plain.codes[:, worse]
        fit.scales[:, worse], fit.offsets[:, worse] = plain.scales[:, worse], plain.offsets[:, worse]
        return fit

    def _cost(self, off: Floats) -> Floats:
        cost: Floats = (off * (self._plain @ off)).sum(axis=0)
        return cost

    def _handed_on(self, columns: Floats) -> _Blocks:
        """Block after block, each fitted to what the errors before it have made of it."""
        left, upper = columns.copy(), self._upper
        fit = _empty(columns)
        for b in range(len(fit.scales)):
            here = slice(b * BLOCK, (b + 1) * BLOCK)
            own = upper[here, here]
            inverse = np.linalg.inv(own)
            fitted = _block(left[here], own.astype(np.float32), (inverse @ inverse.T).astype(np.float32))
            codes, fit.scales[b], fit.offsets[b] = fitted
            fit.codes[here] = codes
            off = inverse.T.astype(np.float32) @ (left[here] - (codes * fit.scales[b] + fit.offsets[b]))
            left[here.stop :] -= upper[here, here.stop :].T.astype(np.float32) @ off
        return fit

    def _improve(self, fit: _Blocks, columns: Floats) -> None:
        """Each code, then each block's scale and offset, to its best with all others as they are."""
        for _ in range(self._sweeps):
            pull = self._plain @ (columns - fit.values())
            for b in range(len(fit.scales)):
                here = slice(b * BLOCK, (b + 1) * BLOCK)
                codes, scales, offsets = fit.block(b)
                before = codes * scales + offsets
                own, wanted = self._plain[here, here], pull[here].copy()
                per_step = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
                for j in range(BLOCK):
                    moved = np.clip(np.rint(codes[j] + wanted[j] * (per_step / own[j, j])), 0, 15)
                    wanted -= own[:, j, None] * ((moved - codes[j]) * scales)
                    codes[j] = moved
                scale, offset = _line(codes, own, wanted)
                scales += scale
                offsets += offset
                pull -= self._plain[:, here] @ (codes * scales + offsets - before)


def metric(gram: Doubles) -> Doubles:
    """What errors are measured by: the Gram matrix with a mean diagonal of 1, and a little for every input.

    RequestProblem for what can be none. Without any input all count the same.
    """
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] % BLOCK:
        raise _no_gram(f"their shape is {list(gram.shape)}")
    mean = float(np.trace(gram)) / len(gram)
    if not np.isfinite(gram).all() or mean < 0:
        raise _no_gram("they hold what is no number")
    one = np.eye(len(gram))
    return gram.astype(np.float64) / mean + _DAMPING * one if mean > 0 else one


def narrowed(gram: Doubles, keeps: Keeps) -> Doubles:
    """Only what inputs of one block of 32 have to do with each other, or only their sizes."""
    if keeps == "all":
        return gram
    place = np.arange(len(gram)) // (BLOCK if keeps == "blocks" else 1)
    return np.where(place[:, None] == place, gram, 0.0)


def _no_gram(why: str) -> RequestProblem:
    return RequestProblem(f"second moments nothing can be fitted to: {why}", fix="calibrate again")


def _empty(columns: Floats) -> _Blocks:
    shape = len(columns) // BLOCK, columns.shape[1]
    return _Blocks(np.zeros_like(columns), np.zeros(shape, np.float32), np.zeros(shape, np.float32))


def _nearest(columns: Floats) -> _Blocks:
    """Round-to-nearest between the smallest and the largest of each block."""
    apart = columns.reshape(-1, BLOCK, columns.shape[1])
    low = apart.min(axis=1)
    scales = (apart.max(axis=1) - low) / np.float32(15)
    safe = np.where(scales == 0, np.float32(1), scales)
    codes = np.clip(np.rint((apart - low[:, None]) / safe[:, None]), 0, 15)
    return _Blocks(codes.reshape(columns.shape), scales, low)


def _block(columns: Floats, upper: Floats, metric: Floats) -> tuple[Floats, Floats, Floats]:
    """Codes [32, rows], scales and offsets [rows] of one block [32, rows], under its metric = (UᵀU)⁻¹."""
    middle = columns.mean(axis=0)
    around = columns - middle
    codes, scales, offsets, costs = _searched(around, metric)
    for _ in range(_ROUNDS):
        tried = _rounded(around, upper, scales, offsets)
        scale, offset, cost = _judged(tried[None], around, metric)
        better = cost[0] < costs
        codes = np.where(better, tried, codes)
        scales, offsets = np.where(better, scale[0], scales), np.where(better, offset[0], offsets)
        costs = np.where(better, cost[0], costs)
    return codes, scales, offsets + middle


def _searched(around: Floats, metric: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """The best of the ranges tried: codes, scales, offsets, and what they cost."""
    low, high = around.min(axis=0), around.max(axis=0)
    below, above = (grid.reshape(-1, 1).astype(np.float32) for grid in np.meshgrid(_CUTS, _CUTS))
    start, step = low + (high - low) * below, (high - low) * (1 - below - above) / np.float32(15)
    step = np.where(step == 0, np.float32(1), step)
    codes = np.clip(np.rint((around - start[:, None]) / step[:, None]), 0, 15)
    scales, offsets, costs = _judged(codes, around, metric)
    best = costs.argmin(axis=0)
    every = np.arange(len(best))
    chosen = codes[best, :, every].T
    return chosen, scales[best, every], offsets[best, every], costs[best, every]


def _rounded(around: Floats, upper: Floats, scales: Floats, offsets: Floats) -> Floats:
    """Codes column by column, each with the errors of those before it handed on."""
    left, codes = around.copy(), np.empty_like(around)
    per_step = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    for j in range(BLOCK):
        codes[j] = np.clip(np.rint((left[j] - offsets) * per_step), 0, 15)
        off = left[j] - (codes[j] * scales + offsets)
        left[j + 1 :] -= (upper[j, j + 1 :] / upper[j, j])[:, None] * off
    return codes


def _judged(codes: Floats, around: Floats, metric: Floats) -> tuple[Floats, Floats, Floats]:
    """Scales and offsets [tries, rows] that suit the codes [tries, 32, rows] best, and what is left over."""
    pull = metric @ around
    scales, offsets = _line(codes, metric, pull)
    gained = scales * (codes * pull).sum(axis=-2) + offsets * pull.sum(axis=-2)
    return scales, offsets, (around * pull).sum(axis=0) - gained


def _line(codes: Floats, metric: Floats, pull: Floats) -> tuple[Floats, Floats]:
    """Scale and offset that take most out of errors e, `pull` being metric @ e: least squares."""
    weighed = metric @ codes
    qq, q1, one = (codes * weighed).sum(axis=-2), weighed.sum(axis=-2), metric.sum()
    qe, e1 = (codes * pull).sum(axis=-2), pull.sum(axis=-2)
    spread = qq - q1 * (q1 / one)
    scale = np.divide(qe - q1 * (e1 / one), spread, out=np.zeros_like(qq), where=spread > 1e-6 * qq)
    return scale, (e1 - scale * q1) / one
