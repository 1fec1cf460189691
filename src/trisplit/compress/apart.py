"""How far the residuals of two models come apart in a layer, the first token of each passage by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trisplit.compress.spectra import Doubles
from trisplit.models.session import Floats


@dataclass(frozen=True, slots=True)
class Depth:
    """After a layer: ‖x′ - x‖/‖x‖ of a token's residual with all edits, and 1 - cosine; means over tokens.

    The first token of a passage is apart: it is often a massive one, which owns every norm.
    """

    apart: float
    turned: float
    apart_first: float
    turned_first: float


@dataclass(frozen=True, slots=True)
class Own:
    """E‖y′ - y‖² over E‖y‖²: what a layer misses of what its FFN adds to the dense stream."""

    error: float
    error_first: float


@dataclass(slots=True)
class Sums:
    """Over tokens as they come: squares of what is missed and of what the FFN adds, and of ways apart.

    Two rows: of first tokens, and of all others.
    """

    squares: Doubles = field(default_factory=lambda: np.zeros((2, 2)))
    ways: Doubles = field(default_factory=lambda: np.zeros((2, 2)))
    tokens: Doubles = field(default_factory=lambda: np.zeros(2))

    def add(self, left: Floats, left_twin: Floats, alone: Floats, ffn: Floats) -> None:
        exact, other = left.astype(np.float64), left_twin.astype(np.float64)
        missed = np.square(alone - exact).sum(axis=1)
        given = np.square(ffn.astype(np.float64)).sum(axis=1)
        size, size_twin = (np.linalg.norm(rows, axis=1) for rows in (exact, other))
        tiny = np.finfo(float).tiny
        apart = np.linalg.norm(other - exact, axis=1) / np.maximum(size, tiny)
        turned = 1 - (exact * other).sum(axis=1) / np.maximum(size * size_twin, tiny)
        for row, some in enumerate((slice(0, 1), slice(1, None))):
            self.squares[row] += missed[some].sum(), given[some].sum()
            self.ways[row] += apart[some].sum(), turned[some].sum()
            self.tokens[row] += len(missed[some])

    def own(self) -> Own:
        first, others = (missed / given if given else 0.0 for missed, given in self.squares)
        return Own(error=float(others), error_first=float(first))

    def depth(self) -> Depth:
        first, others = self.ways / np.maximum(self.tokens, 1)[:, None]
        return Depth(*map(float, (*others, *first)))
