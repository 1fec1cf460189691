"""Fitted twins: statistics of this model and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.errors import RequestProblem
from trisplit.models.model import open_model
from trisplit.models.rounding import Fitted
from trisplit.models.statistics import About, Statistics, open_statistics, writing
from trisplit.models.twins import fitted_twin, kept_statistics

Tiny = Callable[[str], Path]


def statistics_of(digest: str, path: Path) -> Statistics:
    with writing(path, About(model=digest, text="t", tokens=1)):
        pass
    return open_statistics(path)


def test_a_model_takes_its_own_statistics(tiny: Tiny, tmp_path: Path) -> None:
    model = open_model(tiny("llama"))
    statistics = statistics_of(model.content_digest(), tmp_path / "s.npz")
    assert fitted_twin(model, statistics).rounding == Fitted(statistics)


def test_those_of_another_model_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    """Mistral is this llama but for its window: the weights alone do not tell them apart."""
    statistics = statistics_of(open_model(tiny("mistral")).content_digest(), tmp_path / "s.npz")
    with pytest.raises(RequestProblem, match="other weights"):
        fitted_twin(open_model(tiny("llama")), statistics)


def test_each_model_has_a_place_for_its_statistics(tiny: Tiny) -> None:
    assert kept_statistics(open_model(tiny("llama"))) != kept_statistics(open_model(tiny("mistral")))
