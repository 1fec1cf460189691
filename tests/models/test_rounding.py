"""Roundings: files of their own, of the bytes that were told, and which matrices they have a say in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tiny_gguf import write_gguf
from trisplit.models import quantize
from trisplit.models.config import Stage
from trisplit.models.model import Model, open_model
from trisplit.models.quantize import BLOCK, Floats, Grid
from trisplit.models.rounding import NEAREST, SEARCHED, Fitted
from trisplit.models.stage_file import StageFile
from trisplit.models.stages import given
from trisplit.models.statistics import About, open_statistics, writing

Tiny = Callable[[str], Path]
DOWN = Stage(1, "down")


def read(file: StageFile, name: str) -> np.ndarray:
    stored = file.tensors[name]
    kind = {"U8": np.uint8, "F32": np.float32}[stored.kind]
    raw = (file.folder / stored.file).read_bytes()[stored.offset : stored.offset + stored.n_bytes]
    return np.frombuffer(raw, kind).reshape(stored.shape)


def values(model: Model, matrix: str = "down", stage: Stage = DOWN) -> Floats:
    (file,) = model.files([stage], "int4")
    parts = (read(file, f"{matrix}.{part}") for part in ("q4", "scales", "offsets"))
    return Grid(4, *parts).dequantize()


def plain(path: Path) -> Floats:
    return open_model(path).checkpoint.read("model.layers.1.mlp.down_proj.weight")


def some_statistics(path: Path, folder: Path, seed: int = 0) -> Fitted:
    model = open_model(path)
    random = np.random.default_rng(seed)
    about = About(model=model.content_digest(), text="t", tokens=200)
    with writing(folder / f"{seed}.npz", about) as add:
        for name, width in given(model.config, model.stages).items():
            x = random.standard_normal((200, width)) * random.lognormal(0, 1, width)
            add(name, x.T @ x / 200)
    return Fitted(open_statistics(folder / f"{seed}.npz"))


def test_each_rounding_has_files_of_its_own(tiny: Tiny, tmp_path: Path) -> None:
    path = tiny("llama")
    model, weights = open_model(path), plain(path)
    nearest, searched = values(model.rounded(NEAREST)), values(model.rounded(SEARCHED))
    np.testing.assert_array_equal(nearest, quantize.int4_nearest(weights).dequantize())
    np.testing.assert_array_equal(searched, quantize.int4(weights).dequantize())
    np.testing.assert_array_equal(values(model), searched)  # what a model does without one
    fits = [some_statistics(path, tmp_path, seed) for seed in (0, 1)]
    fitted = [values(model.rounded(fit)) for fit in fits]
    assert not np.array_equal(fitted[0], fitted[1])
    np.testing.assert_array_equal(fitted[0], values(model.rounded(fits[0])))


def test_ends_norms_and_other_dtypes_are_as_without(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    rounded = model.rounded(NEAREST)
    for stages, dtype in ((model.ends, "int4"), (model.stages, "int8"), (model.stages, "f32")):
        for file, same in zip(model.files(stages, dtype), rounded.files(stages, dtype)):  # type: ignore[arg-type]
            assert file.tensors == same.tensors


@pytest.mark.parametrize("variant", ["llama", "qwen2-window", "phi3", "gemma3", "neox"])
def test_every_matrix_of_every_family_has_statistics(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    fitted = open_model(tiny(variant)).rounded(some_statistics(tiny(variant), tmp_path))
    stages = fitted.stages[1:4]  # one layer
    for stage, file in zip(stages, fitted.files(stages, "int4")):
        assert file.weight_bytes == fitted.weight_bytes(stage, "int4")
        assert not [name for name in file.tensors if name.endswith((".q8", ".w"))]


def test_what_a_file_has_in_more_bits_is_rounded_and_its_own_4_bit_grids_are_kept(
    tiny: Tiny, tmp_path: Path
) -> None:
    mixed = write_gguf(tiny("llama"), tmp_path / "m.gguf", types={"*ffn_down*": "Q5_0", "*": "Q4_1"})
    model = open_model(mixed)
    rounded = model.rounded(NEAREST)
    assert rounded.weight_bytes(DOWN, "int4") < model.weight_bytes(DOWN, "int4")
    weights = model.checkpoint.read("blk.1.ffn_down.weight")
    np.testing.assert_array_equal(values(rounded), quantize.int4_nearest(weights).dequantize())
    kept = Stage(1, "gate_up")
    np.testing.assert_array_equal(values(rounded, "gate_up", kept), values(model, "gate_up", kept))
    assert weights.shape[1] % BLOCK == 0
