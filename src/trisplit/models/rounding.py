"""How the matrices of a layer become 4-bit codes: each alike, or fitted to what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from trisplit.models import quantize
from trisplit.models.config import Stage
from trisplit.models.fitting import ROWS, SWEEPS, Fitter, Keeps, narrowed
from trisplit.models.layout import Matrix
from trisplit.models.quantize import Floats, Grid
from trisplit.models.stage_file import matrix_name
from trisplit.models.statistics import Statistics

__all__ = ["NEAREST", "ROWS", "SEARCHED", "Alike", "Fit", "Fitted", "Rounding"]

_VERSION: Final = 1  # raise it when the same statistics give other codes: old files are then made again

Fit = Callable[[Floats], Grid]
"""From rows [rows, columns] of a matrix to their codes."""


class Rounding(Protocol):
    """`name` tells its files from those of others on the shelf: it changes with whatever they depend on."""

    @property
    def name(self) -> str: ...

    def fit(self, stage: Stage, matrix: Matrix) -> Fit:
        """How rows of this matrix are rounded; Problems where that cannot be known."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Every matrix the same way, whatever it is given."""

    name: str
    how: Fit

    def fit(self, stage: Stage, matrix: Matrix) -> Fit:  # noqa: ARG002
        return self.how


NEAREST: Final = Alike("nearest", quantize.int4_nearest)
SEARCHED: Final = Alike("searched", quantize.int4)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Every matrix fitted to what a text has made it see; with less than all, what that is worth is seen."""

    statistics: Statistics
    keeps: Keeps = "all"
    sweeps: int = SWEEPS
    _last: dict[str, Fitter] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return f"fitted-{_VERSION}-{self.keeps}-{self.sweeps}-{self.statistics.digest[:24]}"

    def fit(self, stage: Stage, matrix: Matrix) -> Fit:
        """Made once for the parts of a matrix that come one after the other."""
        key = matrix_name(stage, matrix.name)
        if key not in self._last:
            self._last.clear()
            gram = narrowed(self.statistics.gram(stage, matrix), self.keeps)
            self._last[key] = Fitter(gram, sweeps=self.sweeps)
        return self._last[key]
