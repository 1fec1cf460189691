"""The quantize step: what it writes lies on the grid that our sessions and GGUF files hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file, save_file

from tests.tiny import build
from trisplit.compress.anatomy import dissect
from trisplit.compress.export import Wanted, export
from trisplit.compress.steps.quantize import Quantize
from trisplit.compress.steps.step import Means, Shape
from trisplit.errors import CheckpointProblem
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model
from trisplit.models.quantize import Grid

Tiny = Callable[[str], Path]
IDS = [1, 40, 77, 120, 13]


def written(path: Path, step: Quantize, folder: Path) -> dict[str, np.ndarray]:
    anatomy = dissect(path)
    assert anatomy.model is not None
    random = np.random.default_rng(0)
    passages = [[1, *random.integers(3, 320, 40).tolist()] for _ in range(3)]
    plan = step.plan(anatomy, Shape(widths=anatomy.model.config.ffn), Means(passages=passages))
    plan.write(folder)
    return {n: v for f in folder.glob("*.safetensors") for n, v in load_file(f).items()}


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_another_rounding_changes_nothing(dtype: str, fitted: bool, tiny: Tiny, tmp_path: Path) -> None:
    tensors = written(tiny("llama-biases"), Quantize(dtype=dtype, fitted=fitted), tmp_path / "m")  # type: ignore[arg-type]
    before = load_file(tiny("llama-biases") / "model.safetensors")
    assert tensors.keys() == before.keys()
    for name, values in tensors.items():
        if values.ndim == 1:
            assert np.array_equal(values, before[name])
            continue
        kind = Kind.Q4_1 if dtype == "int4" and ".layers." in name else Kind.Q8_0
        assert np.array_equal(dequantize(quantize(values, kind), kind), values)
        assert not np.array_equal(values, before[name])


@pytest.mark.parametrize("variant", ["llama", "phi3", "neox"])
def test_codes_of_a_session_stand_for_these_weights(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    """Opened with --dtype int8 the copy is the very weights that were judged."""
    written(tiny(variant), Quantize(dtype="int8"), tmp_path / "m")
    model = open_model(tmp_path / "m")
    matrices = 0
    for as_codes, as_floats in zip(model.files(model.stages, "int8"), model.files(model.stages, "f32")):
        coded = {n: v for name in as_codes.files for n, v in load_file(as_codes.folder / name).items()}
        floats = {n: v for name in as_floats.files for n, v in load_file(as_floats.folder / name).items()}
        for name in (name.removesuffix(".q8") for name in coded if name.endswith(".q8")):
            values = Grid(8, coded[f"{name}.q8"], coded[f"{name}.scales"]).dequantize()
            exact = floats[f"{name}.w"]
            assert np.array_equal(values, exact if as_codes.stage.layer < 0 else exact.T)
            matrices += 1
    assert matrices >= 4 * 4 + 2


def test_fitted_codes_are_better_where_the_text_is(tiny: Tiny, tmp_path: Path) -> None:
    exact = Decoder.load(tiny("qwen2")).forward(IDS, 0).copy()
    off = []
    for fitted in (True, False):
        written(tiny("qwen2"), Quantize(dtype="int4", fitted=fitted), tmp_path / str(fitted))
        off.append(np.square(Decoder.load(tmp_path / str(fitted)).forward(IDS, 0) - exact).mean())
    assert off[0] < off[1]


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e9])
def test_what_is_no_number_is_refused_by_name(odd: float, tmp_path: Path) -> None:
    build("llama", tmp_path / "m", layers=1)
    file = tmp_path / "m" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.mlp.up_proj.weight"][3, 5] = odd
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointProblem, match="up of gate_up 0"):
        written(tmp_path / "m", Quantize(dtype="int8"), tmp_path / "out")


@pytest.mark.parametrize(("dtype", "type"), [("int8", "q8_0"), ("int4", "q4_1")])
def test_a_gguf_of_it_is_small_and_loses_nothing_more(
    dtype: str, type: str, tiny: Tiny, tmp_path: Path
) -> None:
    written(tiny("llama"), Quantize(dtype=dtype, fitted=False), tmp_path / "m")  # type: ignore[arg-type]
    wanted = Wanted(format="gguf", type=type)
    done = export(open_model(tmp_path / "m"), tmp_path / "m.gguf", wanted)
    logits = [Decoder.load(path).forward(IDS, 0).tobytes() for path in (tmp_path / "m", done.path)]
    assert logits[0] == logits[1]
    assert done.n_bytes < 0.35 * sum(file.stat().st_size for file in (tmp_path / "m").glob("*.safetensors"))
