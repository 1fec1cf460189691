"""What a text gives each layer: of every family, beside what its own thirds give and take alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import VARIANTS
from trisplit.compress.anatomy import dissect
from trisplit.compress.atlas import survey
from trisplit.compress.given import calibrated
from trisplit.models.config import Stage
from trisplit.models.model import open_model
from trisplit.models.session import StageSession, Tracks

Tiny = Callable[[str], Path]
PASSAGES = [[1, *range(40, 90)], [1, *range(100, 130)]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_down_is_given_what_gate_up_leaves(variant: str, tiny: Tiny) -> None:
    """Every session of its own, passage by passage: the same moments and means."""
    model = open_model(tiny(variant))

    def track(*stages: Stage) -> Tracks:
        return Tracks(StageSession(model.config, list(model.files(stages, "f32")), context=64, threads=1))

    before = track(*model.stages[:3])  # embed, attention and gate_up of layer 0
    if model.config.parallel:
        before = track(model.stages[0], model.stages[2])
    h = np.concatenate([before.run({"ids": np.array(ids)}, 0).copy() for ids in PASSAGES]).astype(np.float64)
    with calibrated(model, PASSAGES, threads=1) as given:
        seen = given(0)
    assert set(seen) == {"qkv", "out", "gate_up", "down"}
    assert seen["down"].mean == pytest.approx(h.mean(axis=0), abs=1e-5)
    assert seen["down"].gram == pytest.approx(h.T @ h / len(h), abs=1e-4)


def test_an_atlas_of_what_a_text_sees(tiny: Tiny) -> None:
    """81 tokens fill 81 of 96 dimensions at most; all layers have neurons."""
    anatomy = dissect(tiny("llama"))
    assert anatomy.model is not None
    with calibrated(anatomy.model, PASSAGES, threads=1) as given:
        atlas = survey(anatomy, given)
    assert all(row.white is not None for row in atlas.rows)
    for layer in atlas.layers:
        assert layer.neurons is not None
        assert layer.neurons.shares.sum() == pytest.approx(1)
        assert 1 < layer.neurons.carrying(0.9) < layer.neurons.carrying(0.99) <= 96
