"""Stage weights on disk: the promised bytes, only a stage's own tensors, whole or not at all."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.tiny import build, build_variant
from tests.tiny_gguf import write_gguf
from trisplit.errors import RequestProblem
from trisplit.models.checkpoint import CHUNK_VALUES
from trisplit.models.config import EMBED, HEAD, Stage
from trisplit.models.convert import DTYPES, Dtype, stage_bytes, stage_file
from trisplit.models.model import Model, open_model
from trisplit.models.quantize import Grid


@dataclass
class Watched:
    """A checkpoint that remembers which tensors were read."""

    inner: Any
    seen: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, name: str) -> np.ndarray:
        self.seen.add(name)
        return self.inner.read(name)

    def slabs(self, name: str, n_rows: int) -> Iterator[np.ndarray]:
        self.seen.add(name)
        return self.inner.slabs(name, n_rows)

    def blocks(self, name: str) -> np.ndarray:
        self.seen.add(name)
        return self.inner.blocks(name)


def models(path: Path, folder: Path) -> Iterator[Model]:
    """The model as it is, and as GGUF files of mixed types where GGUF has words for it."""
    yield open_model(path)
    mixed = {"*attn_v*": "Q8_0", "*ffn_down*": "Q5_0", "*attn_output*": "Q4_0", "*": "Q4_1"}
    yield open_model(write_gguf(path, folder / "mixed.gguf", types=mixed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["llama", "qwen2", "phi3", "gemma3", "llama-biases", "neox"])
def test_bytes_are_told_before_they_are_made(
    variant: str, dtype: Dtype, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    for model in models(tiny(variant), tmp_path):
        for stage in model.stages:
            made = stage_file(model.checkpoint, model.config, stage, dtype)
            assert made.weight_bytes == stage_bytes(model.checkpoint, model.config, stage, dtype), str(stage)


def test_a_stage_reads_its_own_tensors_and_no_other(tmp_path: Path) -> None:
    model = open_model(build_variant("llama", tmp_path / "fresh"))
    watched = Watched(model.checkpoint)
    stage_file(watched, model.config, Stage(2, "down"), "f32")
    assert watched.seen == {"model.layers.2.mlp.down_proj.weight"}
    stage_file(watched, model.config, Stage(1, "attention"), "int8")
    assert {name.split(".")[2] for name in watched.seen if "self_attn" in name} == {"1"}


def test_the_second_start_reads_nothing(tiny: Callable[[str], Path]) -> None:
    model = open_model(tiny("qwen3"))
    first = [stage_file(model.checkpoint, model.config, stage, "int4") for stage in model.stages]
    watched = Watched(model.checkpoint)
    assert [stage_file(watched, model.config, stage, "int4") for stage in model.stages] == first
    assert watched.seen == set()


def test_a_tied_head_is_the_embedding_s_own_bytes(tiny: Callable[[str], Path]) -> None:
    model = open_model(tiny("llama-biases"))
    assert model.config.tied_head
    embed = stage_file(model.checkpoint, model.config, EMBED, "int8")
    head = stage_file(model.checkpoint, model.config, HEAD, "int8")
    assert head.tensors["head.q8"] == embed.tensors["embed.q8"]


def test_what_lies_on_disk_is_what_the_checkpoint_says(tiny: Callable[[str], Path]) -> None:
    path = tiny("qwen2")
    model = open_model(path)
    file = stage_file(model.checkpoint, model.config, Stage(0, "attention"), "f32")
    stored = load_file(file.folder / file.tensors["qkv.w"].file)
    source = load_file(path / "model.safetensors")
    names = [f"model.layers.0.self_attn.{p}_proj" for p in "qkv"]
    np.testing.assert_array_equal(stored["qkv.w"], np.concatenate([source[f"{n}.weight"] for n in names]).T)
    np.testing.assert_array_equal(stored["qkv.bias"], np.concatenate([source[f"{n}.bias"] for n in names]))


def test_rotary_pairs_of_gguf_rows_are_undone(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    path = tiny("llama")
    plain, paired = open_model(path), open_model(write_gguf(path, tmp_path / "f32.gguf"))
    for dtype in DTYPES:
        files = [stage_file(m.checkpoint, m.config, Stage(1, "attention"), dtype) for m in (plain, paired)]
        one, two = (load_file(f.folder / f.files[0]) for f in files)
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


def test_rotary_pairs_of_a_file_s_own_grid_are_undone(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    path = tiny("llama")
    model = open_model(write_gguf(path, tmp_path / "q4_1.gguf", types="Q4_1"))
    file = stage_file(model.checkpoint, model.config, Stage(1, "attention"), "int4")
    stored = load_file(file.folder / file.files[0])
    made = Grid(4, *(stored[f"qkv.{part}"] for part in ("q4", "scales", "offsets"))).dequantize()
    source = load_file(path / "model.safetensors")
    exact = np.concatenate([source[f"model.layers.1.self_attn.{p}_proj.weight"] for p in "qkv"])
    np.testing.assert_allclose(made, exact, rtol=0, atol=np.abs(exact).max() / 15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_keys_and_values_head_by_head_are_put_apart(
    dtype: Dtype, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    """NeoX's safetensors have q, k and v of each head; its GGUF has all q, all k, all v."""
    path = tiny("neox")
    by_head, apart = open_model(path), open_model(write_gguf(path, tmp_path / "f32.gguf"))
    files = [stage_file(m.checkpoint, m.config, Stage(1, "attention"), dtype) for m in (by_head, apart)]
    one, two = (load_file(f.folder / f.files[0]) for f in files)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    source = load_file(path / "model.safetensors")["gpt_neox.layers.1.attention.query_key_value.bias"]
    np.testing.assert_array_equal(one["qkv.bias"][128:192], source[64:128])  # keys of the first head


def test_matrices_of_mixed_types_are_kept_in_parts(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    mixed = {"*attn_v*": "Q8_0", "*attn*": "Q4_1", "*": "F32"}
    model = open_model(write_gguf(tiny("llama"), tmp_path / "parts.gguf", types=mixed))
    file = stage_file(model.checkpoint, model.config, Stage(0, "attention"), "int4")
    assert {n for n in file.tensors if n.startswith("qkv")} == {
        *(f"qkv.{i}.{part}" for i in (0, 1) for part in ("q4", "scales", "offsets")),
        *(f"qkv.2.{part}" for part in ("q8", "scales")),
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_going_over_a_matrix_in_slabs_changes_no_bit(
    dtype: Dtype, tiny: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in (*models(tiny("llama"), tmp_path), open_model(tiny("neox"))):
        made = []
        for cache, values in (("whole", CHUNK_VALUES), ("rows", 300)):
            monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / cache))
            monkeypatch.setattr("trisplit.models.convert.CHUNK_VALUES", values)
            files = [*model.files(model.stages, dtype)]
            made.append([(file.folder / file.files[0]).read_bytes() for file in files])
        assert made[0] == made[1]


@pytest.mark.parametrize("dtype", ["f32", "int8"])
@pytest.mark.parametrize("stored", ["safetensors", "gguf"])
def test_converting_takes_the_memory_of_what_it_makes_and_a_little(
    stored: str, dtype: Dtype, wide: Path, tmp_path: Path
) -> None:
    """A table of 262,144 tokens took 2 GB to become 189 MB."""
    path = write_gguf(wide, tmp_path / "wide.gguf", types="Q5_0") if stored == "gguf" else wide
    model = open_model(path)
    for stage in (Stage(0, "gate_up"), Stage(0, "down")):
        tracemalloc.start()
        made = stage_file(model.checkpoint, model.config, stage, dtype)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < made.weight_bytes + 10 * 4 * CHUNK_VALUES


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose FFN matrices are 32 and 64 slabs."""
    ffn = 32 * CHUNK_VALUES // 64
    return build("llama", tmp_path_factory.mktemp("wide") / "model", layers=1, intermediate_size=ffn)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[1]",
        b"5",
        b'{"down.w": 5}',
        b'{"down.w": {"dtype": "F32"}}',
        b'{"down.w": {"dtype": "F32", "shape": [1], "data_offsets": ["a", "b"]}}',
        b'{"down.w": {"dtype": "F32", "shape": 7, "data_offsets": [0, 4]}}',
        b'{"down.w": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
        b'{"other": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"down.w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    ],
)
def test_a_foreign_file_in_the_cache_is_made_again(
    header: bytes, tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    model = open_model(tiny("llama"))
    first = stage_file(model.checkpoint, model.config, Stage(0, "down"), "f32")
    path = first.folder / first.files[0]
    good = path.read_bytes()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4 if b"offsets" in header else 0))
    assert stage_file(model.checkpoint, model.config, Stage(0, "down"), "f32") == first
    assert path.read_bytes() == good


def test_a_file_that_is_not_whole_after_it_was_written_is_told(
    tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    monkeypatch.setattr("trisplit.models.convert.save_file", lambda _, path: path.write_bytes(b"half"))
    model = open_model(tiny("llama"))
    with pytest.raises(RequestProblem, match=r"cannot be written: the file of down 0 is not whole") as caught:
        stage_file(model.checkpoint, model.config, Stage(0, "down"), "f32")
    assert str(tmp_path) in caught.value.what


def test_an_interrupted_conversion_leaves_no_file(
    tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    model = open_model(tiny("llama"))

    def dies(_: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trisplit.models.convert.save_file", dies)
        with pytest.raises(KeyboardInterrupt):
            stage_file(model.checkpoint, model.config, Stage(0, "down"), "f32")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    made = stage_file(model.checkpoint, model.config, Stage(0, "down"), "f32")
    assert json.dumps(sorted(made.tensors)) == '["down.w"]'
