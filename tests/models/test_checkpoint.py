"""Safetensors folders: what is read is what was stored, lazily; and every lie is one CheckpointProblem."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import CHUNK_VALUES, TensorInfo, open_checkpoint
from trisplit.models.folder import INDEX

CONFIG = {"model_type": "llama", "hidden_size": 4}
RNG = np.random.default_rng(0)
Tensors = Mapping[str, NDArray[Any]]
Index = Mapping[str, str] | None


def folder_of(folder: Path, files: Mapping[str, Tensors], index: Index = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for name, tensors in files.items():
        save_file(dict(tensors), folder / name)
    if index is not None:
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def file_of(header: object, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(first: int, last: int, shape: list[Any], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


def problem(path: Path) -> CheckpointProblem:
    with pytest.raises(CheckpointProblem) as caught:
        open_checkpoint(path)
    assert caught.value.fix
    return caught.value


A = RNG.standard_normal((3, 5), np.float32)
B = RNG.standard_normal((4,), np.float32)
C = RNG.standard_normal((2, 2), np.float32)
ONE, TWO, THREE = (f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3))
X, Y = "x.safetensors", "y.safetensors"
SHARDS: dict[str, Tensors] = {ONE: {"a": A}, TWO: {"b": B}, THREE: {"c": C}}
MAP = {"a": ONE, "b": TWO, "c": THREE}


def test_reads_the_three_float_types_as_stored(tmp_path: Path) -> None:
    half, brain = A.astype(np.float16), A.astype(ml_dtypes.bfloat16)
    folder = folder_of(tmp_path / "m", {"model.safetensors": {"f32": A, "f16": half, "bf16": brain}})
    checkpoint = open_checkpoint(folder)
    assert (checkpoint.path, checkpoint.format, checkpoint.metadata) == (folder, "safetensors", CONFIG)
    assert checkpoint.tensors == {
        "f32": TensorInfo("f32", (3, 5), "F32", 60),
        "f16": TensorInfo("f16", (3, 5), "F16", 30),
        "bf16": TensorInfo("bf16", (3, 5), "BF16", 30),
    }
    for name, source in (("f32", A), ("f16", half), ("bf16", brain)):
        values = checkpoint.read(name)
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        assert values.flags.writeable
        assert np.array_equal(values, source.astype(np.float32))
    assert checkpoint.read("f32") is not checkpoint.read("f32")


def test_reads_scalars_empty_tensors_and_more_than_one_chunk(tmp_path: Path) -> None:
    long = RNG.standard_normal((3, CHUNK_VALUES // 2 + 1), np.float32).astype(ml_dtypes.bfloat16)
    tensors: Tensors = {
        "long": long,
        "scalar": np.array(7, np.float32),
        "empty": np.empty((0, 3), np.float32),
    }
    checkpoint = open_checkpoint(folder_of(tmp_path / "m", {"model.safetensors": tensors}))
    for name, source in tensors.items():
        assert checkpoint.read(name).shape == source.shape
        assert np.array_equal(checkpoint.read(name), source.astype(np.float32))


@pytest.mark.parametrize("n_rows", [1, 2, 3, 7])
def test_slabs_are_the_matrix_in_order(tmp_path: Path, n_rows: int) -> None:
    folder = folder_of(tmp_path / "m", {"model.safetensors": {"a": A.astype(np.float16)}})
    checkpoint = open_checkpoint(folder)
    slabs = list(checkpoint.slabs("a", n_rows))
    assert [len(slab) for slab in slabs] == {1: [1, 1, 1], 2: [2, 1], 3: [3], 7: [3]}[n_rows]
    assert np.array_equal(np.concatenate(slabs), checkpoint.read("a"))


def test_other_types_open_and_fail_only_when_read(tmp_path: Path) -> None:
    tensors: Tensors = {"a": A, "ids": np.arange(4), "f8": A.astype(ml_dtypes.float8_e4m3fn)}
    checkpoint = open_checkpoint(folder_of(tmp_path / "m", {"model.safetensors": tensors}))
    assert checkpoint.tensors["ids"].dtype == "I64"
    assert np.array_equal(checkpoint.read("a"), A)
    for name in ("ids", "f8"):
        with pytest.raises(CheckpointProblem, match="which we do not read"):
            checkpoint.read(name)
    with pytest.raises(CheckpointProblem, match="'a' is F32, not quantised"):
        checkpoint.blocks("a")


def test_a_name_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path) -> None:
    names = ["model.norm.weight", "model.layers.0.mlp.up_proj.weight"]
    checkpoint = open_checkpoint(folder_of(tmp_path / "m", {"model.safetensors": dict.fromkeys(names, A)}))
    with pytest.raises(CheckpointProblem, match=r"'model.norm.weigth'.*it has 'model.norm.weight'"):
        checkpoint.read("model.norm.weigth")
    with pytest.raises(CheckpointProblem, match="nothing like it"):
        checkpoint.read("?")


@pytest.mark.parametrize(
    ("files", "index"),
    [
        pytest.param(SHARDS, MAP, id="index and files agree"),
        pytest.param(SHARDS, None, id="no index"),
        pytest.param(SHARDS, MAP | {"d": THREE}, id="index names a tensor that is not there"),
        pytest.param(SHARDS, MAP | {"d": "model-00004-of-00004.safetensors"}, id="index names a lost file"),
        pytest.param(SHARDS, {"a": ONE}, id="index misses tensors and files"),
        pytest.param(SHARDS, {"a": TWO, "b": ONE, "c": THREE}, id="index swaps files"),
        pytest.param(SHARDS, {"a": "../m/" + ONE}, id="index points out of the folder"),
        pytest.param({"model.safetensors": {"a": A, "b": B, "c": C}}, None, id="one file"),
        pytest.param({"model.safetensors": {"a": A, "b": B, "c": C}}, MAP, id="one file, index left over"),
        pytest.param({X: {"a": A, "b": B, "c": C}}, None, id="one file, any name"),
        pytest.param({X: {"a": A}, Y: {"b": B, "c": C}}, {"a": X, "b": Y, "c": Y}, id="no numbers"),
        pytest.param(SHARDS | {X: {"z": A}}, MAP, id="a file of something else"),
    ],
)
def test_whole_models_open(
    tmp_path: Path, files: Mapping[str, Tensors], index: Mapping[str, str] | None
) -> None:
    checkpoint = open_checkpoint(folder_of(tmp_path / "m", files, index))
    assert checkpoint.tensors.keys() == {"a", "b", "c"}
    for name, source in (("a", A), ("b", B), ("c", C)):
        assert np.array_equal(checkpoint.read(name), source)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"weight_map": 3}', b'{"weight_map": {"a": 1}}', b"[" * 9999]
)
def test_an_unreadable_index_is_no_index(tmp_path: Path, content: bytes) -> None:
    folder = folder_of(tmp_path / "m", SHARDS)
    (folder / INDEX).write_bytes(content)
    assert open_checkpoint(folder).tensors.keys() == {"a", "b", "c"}
    (folder / TWO).unlink()
    assert f"lacks {TWO}" in problem(folder).what


@pytest.mark.parametrize(
    ("files", "index", "says"),
    [
        pytest.param({}, None, "holds no weights", id="no weights"),
        pytest.param({}, MAP, f"lacks {ONE}, {TWO}, {THREE}", id="no weights, but an index"),
        pytest.param({ONE: SHARDS[ONE], THREE: SHARDS[THREE]}, MAP, f"lacks {TWO}", id="lost shard"),
        pytest.param(
            {ONE: SHARDS[ONE], THREE: SHARDS[THREE]}, None, f"lacks {TWO}", id="lost shard, no index"
        ),
        pytest.param({ONE: SHARDS[ONE]}, {"a": ONE}, f"lacks {TWO}, {THREE}", id="the index knows no better"),
        pytest.param(
            {"x.safetensors": {"a": A}}, {"a": "y.safetensors"}, "lacks y.safetensors", id="other file"
        ),
        pytest.param(
            {"x.safetensors": {"a": A}},
            {"a": "x.safetensors", "b": "x.safetensors"},
            "disagree about b",
            id="stale",
        ),
        pytest.param(
            {"x.safetensors": {"a": A}, "y.safetensors": {"b": B}},
            None,
            "holds x.safetensors, y.safetensors",
            id="which of them",
        ),
        pytest.param(
            SHARDS | {TWO: {"a": A}}, MAP, "another file of the model also holds a", id="tensor twice"
        ),
        pytest.param({"model-00001-of-00999.safetensors": {"a": A}}, None, "and 994 more", id="many lost"),
    ],
)
def test_incomplete_models_say_what_is_missing(
    tmp_path: Path, files: Mapping[str, Tensors], index: Index, says: str
) -> None:
    assert says in problem(folder_of(tmp_path / "m", files, index)).what


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    assert "does not exist" in problem(tmp_path / "nowhere").what
    assert "does not exist" in problem(Path("with\0zero")).what
    assert "has no config.json" in problem(tmp_path).what
    (tmp_path / "x.gguf").touch()
    assert problem(tmp_path).fix == "name a .gguf file itself"
    folder = folder_of(tmp_path / "m", {"model.safetensors": {"a": A}})
    assert problem(folder / "model.safetensors").fix == "name the folder that holds it"
    assert "is not a GGUF file" in problem(folder / "config.json").what


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b'"x"', b"\xff\xfe", b"[" * 100_000, b"1" * 5000]
)
def test_a_config_that_is_no_json_object(tmp_path: Path, content: bytes) -> None:
    folder = folder_of(tmp_path / "m", {"model.safetensors": {"a": A}})
    (folder / "config.json").write_bytes(content)
    assert "config.json is damaged" in problem(folder).what


HUGE = int("9" * 4300)
LIES = {
    "empty file": (b"", "a header of 0 bytes in a file of 0"),
    "only a length": (struct.pack("<Q", 2), "a header of 2 bytes in a file of 8"),
    "header beyond the file": (struct.pack("<Q", 100) + b"{}", "a header of 100 bytes in a file of 10"),
    "header of 2**63": (struct.pack("<Q", 1 << 63) + b"{}", "a header of 9,223,372,036,854,775,808 bytes"),
    "not JSON": (file_of(b"{nope"), "not JSON"),
    "not UTF-8": (file_of(b'{"\xff": 1}'), "not JSON"),
    "deep": (file_of(b"[" * 100_000), "not JSON"),
    "a list": (file_of([]), "not a JSON object"),
    "no tensors": (file_of({"__metadata__": {}}), "holds no weights"),
    "truncated": (file_of({"a": entry(0, 16, [4])}, bytes(15)), "it has"),
    "too long": (file_of({"a": entry(0, 16, [4])}, bytes(17)), "it has"),
    "overlap": (file_of({"a": entry(0, 16, [4]), "b": entry(12, 20, [2])}, bytes(20)), "'b' begins at byte"),
    "same bytes": (file_of({"a": entry(0, 16, [4]), "b": entry(0, 16, [4])}, bytes(16)), "begins at byte"),
    "gap": (file_of({"a": entry(0, 16, [4]), "b": entry(20, 24, [1])}, bytes(24)), "'b' begins at byte"),
    "gap at the start": (file_of({"a": entry(4, 20, [4])}, bytes(20)), "'a' begins at byte"),
    "length is not shape times type": (
        file_of({"a": entry(0, 15, [4])}, bytes(15)),
        "shape [4] in F32 has 15",
    ),
    "backwards": (file_of({"a": entry(16, 0, [4], "I32")}, bytes(16)), "has -16 bytes"),
    "negative": (file_of({"a": entry(-4, 12, [4])}, bytes(16)), "no type, shape and place for 'a'"),
    "offsets of 4300 digits": (file_of({"a": entry(HUGE, HUGE, [4])}), "no type, shape and place"),
    "float shape": (file_of({"a": entry(0, 16, [4.0])}, bytes(16)), "no type, shape and place"),
    "bool shape": (file_of({"a": entry(0, 4, [True])}, bytes(4)), "no type, shape and place"),
    "three offsets": (
        file_of({"a": entry(0, 4, [1]) | {"data_offsets": [0, 4, 4]}}),
        "no type, shape and place",
    ),
    "type is a number": (file_of({"a": entry(0, 4, [1]) | {"dtype": 3}}), "no type, shape and place"),
    "no shape": (file_of({"a": {"dtype": "F32", "data_offsets": [0, 4]}}), "no type, shape and place"),
    "entry is a list": (file_of({"a": []}), "no type, shape and place"),
    "too many values": (file_of({"a": entry(0, 0, [1 << 31, 1 << 31])}), "impossible shape"),
    "too many empty values": (file_of({"a": entry(0, 0, [0, 1 << 31, 1 << 31])}), "impossible shape"),
    "too many dimensions": (file_of({"a": entry(0, 4, [1] * 65)}, bytes(4)), "impossible shape"),
    "a name to ring the bell": (file_of({"\a": entry(0, 4, [1])}, bytes(4)), "is not text"),
    "half a character": (file_of({"\ud800": entry(0, 4, [1])}, bytes(4)), "is not text"),
    "name twice": (
        file_of(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}}', bytes(4)),
        "'a' more than once",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_one_clear_problem(tmp_path: Path, lie: str) -> None:
    content, says = LIES[lie]
    folder = folder_of(tmp_path / "m", {})
    (folder / "model.safetensors").write_bytes(content)
    assert says in problem(folder).what


def test_a_truncated_shard_is_found_at_open(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", SHARDS, MAP)
    os.truncate(folder / TWO, (folder / TWO).stat().st_size - 1)
    assert f"{TWO} is damaged: its header promises" in problem(folder).what


def test_digest_changes_with_header_size_and_mtime_of_any_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", SHARDS, MAP)
    for file in folder.iterdir():
        os.utime(file, ns=(0, 0))
    first = open_checkpoint(folder).digest
    assert int(first, 16)
    assert open_checkpoint(folder).digest == first
    os.utime(folder / TWO, ns=(0, 1))
    moved_on = open_checkpoint(folder).digest
    save_file({"b2": B}, folder / TWO)
    os.utime(folder / TWO, ns=(0, 1))
    renamed = open_checkpoint(folder).digest
    (folder / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": 5}))
    os.utime(folder / "config.json", ns=(0, 0))
    assert len({first, moved_on, renamed, open_checkpoint(folder).digest}) == 4


def test_a_file_that_changed_after_opening_is_not_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", {"model.safetensors": {"a": A}})
    checkpoint = open_checkpoint(folder)
    os.utime(folder / "model.safetensors", ns=(0, 0))
    with pytest.raises(CheckpointProblem, match="changed after it was opened"):
        checkpoint.read("a")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointProblem, match="cannot be read"):
        checkpoint.read("a")


def test_one_tensor_of_a_terabyte_is_read_without_the_rest(tmp_path: Path) -> None:
    n_big = 1 << 40
    entries = {"big": entry(0, n_big, [1 << 20, 1 << 18]), "small": entry(n_big, n_big + 12, [3])}
    folder = folder_of(tmp_path / "m", {})
    path = folder / "model.safetensors"
    path.write_bytes(file_of(entries))
    n_header = path.stat().st_size
    try:
        os.truncate(path, n_header + n_big)  # a hole: it takes no room on the disk
    except OSError:
        pytest.skip("the file system takes no file of a terabyte")
    with path.open("ab") as stream:
        stream.write(np.array([1, 2, 3], np.float32).tobytes())
    assert open_checkpoint(folder).read("small").tolist() == [1, 2, 3]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_reading_every_tensor_keeps_one_of_them_resident(tmp_path: Path) -> None:
    n_bytes = 8 << 20
    tensors = {f"t{i}": np.full(n_bytes // 4, i, np.float32) for i in range(10)}
    checkpoint = open_checkpoint(folder_of(tmp_path / "m", {"model.safetensors": tensors}))
    del tensors
    checkpoint.read("t0")
    before = resident_bytes()
    for i in range(10):
        values = checkpoint.read(f"t{i}")
        assert values[-1] == i
        assert resident_bytes() - before < n_bytes * 1.5
        del values
    assert resident_bytes() - before < n_bytes / 2


CHANGE = st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGE, min_size=1, max_size=4), cut=st.none() | st.integers(0, 400))
def test_any_bytes_open_or_are_one_problem(
    tmp_path: Path, changes: list[tuple[int, bytes]], cut: int | None
) -> None:
    entries = {"a": entry(0, 16, [2, 2]), "b": entry(16, 20, [2], "BF16"), "ids": entry(20, 28, [1], "I64")}
    content = bytearray(file_of(entries, bytes(range(28))))
    for at, new in changes:
        content[at % len(content) : at % len(content) + len(new)] = new
    folder = folder_of(tmp_path / "m", {})
    (folder / "model.safetensors").write_bytes(content[:cut])
    tracemalloc.start()
    with contextlib.suppress(CheckpointProblem):
        checkpoint = open_checkpoint(folder)
        for name in checkpoint.tensors:
            checkpoint.read(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
