"""Diagnosis: a planted ruin is found and blamed, and every figure is what evaluation would have measured."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import build
from trisplit.compress.diagnose import Loss, diagnose
from trisplit.compress.evaluate import Exam, compare, see
from trisplit.compress.passages import Passage
from trisplit.errors import RequestProblem
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model, open_model

Tiny = Callable[[str], Path]


def ids(count: int, length: int, seed: int) -> list[Passage]:
    random = np.random.default_rng(seed)
    return [[1, *random.integers(3, 320, length).tolist()] for _ in range(count)]


TEXTS = {"a": ids(2, 20, 2), "b": ids(1, 33, 3)}


def damaged(model: Path, folder: Path, noise: dict[int, float]) -> Model:
    """A copy with noise on its down matrices, of so much of their spread; a layer's is always the same."""
    shutil.copytree(model, folder)
    tensors = load_file(model / "model.safetensors")
    down = FAMILIES[open_model(model).config.family].names["down"]
    for layer, part in noise.items():
        weights = tensors[down.format(layer)]
        rows = np.random.default_rng(layer).standard_normal(weights.shape)
        tensors[down.format(layer)] = (weights + part * weights.std() * rows).astype(np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return open_model(folder)


def lost(model: Model, dense: Model) -> Loss:
    """What an evaluation says, over both texts."""
    exam = Exam(texts={"both": [passage for of_text in TEXTS.values() for passage in of_text]})
    seen, before = (see(each, "f32", exam, threads=1) for each in (model, dense))
    (score,) = compare(exam, seen, before).texts
    assert score.kl is not None
    assert score.ppl_ratio is not None
    assert score.top1 is not None
    return Loss(score.kl, score.ppl_ratio, score.top1)


def near(loss: Loss) -> Any:
    return pytest.approx(astuple(loss), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("variant", ["llama", "gemma3", "neox"])
def test_a_ruined_layer_is_blamed(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    """Among others that were touched; alone it costs nearly all, and left dense it wins nearly all back."""
    twin = damaged(tiny(variant), tmp_path / "twin", {0: 0.05, 2: 2.0, 3: 0.05})
    found = diagnose(open_model(tiny(variant)), twin, TEXTS)
    assert found.carriers == (2,)
    assert found.carried > 0.9
    assert found.ranked()[0].layer == 2
    assert (found.layers[1].own.error, found.layers[1].alone.kl) == (0, 0)
    assert found.layers[2].own.error > 1
    assert found.mended == found.layers[2].spared
    assert found.mended.kl < 0.1 * found.layers[2].alone.kl
    kl = [blame for blame in found.blames if blame.gate.metric == "kl"]
    assert [blame.gate.on for blame in kl] == ["a", "b"]
    assert {(blame.layers, blame.rescuers) for blame in kl} == {((2,), (2,))}


@pytest.mark.parametrize("variant", ["llama", "gemma3", "neox"])
def test_figures_are_those_of_an_evaluation(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    """Each mixture against a model that was written so and put to an exam."""
    dense = open_model(tiny(variant))
    noise = {layer: 0.2 + 0.2 * (layer == 1) for layer in range(dense.config.layers)}
    twin = damaged(tiny(variant), tmp_path / "twin", noise)
    found = diagnose(dense, twin, TEXTS)
    assert astuple(found.whole) == near(lost(twin, dense))
    alone = damaged(tiny(variant), tmp_path / "alone", {1: noise[1]})
    assert astuple(found.layers[1].alone) == near(lost(alone, dense))
    others = {layer: part for layer, part in noise.items() if layer != 1}
    spared = damaged(tiny(variant), tmp_path / "spared", others)
    assert astuple(found.layers[1].spared) == near(lost(spared, dense))
    kept = {layer: part for layer, part in noise.items() if layer not in found.carriers}
    assert astuple(found.mended) == near(lost(damaged(tiny(variant), tmp_path / "mended", kept), dense))
    assert found.layers[1].own.error == pytest.approx(noise[1] ** 2, rel=0.5)
    assert sum(layer.share for layer in found.layers) == pytest.approx(1)
    assert found.explained == pytest.approx(1, abs=0.2)


def test_the_way_apart_is_that_of_the_residuals(tiny: Tiny, tmp_path: Path) -> None:
    """After the last layer, where an evaluation keeps them; first tokens by themselves."""
    dense = open_model(tiny("llama"))
    twin = damaged(tiny("llama"), tmp_path / "twin", {1: 0.3})
    found = diagnose(dense, twin, TEXTS)
    assert (found.layers[0].depth.apart, found.layers[0].depth.apart_first) == (0, 0)
    exam, firsts, others = Exam(texts=TEXTS), list[float](), list[float]()
    before, seen = (see(model, "f32", exam, threads=1).residuals for model in (dense, twin))
    for name in TEXTS:
        for x, y in zip(before[name], seen[name]):
            first, *rest = (np.linalg.norm(y - x, axis=1) / np.linalg.norm(x, axis=1)).tolist()
            firsts.append(first)
            others += rest
    last = found.layers[-1].depth
    assert last.apart == pytest.approx(np.mean(others), rel=1e-4)
    assert last.apart_first == pytest.approx(np.mean(firsts), rel=1e-4)
    assert 0 < last.turned < last.apart


def test_the_dense_model_beside_itself_has_lost_nothing(tiny: Tiny) -> None:
    model = open_model(tiny("qwen2"))
    found = diagnose(model, model, TEXTS)
    assert found.whole == found.mended == Loss(0.0, 1.0, 1.0)
    assert (found.carriers, found.blames, found.verdict.passed) == ((), (), True)


def test_one_token_is_enough(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    found = diagnose(model, model, {"a": [[1, 7]]})
    assert (found.whole.kl, found.texts[0].tokens) == (0, 1)


def test_refused(tiny: Tiny, tmp_path: Path) -> None:
    model = open_model(tiny("llama"))
    other = open_model(build("llama", tmp_path / "m", layers=2))
    with pytest.raises(RequestProblem, match="layers 4 and 2"):
        diagnose(model, other, TEXTS)
    for nothing in ({}, {"a": []}, {"a": [[1, 5]], "b": [[5]]}):
        with pytest.raises(RequestProblem, match="nothing to read"):
            diagnose(model, model, nothing)
