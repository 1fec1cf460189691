"""Who is to blame when many layers were changed at once: a share of what was lost for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trisplit.compress.spectra import Doubles


@dataclass(frozen=True, slots=True)
class Shares:
    """`of` [layers] of what was lost, which sum to 1; zeros where nothing was.

    `explained`: what the shares came to before that, over what was lost.
    """

    of: Doubles
    explained: float

    def ranked(self) -> list[int]:
        """Layers, the most to blame first."""
        return [int(layer) for layer in np.argsort(-self.of, kind="stable")]

    def carrying(self, part: float) -> tuple[int, ...]:
        """The fewest layers whose shares come to `part` of the whole, in order; none if nothing was lost."""
        found, held = list[int](), 0.0
        for layer in self.ranked():
            if held >= part or self.of[layer] <= 0:
                break
            found.append(layer)
            held += float(self.of[layer])
        return tuple(sorted(found))

    def held_by(self, layers: Sequence[int]) -> float:
        """The share of these together."""
        return float(self.of[list(layers)].sum())


def shares(alone: Sequence[float], spared: Sequence[float], whole: float) -> Shares:
    """Shares of `whole`, what is lost when all layers are changed.

    `alone`: what is lost when that layer is the only one changed; `spared`: when it is the only one left.
    A layer's share is the mean of what it costs where nothing else is changed and of what it costs where all
    else is. Shapley's value is the mean over all orders in which layers could be changed; these are its first
    and its last step. Where layers act on each other two by two, the steps between lie on a line and the mean
    of both is that value; a KL is nearly such a square. `explained` says how nearly.
    """
    each = (np.asarray(alone, np.float64) + whole - np.asarray(spared, np.float64)) / 2
    total = float(each.sum())
    if whole <= 0 or total <= 0:
        return Shares(np.zeros(len(each)), 0.0)
    return Shares(each / total, total / whole)
