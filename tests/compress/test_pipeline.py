"""The pipeline: planted redundancy goes without loss, what fails is not kept, same inputs give the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import VARIANTS, build
from trisplit.compress.anatomy import dissect
from trisplit.compress.evaluate import Exam
from trisplit.compress.gates import DEFAULT
from trisplit.compress.pipeline import Outcome, compress
from trisplit.compress.recipe import ALIASES, RECIPES, Recipe, recipe_named
from trisplit.errors import Problem, RequestProblem, UnknownName
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


def ids(count: int, length: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[1, *random.integers(3, 320, length).tolist()] for _ in range(count)]


CALIBRATION, EXAM = ids(12, 80, 1), Exam(texts={"a": ids(2, 60, 2), "b": ids(2, 60, 3)})
ANYTHING = {"kl": 99.0}


def made(path: Path, recipe: Recipe, out: Path, **how: object) -> Outcome:
    how = {"gates": DEFAULT} | how
    return compress(dissect(path), recipe, CALIBRATION, EXAM, out, **how)  # type: ignore[arg-type]


def redundant(folder: Path) -> Path:
    """A model in which every neuron from 48 on says what one before it says, a little louder."""
    build("llama", folder, layers=3)
    tensors = load_file(folder / "model.safetensors")
    for layer in range(3):
        for name, gain in (("gate_proj", 1.0), ("up_proj", 1.5)):
            rows = tensors[f"model.layers.{layer}.mlp.{name}.weight"]
            rows[48:] = gain * rows[:48]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("recipe", ["balanced", "allocated"])
def test_planted_redundancy_goes_without_loss(recipe: str, tmp_path: Path) -> None:
    """To two thirds: the true width of 48 lies on no whole unit of 32, 64 does."""
    chosen = replace(RECIPES[recipe], keep=2 / 3)
    outcome = made(redundant(tmp_path / "m"), chosen, tmp_path / "out")
    assert outcome.kept
    assert outcome.widths == (64, 64, 64)
    for text in outcome.measured.texts:
        assert text.kl is not None
        assert text.kl < 1e-5
        assert text.top1 == 1.0
    model = open_model(tmp_path / "out")
    in_files = sum(int(np.prod(info.shape)) for info in model.checkpoint.tensors.values())
    assert outcome.parameters == in_files < outcome.parameters_dense


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_family_goes_the_whole_way(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    outcome = made(tiny(variant), replace(RECIPES["balanced"], keep=2 / 3), tmp_path / "out", gates=ANYTHING)
    assert outcome.kept
    assert open_model(tmp_path / "out").config.ffn == outcome.widths
    assert all(text.kl and text.kl > 0 for text in outcome.measured.texts)
    assert json.loads((tmp_path / "out" / "receipt.json").read_text())["widths"] == list(outcome.widths)


@pytest.mark.parametrize("variant", ["llama", "phi3", "neox"])
def test_allocated_meets_its_budget_and_prices_errors(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    outcome = made(tiny(variant), replace(RECIPES["allocated"], keep=2 / 3), tmp_path / "out", gates=ANYTHING)
    config = open_model(tiny(variant)).config
    assert sum(outcome.widths) == round(2 / 3 * sum(config.ffn) / 32) * 32
    weights = outcome.receipt["weights"]
    assert len(weights) == config.layers
    assert all(weight > 0 for weight in weights)


def test_what_fails_leaves_a_receipt_and_nothing_else(tiny: Tiny, tmp_path: Path) -> None:
    outcome = made(tiny("llama"), RECIPES["balanced"], tmp_path / "out", gates={"kl": 1e-9})
    assert not outcome.kept
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["receipt.json"]
    receipt = json.loads((tmp_path / "out" / "receipt.json").read_text())
    assert receipt["passed"] is False
    assert [gate["metric"] for gate in receipt["gates"]] == ["kl", "kl"]
    kept = made(tiny("llama"), RECIPES["balanced"], tmp_path / "kept", gates={"kl": 1e-9}, keep_failed=True)
    assert kept.kept
    assert (tmp_path / "kept" / "config.json").exists()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_the_same_inputs_give_the_same_receipt(tiny: Tiny, tmp_path: Path) -> None:
    receipts = []
    for name in "ab":
        made(tiny("llama"), RECIPES["allocated"], tmp_path / name, gates=ANYTHING)
        receipts.append((tmp_path / name / "receipt.json").read_bytes())
    assert receipts[0] == receipts[1]


def test_one_passage_is_enough(tiny: Tiny, tmp_path: Path) -> None:
    """Fewer tokens than neurons, and nothing to hold out."""
    compress(
        dissect(tiny("llama")), RECIPES["balanced"], ids(1, 20, 4), EXAM, tmp_path / "out", gates=ANYTHING
    )
    assert (tmp_path / "out" / "model.safetensors.index.json").exists()


def test_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    allocated, balanced = RECIPES["allocated"], RECIPES["balanced"]
    for variant, recipe, out, said in (
        ("llama", balanced, tmp_path / "full", "not empty"),
        ("llama", balanced, tmp_path / "none" / "m", "does not exist"),
        ("llama", replace(balanced, keep=0.05), tmp_path / "m", "cannot keep 0 neurons of 96"),
        ("llama", replace(allocated, keep=0.05), tmp_path / "m", "no widths come to"),
        ("gemma3", allocated, tmp_path / "m", "norm after its FFN"),
    ):
        with pytest.raises(RequestProblem, match=said):
            made(tiny(variant), recipe, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


# --- recipes --------------------------------------------------------------------------------------


def test_recipes_by_name_and_alias() -> None:
    assert all(recipe_named(alias).name == name for alias, name in ALIASES.items())
    assert recipe_named("allocated", 0.75).keep == 0.75


@pytest.mark.parametrize(
    ("name", "keep", "kind"),
    [("balancd", None, UnknownName), ("balanced", 0.0, RequestProblem), ("balanced", 1.5, RequestProblem)],
)
def test_what_is_no_recipe_is_refused(name: str, keep: float | None, kind: type[Problem]) -> None:
    with pytest.raises(kind):
        recipe_named(name, keep)
