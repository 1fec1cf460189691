"""Graphs of stages: gate and up that lie apart are two products, and nothing else is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from tests.tiny import write_gguf
from trisplit.models.config import Stage
from trisplit.models.model import open_model
from trisplit.models.session import StageSession, Tracks
from trisplit.models.stage_file import StageFile, Stored
from trisplit.models.stages import build

Tiny = Callable[[str], Path]
GATE_UP = Stage(0, "gate_up")


def operators(config: object, file: StageFile) -> list[str]:
    graph = onnx.load_model_from_string(build(config, [file], 8)).graph  # type: ignore[arg-type]
    return [node.op_type for node in graph.node]


def apart(file: StageFile, folder: Path) -> StageFile:
    """The same weights, those of gate and of up in files of their own."""
    wide = file.tensors["gate_up.w"]
    values = np.memmap(
        file.folder / wide.file, np.float32, "r", offset=wide.offset, shape=wide.shape, order="C"
    )
    norm = file.tensors["ffn_norm"]
    parts = {"ffn_norm": np.memmap(file.folder / norm.file, np.float32, "r", norm.offset, norm.shape)}
    parts |= {f"gate_up.{i}.w": half for i, half in enumerate(np.split(np.asarray(values), 2, axis=1))}
    return StageFile(file.stage, folder, written(parts, folder))


def written(arrays: Mapping[str, np.ndarray], folder: Path) -> dict[str, Stored]:
    tensors = {}
    for name, array in arrays.items():
        (folder / name).write_bytes(array.tobytes())
        tensors[name] = Stored(name, "F32", array.shape, 0, array.nbytes)
    return tensors


def test_gate_and_up_apart_give_what_they_give_as_one(tiny: Tiny, tmp_path: Path) -> None:
    model = open_model(tiny("llama"))
    (file,) = model.files([GATE_UP], "f32")
    rows = np.random.default_rng(0).standard_normal((3, model.config.hidden), dtype=np.float32)
    whole, parted = (
        Tracks(StageSession(model.config, [each], context=8, threads=1)).run({"r": rows}, 0)
        for each in (file, apart(file, tmp_path))
    )
    np.testing.assert_allclose(parted, whole, rtol=1e-5, atol=1e-6)


def test_nothing_is_joined_to_be_split_again(tiny: Tiny, tmp_path: Path) -> None:
    mixed = {"*ffn_gate*": "Q8_0", "*": "Q4_1"}
    model = open_model(write_gguf(tiny("llama"), tmp_path / "mixed.gguf", types=mixed))
    (file,) = model.files([GATE_UP], "int4")
    assert file.parts_of("gate_up") == ["gate_up.0", "gate_up.1"]
    kinds = operators(model.config, file)
    assert (kinds.count("MatMulNBits"), "Concat" in kinds, "Split" in kinds) == (2, False, False)
    rows = np.random.default_rng(0).standard_normal((3, model.config.hidden), dtype=np.float32)
    exact, close = (
        Tracks(StageSession(model.config, list(model.files([GATE_UP], dtype)), context=8, threads=1))
        .run({"r": rows}, 0)
        .copy()
        for dtype in ("f32", "int4")
    )
    assert np.abs(close - exact).max() < 0.05 * np.abs(exact).max()


def test_a_bias_is_added_to_both_at_once(tiny: Tiny, tmp_path: Path) -> None:
    mixed = {"*ffn_gate.w*": "Q8_0", "*": "Q4_1"}
    model = open_model(write_gguf(tiny("llama"), tmp_path / "mixed.gguf", types=mixed))
    (file,) = model.files([GATE_UP], "int4")
    bias = written({"gate_up.bias": np.zeros(2 * model.config.ffn[0], np.float32)}, tmp_path)
    kinds = operators(model.config, replace(file, tensors={**file.tensors, **bias}))
    assert (kinds.count("Concat"), kinds.count("Split"), kinds.count("Add")) == (1, 1, 2)
