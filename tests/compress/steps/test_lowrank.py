"""The low-rank step: a planted matrix becomes its factors, and what pruning does better is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import build
from trisplit.compress.anatomy import dissect
from trisplit.compress.sizes import weigh_shape
from trisplit.compress.steps.lowrank import LowRank
from trisplit.compress.steps.quantize import Quantize
from trisplit.compress.steps.step import Means, Shape
from trisplit.models.model import open_model

NAMES = {"q": "self_attn.q_proj", "gate": "mlp.gate_proj"}
RANK = 6


def planted(folder: Path) -> Path:
    """A model in which q and gate of layer 1 are of rank 6."""
    build("llama", folder, layers=2)
    file = folder / "model.safetensors"
    tensors, random = load_file(file), np.random.default_rng(0)
    for name in NAMES.values():
        matrix = tensors[f"model.layers.1.{name}.weight"]
        rows, columns = (random.standard_normal((n, RANK)) for n in matrix.shape)
        matrix[:] = rows @ columns.T * (np.linalg.norm(matrix) / np.linalg.norm(rows @ columns.T))
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def ids(count: int, length: int) -> list[list[int]]:
    random = np.random.default_rng(5)
    return [[1, *random.integers(3, 320, length).tolist()] for _ in range(count)]


def test_a_planted_rank_is_found_and_kept(tmp_path: Path) -> None:
    anatomy = dissect(planted(tmp_path / "m"))
    assert anatomy.model is not None
    config = anatomy.model.config
    shape, means = Shape(widths=config.ffn), Means(passages=ids(10, 60))
    plan = LowRank(keep=0.5).plan(anatomy, shape, means)
    assert {(1, "q"), (1, "gate")} <= plan.shape.ranks.keys()
    compared = {(one["layer"], one["matrix"]): one for one in plan.facts["compared"]}
    assert len(compared) == 14
    assert compared[1, "q"]["error"] < 1e-6 * compared[1, "q"]["error_pruned"]
    for place, one in compared.items():
        assert (place in plan.shape.ranks) == (one["error"] < one["error_pruned"])
    assert len(plan.shape.ranks) < 14
    assert plan.notes[0].startswith(f"of 14 matrices {len(plan.shape.ranks)} ")

    plan.write(tmp_path / "out")
    before = load_file(tmp_path / "m" / "model.safetensors")
    after = {n: v for f in (tmp_path / "out").glob("*.safetensors") for n, v in load_file(f).items()}
    assert {name: v.shape for name, v in after.items()} == {name: v.shape for name, v in before.items()}
    for role, name in NAMES.items():
        name = f"model.layers.1.{name}.weight"
        assert after[name] == pytest.approx(before[name], abs=1e-5)
        assert np.linalg.matrix_rank(after[name], rtol=1e-4) == RANK <= plan.shape.ranks[1, role]
    dense, small = weigh_shape(anatomy.model, shape), weigh_shape(anatomy.model, plan.shape)
    assert dense.parameters - small.parameters == sum(edit.parameters for edit in plan.edits) > 0
    assert dense.weight_bytes - small.weight_bytes == sum(edit.n_bytes for edit in plan.edits)

    step = Quantize(dtype="int8").plan(dissect(tmp_path / "out"), plan.shape, means)
    assert step.notes == (f"{len(plan.shape.ranks)} matrices of two factors stay in f32",)
    step.write(tmp_path / "codes")
    rounded = {n: v for f in (tmp_path / "codes").glob("*.safetensors") for n, v in load_file(f).items()}
    name = f"model.layers.1.{NAMES['q']}.weight"
    assert np.array_equal(rounded[name], after[name])
    assert sum(edit.n_bytes for edit in step.edits) == (
        small.weight_bytes - weigh_shape(anatomy.model, step.shape).weight_bytes
    )
    assert open_model(tmp_path / "codes").config.ffn == config.ffn
