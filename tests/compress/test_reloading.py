"""What was written is read anew: as meant it passes with figures, and whatever is amiss is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import write_gguf
from trisplit.compress.export import Wanted, export
from trisplit.compress.reloading import MOST_DELTA, compare, in_fresh_process
from trisplit.errors import CheckpointProblem
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compare` leaves nothing on the shelf."""
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))


def written(source: Path, out: Path, format: str, type: str, **how: Any) -> tuple[Path, Path, Wanted]:
    wanted = Wanted(format=format, type=type, **how)
    export(open_model(source), out, wanted)
    return source, out, wanted


@pytest.mark.parametrize(
    ("variant", "format", "type"),
    [
        ("qwen2", "gguf", "f32"),
        ("deci", "safetensors", "f16"),
        ("gemma3", "gguf", "q4_1"),
        ("neox-sequential", "gguf", "bf16"),
        ("mistral", "gguf", "f16"),
    ],
)
def test_as_meant(variant: str, format: str, type: str, tiny: Tiny, tmp_path: Path) -> None:
    out = tmp_path / ("m.gguf" if format == "gguf" else "m")
    seen = compare(*written(tiny(variant), out, format, type))
    assert seen.delta <= MOST_DELTA
    assert (seen.of_file > seen.delta) == (type != "f32")
    assert list((tmp_path / "cache").rglob("*.safetensors")) == []


def test_in_a_process_of_its_own(tiny: Tiny, tmp_path: Path) -> None:
    source = write_gguf(tiny("llama"), tmp_path / "source.gguf", types="Q8_0")
    wanted = Wanted(format="deci", type="f32", trim=True)
    done = export(open_model(source), tmp_path / "m", wanted, check=in_fresh_process(source, wanted))
    assert done.check is not None
    assert done.check["delta"] <= MOST_DELTA
    assert done.check["parameters"] == done.parameters
    assert [*(tmp_path / "cache").iterdir()] == []


def config_changed(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def tensor_changed(folder: Path) -> None:
    file = folder / "model-00002-of-00006.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.self_attn.k_proj.weight"][5, 7] += 1e-6
    save_file(tensors, file)


def tensor_added(folder: Path) -> None:
    file = folder / "model-00002-of-00006.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"extra": tensors["model.layers.0.input_layernorm.weight"]}, file)


def bos_forgotten(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": False}))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: config_changed(folder, rope_theta=20_000.0), "inv_freq is"),
        (lambda folder: config_changed(folder, rms_norm_eps=1e-6), "norm_eps is 1e-06, not 1e-05"),
        (lambda folder: config_changed(folder, max_position_embeddings=64), "context is 64, not 512"),
        (tensor_changed, "model.layers.0.self_attn.k_proj.weight has other numbers"),
        (tensor_added, "extra is unexpected"),
        (bos_forgotten, "a text becomes other tokens"),
    ],
)
def test_what_is_amiss_is_named(harm: Callable[[Path], None], said: str, tiny: Tiny, tmp_path: Path) -> None:
    order = written(tiny("llama"), tmp_path / "m", "safetensors", "f32")
    harm(tmp_path / "m")
    with pytest.raises(CheckpointProblem) as caught:
        compare(*order)
    assert said in caught.value.what


def test_a_fresh_process_that_finds_fault_says_so(tiny: Tiny, tmp_path: Path) -> None:
    source, out, wanted = written(tiny("llama"), tmp_path / "m", "safetensors", "f32")
    tensor_changed(out)
    with pytest.raises(CheckpointProblem, match="has other numbers"):
        in_fresh_process(source, wanted)(out)
