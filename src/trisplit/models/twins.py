"""int4 twins whose grids are fitted to what a calibration text makes their matrices see."""

from __future__ import annotations

from pathlib import Path

from trisplit.errors import RequestProblem
from trisplit.models.model import Model
from trisplit.models.rounding import Fitted
from trisplit.models.statistics import Statistics
from trisplit.paths import cache_dir


def fitted_twin(model: Model, statistics: Statistics) -> Model:
    """The model with int4 weights fitted by these statistics; RequestProblem when they are of another model.

    Nothing is fitted before a stage's weights are asked for, and then once: they are kept.
    """
    if statistics.about.model != model.content_digest():
        what = f"{statistics.path} has the statistics of other weights than those of {model.checkpoint.path}"
        raise RequestProblem(what, fix="make its own with: trisplit calibrate")
    return model.rounded(Fitted(statistics))


def kept_statistics(model: Model) -> Path:
    """Where the statistics of a model are kept if nobody names another place; they need not be there."""
    return cache_dir() / "statistics" / f"{model.checkpoint.digest[:24]}.npz"
