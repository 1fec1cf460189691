"""Widths for all layers from one budget: the least damage that a number of neurons allows.

Each layer has a curve of errors over widths and a weight, what its error costs the model. Curves are taken as
they are measured: none need be convex. Over whole units the best split is found exactly, layer by layer: the
least cost of so many units among the first layers is the least, over the widths of the last of them, of its
own cost and that of the others with what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import RequestProblem

Doubles = NDArray[np.float64]

UNIT: Final = 32


@dataclass(frozen=True, slots=True)
class Curve:
    """Errors of one layer at its possible widths, which are whole units; `weight` of one unit of error."""

    widths: Sequence[int]
    errors: Sequence[float]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """A width for each layer; `cost`: the weighted errors summed."""

    widths: tuple[int, ...]
    cost: float


class Budgets:
    """All budgets of these curves at once: asking for one is a walk back through the layers."""

    def __init__(self, curves: Sequence[Curve], *, unit: int = UNIT) -> None:
        """RequestProblem for curves that make no sense: no widths, not in whole units, no numbers."""
        for layer, curve in enumerate(curves):
            _refuse_odd(layer, curve, unit)
        self._unit, self._curves = unit, curves
        self._costs = np.zeros(1)
        self._chosen: list[NDArray[np.int32]] = []
        for curve in curves:
            self._add(curve)

    def _add(self, curve: Curve) -> None:
        before, size = self._costs, len(self._costs) + max(curve.widths) // self._unit
        costs, chosen = np.full(size, np.inf), np.zeros(size, np.int32)
        for place, (width, error) in enumerate(zip(curve.widths, curve.errors)):
            at = width // self._unit
            span = slice(at, at + len(before))
            with_it = before + curve.weight * error
            better = with_it < costs[span]
            costs[span][better] = with_it[better]
            chosen[span][better] = place
        self._costs = costs
        self._chosen.append(chosen)

    @property
    def smallest(self) -> int:
        """The least budget there is, in neurons."""
        return int(np.flatnonzero(np.isfinite(self._costs))[0]) * self._unit

    @property
    def largest(self) -> int:
        """The most, in neurons: every layer at its widest."""
        return (len(self._costs) - 1) * self._unit

    def split(self, neurons: int) -> Allocation:
        """The best widths that come to exactly so many neurons in all.

        RequestProblem when none do: too few, too many, or no whole units.
        """
        place = neurons // self._unit
        fits = neurons % self._unit == 0 and 0 <= place < len(self._costs)
        if not fits or not np.isfinite(self._costs[place]):
            what = f"no widths come to {neurons:,} neurons"
            fix = f"choose {self.smallest:,} to {self.largest:,} in units of {self._unit}"
            raise RequestProblem(what, fix=fix)
        widths, cost = [], float(self._costs[place])
        for curve, chosen in zip(reversed(self._curves), reversed(self._chosen)):
            width = curve.widths[int(chosen[place])]
            widths.append(width)
            place -= width // self._unit
        return Allocation(tuple(reversed(widths)), cost)


def allocate(curves: Sequence[Curve], neurons: int, *, unit: int = UNIT) -> Allocation:
    """The best widths that come to exactly `neurons`; Problems as of `Budgets`."""
    return Budgets(curves, unit=unit).split(neurons)


def _refuse_odd(layer: int, curve: Curve, unit: int) -> None:
    whole = all(width >= 0 and width % unit == 0 for width in curve.widths)
    numbers = np.isfinite([curve.weight, *curve.errors]).all()
    if not curve.widths or len(curve.widths) != len(curve.errors) or not whole or not numbers:
        what = f"the curve of layer {layer} makes no sense"
        raise RequestProblem(what, fix=f"give an error, a number, for each width, in units of {unit}")
