"""A trial computes what the written copy computes, at each layer's own width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import VARIANTS
from trisplit.compress.anatomy import dissect
from trisplit.compress.methods.ffn import Refit
from trisplit.compress.narrow import write_narrow
from trisplit.compress.reading import Body
from trisplit.compress.trial import Narrowed, trial
from trisplit.errors import RequestProblem
from trisplit.models.model import Model, open_model

Tiny = Callable[[str], Path]
IDS = list(range(5, 45))


def left(model: Model) -> np.ndarray:
    return Body(model, "f32", context=64, threads=1).read(IDS)


def narrowed(model: Model, bias: float = 0.0) -> list[Narrowed]:
    random, hidden = np.random.default_rng(0), model.config.hidden
    layers = []
    for layer, n in enumerate(model.config.ffn):
        kept = np.sort(random.choice(n, n - 16 * (layer + 1), replace=False))
        down = random.standard_normal((hidden, len(kept))) / 16
        layers.append(Narrowed(kept, down, np.full(hidden, bias) if bias else None))
    return layers


@pytest.mark.parametrize("variant", ["llama", "phi3", "neox", "gemma3"])
def test_it_is_the_copy_that_would_be_written(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    model = open_model(tiny(variant))
    layers = narrowed(model)
    tried = trial(model, layers, _made(tmp_path / "trial"))
    assert tried.config.ffn == tuple(len(layer.kept) for layer in layers)
    refits = [Refit(layer.kept, layer.down, 0.0) for layer in layers]
    write_narrow(dissect(tiny(variant)), refits, max(tried.config.ffn), tmp_path / "written")
    np.testing.assert_allclose(left(tried), left(open_model(tmp_path / "written")), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_cut_is_the_model_itself(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    model = open_model(tiny(variant))
    anatomy = dissect(tiny(variant))
    layers = []
    for layer, n in enumerate(model.config.ffn):
        down = next(part for part in anatomy.of(layer) if part.role == "down").read()
        layers.append(Narrowed(np.arange(n), down.astype(float)))
    tried = trial(model, layers, _made(tmp_path / "trial"))
    assert np.array_equal(left(tried), left(model))
    assert [tried.weight_bytes(s, "f32") for s in tried.stages] == [
        model.weight_bytes(s, "f32") for s in model.stages
    ]


def test_a_bias_is_added_and_other_dtypes_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    model = open_model(tiny("llama"))
    plain, biased = (trial(model, narrowed(model, bias), _made(tmp_path / f"{bias}")) for bias in (0.0, 0.25))
    assert np.abs(left(plain) - left(biased)).max() > 0.2
    with pytest.raises(RequestProblem, match="a trial is f32"):
        list(plain.files(plain.stages[:1], "int8"))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
