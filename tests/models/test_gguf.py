"""GGUF files: every type decoded by its published layout, keys read late, splits, and lies of every sort."""

from __future__ import annotations

import contextlib
import math
import os
import struct
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import CHUNK_VALUES, TensorInfo, open_checkpoint
from trisplit.models.gguf import read_header

RNG = np.random.default_rng(0)
Bytes = NDArray[np.uint8]


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def problem(path: Path) -> CheckpointProblem:
    with pytest.raises(CheckpointProblem) as caught:
        open_checkpoint(path)
    assert caught.value.fix
    return caught.value


# The layouts below are those of ggml-quants.c and ggml-common.h, one value at a time:
# the value number `i` of a block of bytes `b`.


def half(b: Bytes, at: int) -> float:
    return float(b[at : at + 2].view(np.float16)[0])


def nibble(b: Bytes, at: int, i: int, width: int) -> int:
    """Low halves of `width` bytes hold the first `width` values, high halves the next, and so on."""
    byte = int(b[at + i // (2 * width) * width + i % width])
    return byte >> 4 if i // width % 2 else byte & 15


def bit(b: Bytes, at: int, number: int) -> int:
    return int(b[at + number // 8]) >> number % 8 & 1


def q8_0(b: Bytes, i: int) -> float:
    return half(b, 0) * int(b[2:].view(np.int8)[i])


def q4_0(b: Bytes, i: int) -> float:
    return half(b, 0) * (nibble(b, 2, i, 16) - 8)


def q4_1(b: Bytes, i: int) -> float:
    return half(b, 0) * nibble(b, 4, i, 16) + half(b, 2)


def q5_0(b: Bytes, i: int) -> float:
    return half(b, 0) * (nibble(b, 6, i, 16) + 16 * bit(b, 2, i) - 16)


def q5_1(b: Bytes, i: int) -> float:
    return half(b, 0) * (nibble(b, 8, i, 16) + 16 * bit(b, 4, i)) + half(b, 2)


def q2_k(b: Bytes, i: int) -> float:
    scale = int(b[i // 16])
    q = int(b[16 + i // 128 * 32 + i % 32]) >> 2 * (i // 32 % 4) & 3
    return half(b, 80) * (scale & 15) * q - half(b, 82) * (scale >> 4)


def q3_k(b: Bytes, i: int) -> float:
    j = i // 16
    low = int(b[96 + j % 8]) >> 4 * (j // 8) & 15
    high = int(b[104 + j % 4]) >> 2 * (j // 4) & 3
    q = int(b[32 + i // 128 * 32 + i % 32]) >> 2 * (i // 32 % 4) & 3
    kept = int(b[i % 32]) >> (i // 32) & 1
    return half(b, 108) * (low + 16 * high - 32) * (q - 4 * (1 - kept))


def scale_and_min(b: Bytes, j: int) -> tuple[int, int]:
    """The j-th of eight 6-bit pairs in the 12 bytes after the two halves."""
    s = [int(byte) for byte in b[4:16]]
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4


def q4_k(b: Bytes, i: int) -> float:
    scale, least = scale_and_min(b, i // 32)
    return half(b, 0) * scale * nibble(b, 16, i, 32) - half(b, 2) * least


def q5_k(b: Bytes, i: int) -> float:
    scale, least = scale_and_min(b, i // 32)
    q = nibble(b, 48, i, 32) + 16 * (int(b[16 + i % 32]) >> (i // 32) & 1)
    return half(b, 0) * scale * q - half(b, 2) * least


def q6_k(b: Bytes, i: int) -> float:
    part, quarter, j = i // 128, i // 32 % 4, i % 32
    low = int(b[64 * part + 32 * (quarter % 2) + j]) >> 4 * (quarter // 2) & 15
    high = int(b[128 + 32 * part + j]) >> 2 * quarter & 3
    scale = int(b[192:208].view(np.int8)[i // 16])
    return half(b, 208) * scale * (low + 16 * high - 32)


# Type, where its blocks keep f16 numbers, and its layout.
LAYOUTS: list[tuple[Type, tuple[int, ...], Callable[[Bytes, int], float]]] = [
    (Type.Q8_0, (0,), q8_0),
    (Type.Q4_0, (0,), q4_0),
    (Type.Q4_1, (0, 2), q4_1),
    (Type.Q5_0, (0,), q5_0),
    (Type.Q5_1, (0, 2), q5_1),
    (Type.Q2_K, (80, 82), q2_k),
    (Type.Q3_K, (108,), q3_k),
    (Type.Q4_K, (0, 2), q4_k),
    (Type.Q5_K, (0, 2), q5_k),
    (Type.Q6_K, (208,), q6_k),
]


def random_blocks(kind: Type, halves: Sequence[int], rows: int, per_row: int) -> Bytes:
    """Random blocks with scales near 0.01, as (rows, bytes per row)."""
    _, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = RNG.integers(0, 256, (rows * per_row, n_bytes), np.uint8)
    for at in halves:
        scales = RNG.uniform(-0.02, 0.02, (rows * per_row, 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(rows, per_row * n_bytes)


@pytest.mark.parametrize(("kind", "halves", "layout"), LAYOUTS, ids=[kind.name for kind, _, _ in LAYOUTS])
def test_quantised_types_are_read_by_their_layout(
    tmp_path: Path, kind: Type, halves: Sequence[int], layout: Callable[[Bytes, int], float]
) -> None:
    n_values, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    stored = random_blocks(kind, halves, 3, 2)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("before", np.ones(3, np.float32))
    writer.add_tensor("w", stored, raw_dtype=kind)
    finish(writer)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.tensors["w"] == TensorInfo("w", (3, 2 * n_values), kind.name, stored.size)
    expected = [layout(b, i) for b in stored.reshape(-1, n_bytes) for i in range(n_values)]
    values = checkpoint.read("w")
    assert values.dtype == np.float32
    assert values.flags.c_contiguous
    assert values.flags.writeable
    np.testing.assert_allclose(values.reshape(-1), expected, rtol=1e-6, atol=1e-6)
    blocks = checkpoint.blocks("w")
    assert np.array_equal(blocks, stored)
    assert not blocks.flags.writeable
    assert not blocks.flags.owndata


@pytest.mark.parametrize("kind", [Type.Q8_0, Type.Q5_1, Type.Q5_0, Type.Q4_1, Type.Q4_0])
def test_a_tensor_of_many_chunks_is_what_was_quantised(tmp_path: Path, kind: Type) -> None:
    source = RNG.standard_normal((3, CHUNK_VALUES // 2 + 32), np.float32)
    stored = gguf.quants.quantize(source, kind)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", stored, raw_dtype=kind)
    finish(writer)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    values = checkpoint.read("w")
    assert np.array_equal(values, gguf.quants.dequantize(stored, kind))
    assert np.array_equal(np.concatenate(list(checkpoint.slabs("w", 2))), values)
    assert np.sqrt(np.mean((values - source) ** 2)) < (0.01 if kind == Type.Q8_0 else 0.13)


def test_float_types_and_shapes(tmp_path: Path) -> None:
    source = RNG.standard_normal((2, 3, 5), np.float32)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("f32", source)
    writer.add_tensor("f16", source.astype(np.float16))
    writer.add_tensor("bf16", gguf.quants.quantize(source, Type.BF16), raw_dtype=Type.BF16)
    finish(writer)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert (checkpoint.path, checkpoint.format) == (tmp_path / "m.gguf", "gguf")
    assert [(t.shape, t.dtype, t.n_bytes) for t in checkpoint.tensors.values()] == [
        ((2, 3, 5), "F32", 120),
        ((2, 3, 5), "F16", 60),
        ((2, 3, 5), "BF16", 60),
    ]
    assert np.array_equal(checkpoint.read("f32"), source)
    assert np.array_equal(checkpoint.read("f16"), source.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(checkpoint.read("bf16"), source, rtol=2**-8)
    with pytest.raises(CheckpointProblem, match="'f16' is F16, not quantised"):
        checkpoint.blocks("f16")
    with pytest.raises(CheckpointProblem, match=r"no tensor 'fp16'.*it has 'f16', 'bf16'"):
        checkpoint.read("fp16")


@pytest.mark.parametrize("kind", [Type.IQ4_NL, Type.IQ2_XXS, Type.TQ1_0, Type.MXFP4, Type.I32])
def test_types_we_do_not_read_open_and_fail_when_read(tmp_path: Path, kind: Type) -> None:
    n_values, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("odd", np.zeros((2, n_bytes), np.uint8), raw_shape=(2, n_bytes), raw_dtype=kind)
    writer.add_tensor("plain", np.ones(3, np.float32))
    finish(writer)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.tensors["odd"] == TensorInfo("odd", (2, n_values), kind.name, 2 * n_bytes)
    assert checkpoint.read("plain").tolist() == [1, 1, 1]
    for call in (checkpoint.read, checkpoint.blocks):
        with pytest.raises(CheckpointProblem, match=f"stored as {kind.name}, which we do not read: odd"):
            call("odd")


def test_keys_of_every_type_and_version_2(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kept: dict[str, tuple[Any, Value]] = {
        "u8": (255, Value.UINT8),
        "i8": (-128, Value.INT8),
        "u16": (65535, Value.UINT16),
        "i16": (-32768, Value.INT16),
        "u32": (2**32 - 1, Value.UINT32),
        "i32": (-(2**31), Value.INT32),
        "u64": (2**64 - 1, Value.UINT64),
        "i64": (-(2**63), Value.INT64),
        "f32": (0.5, Value.FLOAT32),
        "f64": (0.1, Value.FLOAT64),
        "yes": (True, Value.BOOL),
        "no": (False, Value.BOOL),
        "text": ("naïve 🦙", Value.STRING),
        "empty": ("", Value.STRING),
    }
    for key, (value, kind) in kept.items():
        writer.add_key_value(key, value, kind)
    lists: dict[str, list[Any]] = {
        "texts": ["", "▁the", "🦙" * 100],
        "ints": [1, -2, 3],
        "floats": [0.5, -1.5],
        "bools": [True, False],
    }
    for key, items in lists.items():
        writer.add_array(key, items)
    writer.add_tensor("w", np.ones(3, np.float32))
    finish(writer)
    expected = {"general.architecture": "llama"} | {k: v for k, (v, _) in kept.items()} | lists
    for version in (3, 2):
        with path.open("r+b") as stream:
            stream.seek(4)
            stream.write(struct.pack("<I", version))
        metadata = open_checkpoint(path).metadata
        assert dict(metadata) == expected
        assert type(metadata["yes"]) is bool
        assert type(metadata["bools"][0]) is bool
        assert "nothing" not in metadata
        assert metadata.get("nothing", 7) == 7


def test_a_vocabulary_of_262144_opens_fast_and_is_kept_in_the_file(tmp_path: Path) -> None:
    tokens = [f"▁token{i}" for i in range(262_144)]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gemma3")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.scores", [-float(i) for i in range(262_144)])
    writer.add_tensor("w", np.ones(3, np.float32))
    finish(writer)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        checkpoint = open_checkpoint(tmp_path / "m.gguf")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == tokens
    tracemalloc.start()
    held = open_checkpoint(tmp_path / "m.gguf")
    assert tracemalloc.get_traced_memory()[0] < 100_000
    tracemalloc.stop()
    os.utime(tmp_path / "m.gguf", ns=(0, 0))
    with pytest.raises(CheckpointProblem, match="changed after it was opened"):
        held.metadata["tokenizer.ggml.scores"]


def test_custom_alignment_and_digest(tmp_path: Path) -> None:
    def write(name: str, value: float) -> str:
        path = tmp_path / name / "m.gguf"
        path.parent.mkdir()
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_custom_alignment(256)
        writer.add_float32("scale", value)
        writer.add_tensor("a", np.full(3, 2, np.float32))
        writer.add_tensor("b", np.full(5, value, np.float32))
        finish(writer)
        os.utime(path, ns=(0, 0))
        checkpoint = open_checkpoint(path)
        assert checkpoint.read("b").tolist() == [value] * 5
        return checkpoint.digest

    assert write("one", 1) == write("same", 1) != write("other", 2)


def write_split(folder: Path, n_files: int = 3) -> list[Path]:
    folder.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=2)
    for i in range(2 * n_files):
        writer.add_tensor(f"t{i}", np.full(3, i, np.float32))
    finish(writer)
    files = sorted(folder.glob("m-*.gguf"))
    assert len(files) == n_files
    return files


def test_any_member_of_a_split_opens_all(tmp_path: Path) -> None:
    files = write_split(tmp_path / "m")
    for member in files:
        checkpoint = open_checkpoint(member)
        assert checkpoint.path == files[0]
        assert checkpoint.metadata["general.architecture"] == "llama"
        assert [checkpoint.read(f"t{i}")[0] for i in range(6)] == [0, 1, 2, 3, 4, 5]
        assert checkpoint.digest == open_checkpoint(files[0]).digest
    os.utime(files[2], ns=(0, 0))
    assert checkpoint.digest != open_checkpoint(files[0]).digest


def test_splits_that_are_not_whole(tmp_path: Path) -> None:
    files = write_split(tmp_path / "m")
    lost = files[1].rename(tmp_path / "away")
    assert problem(files[2]).what.endswith("lacks m-00002-of-00003.gguf")
    files[1].write_bytes(files[0].read_bytes())
    assert f"{files[1]} is damaged: it does not say that it is number 2 of 3" in problem(files[0]).what
    files[1].write_bytes(lost.read_bytes()[:-40])
    assert f"{files[1]} is damaged" in problem(files[0]).what
    lost.rename(files[1])
    renamed = files[0].rename(tmp_path / "m" / "model.gguf")
    assert "one of 3 files, and its name does not say which" in problem(renamed).what


def test_members_of_different_splits(tmp_path: Path) -> None:
    files = write_split(tmp_path / "m")
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "llama")
    writer.add_uint16("split.no", 2)
    writer.add_uint16("split.count", 3)
    writer.add_tensor("t4", np.ones(3, np.float32))
    finish(writer)
    (tmp_path / "other.gguf").rename(files[2])
    assert "it promises 6 tensors, the 3 files hold 5" in problem(files[0]).what


# A GGUF by hand, to put lies into.


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str | bytes, dims: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file_of(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_keys: int | None = None,
) -> bytes:
    start = struct.pack(
        "<4sIQQ",
        magic,
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(keys) if n_keys is None else n_keys,
    )
    header = start + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + data


U32 = struct.Struct("<I").pack
ARRAY = struct.Struct("<IQ").pack  # type of the items, number of items
ONE = tensor("a", [4])
FIRST_KEY = 24


def test_the_file_by_hand_is_right(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(
        file_of([key("n", 4, U32(7))], [ONE, tensor("s", [], offset=32)], bytes(32) + struct.pack("<f", 1.5))
    )
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.metadata["n"] == 7
    assert checkpoint.read("a").tolist() == [0, 0, 0, 0]
    assert checkpoint.read("s").shape == ()
    assert checkpoint.read("s") == 1.5


LIES = {
    "empty": (b"", "begins with b''"),
    "bad magic": (file_of(magic=b"GGML"), "begins with b'GGML'"),
    "only magic": (b"GGUF\3\0\0\0", "it ends after 8 bytes"),
    "version 0": (file_of(version=0), "of version 0"),
    "version 1": (file_of(version=1), "of version 1"),
    "version 4": (file_of(version=4), "of version 4"),
    "big endian": (file_of(version=3 << 24), "in big-endian order"),
    "no tensors": (file_of([key("n", 4, U32(7))]), "holds no weights"),
    "2**60 tensors": (file_of([], [ONE], bytes(16), n_tensors=1 << 60), "1,152,921,504,606,846,976 tensors"),
    "2**60 keys": (file_of([], [ONE], bytes(16), n_keys=1 << 60), "1,152,921,504,606,846,976 keys"),
    "one tensor too many": (
        file_of([], [ONE], n_tensors=2),
        "a tensor name at byte 57 does not fit into the file",
    ),
    "key of 2**63 bytes": (file_of([struct.pack("<Q", 1 << 63) + bytes(9)]), "a key at byte 32 does not fit"),
    "text of 2**40 bytes": (
        file_of([key("k", 8, struct.pack("<Q", 1 << 40))]),
        "'k' at byte 45 does not fit",
    ),
    "array of 2**61 numbers": (file_of([key("k", 9, ARRAY(4, 1 << 61))]), "'k' at byte 49 does not fit"),
    "array of 2**61 texts": (file_of([key("k", 9, ARRAY(8, 1 << 61))]), "'k' at byte 49 does not fit"),
    "array with a text of 2**64 - 1": (
        file_of([key("k", 9, ARRAY(8, 2) + struct.pack("<Q", (1 << 64) - 1))], data=bytes(64)),
        "'k' at byte 49 does not fit",
    ),
    "array of arrays": (
        file_of([key("k", 9, ARRAY(9, 1) + ARRAY(4, 1) + U32(1))]),
        "'k' lists items of type 9: no numbers, bools or texts",
    ),
    "key of unknown type": (file_of([key("k", 13, bytes(8))]), "'k' has the unknown type 13"),
    "key twice": (file_of([key("k", 4, U32(1))] * 2), "the key 'k' is there twice"),
    "tensor twice": (file_of([], [ONE, tensor("a", [4], offset=32)], bytes(48)), "'a' is there twice"),
    "five dimensions": (file_of([], [tensor("a", [1] * 5)], bytes(4)), "'a' has 5 dimensions"),
    "2**32 - 1 dimensions": (
        file_of([], [text("a") + bytes([255] * 4)], bytes(40)),
        "4,294,967,295 dimensions",
    ),
    "dimensions that overflow": (file_of([], [tensor("a", [1 << 32, 1 << 32])]), "impossible shape"),
    "no values": (file_of([], [tensor("a", [4, 0])]), "has no values"),
    "half a block": (file_of([], [tensor("a", [33, 32], 8)], bytes(2000)), "are no whole blocks of 32"),
    "a scalar in blocks": (file_of([], [tensor("a", [], 8)], bytes(40)), "are no whole blocks of 32"),
    "name to ring the bell": (file_of([], [tensor("\a", [4])], bytes(16)), "is not text"),
    "offset beyond the file": (file_of([], [tensor("a", [4], offset=1 << 63)], bytes(16)), "beyond the end"),
    "unknown type beyond the file": (file_of([], [tensor("a", [4], 77, 64)], bytes(16)), "beyond the end"),
    "offset not aligned": (file_of([], [tensor("a", [4], offset=4)], bytes(20)), "lie amiss"),
    "truncated": (file_of([], [ONE], bytes(15)), "lie amiss"),
    "overlap": (file_of([], [tensor("a", [9]), tensor("b", [4], offset=32)], bytes(48)), "lie amiss"),
    "alignment 0": (file_of([key("general.alignment", 4, U32(0))], [ONE], bytes(16)), "its alignment is 0"),
    "alignment 48": (
        file_of([key("general.alignment", 4, U32(48))], [ONE], bytes(16)),
        "its alignment is 48",
    ),
    "alignment is text": (file_of([key("general.alignment", 8, text("x"))], [ONE], bytes(16)), "is 'x'"),
    "alignment 2**31": (file_of([key("general.alignment", 4, U32(1 << 31))], [ONE], bytes(16)), "lie amiss"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_is_one_clear_problem(tmp_path: Path, lie: str) -> None:
    content, says = LIES[lie]
    (tmp_path / "m.gguf").write_bytes(content)
    assert says in problem(tmp_path / "m.gguf").what


def test_type_numbers_from_the_future_open(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(
        file_of([], [tensor("new", [32, 2], 77), tensor("a", [4], offset=64)], bytes(80))
    )
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.tensors["new"] == TensorInfo("new", (2, 32), "type 77", 64)
    assert checkpoint.read("a").tolist() == [0, 0, 0, 0]
    with pytest.raises(CheckpointProblem, match="stored as type 77, which we do not read: new"):
        checkpoint.read("new")


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    keys = [key(b"\xffk", 8, text(b"a\xc3")), key("tokens", 9, ARRAY(8, 2) + text(b"\xf0\x9f") + text("ok"))]
    (tmp_path / "m.gguf").write_bytes(file_of(keys, [tensor(b"w\x80", [4])], bytes(16)))
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert dict(checkpoint.metadata) == {"\ufffdk": "a\ufffd", "tokens": ["\ufffd", "ok"]}
    assert checkpoint.tensors.keys() == {"w\ufffd"}


def test_a_vocabulary_alone_has_keys(tmp_path: Path) -> None:
    (tmp_path / "vocab.gguf").write_bytes(file_of([key("tokens", 9, ARRAY(8, 1) + text("x"))]))
    assert read_header(tmp_path / "vocab.gguf").keys["tokens"] == ["x"]


def test_damaged_scales_are_read_without_a_warning(tmp_path: Path) -> None:
    blocks = np.full((1, 18), 255, np.uint8)
    blocks[0, :2] = np.array([np.inf], np.float16).view(np.uint8)
    blocks[0, 2] = 0x88  # eight less eight, times infinity
    (tmp_path / "m.gguf").write_bytes(file_of([], [tensor("a", [32], 2)], blocks.tobytes()))
    values = open_checkpoint(tmp_path / "m.gguf").read("a")
    assert math.isnan(values[0])
    assert math.isinf(values[1])


SOUND = file_of(
    [
        key("general.alignment", 4, U32(32)),
        key("name", 8, text("tiny")),
        key("tokens", 9, ARRAY(8, 3) + text("a") + text("") + text("bcd")),
        key("scores", 9, ARRAY(6, 2) + bytes(8)),
        key("flag", 7, b"\1"),
    ],
    [
        tensor("a", [4, 2]),
        tensor("q", [32, 2], 8, 32),
        tensor("k", [256], 12, 128),
        tensor("i", [256], 16, 288),
    ],
    bytes(range(256)) + bytes(288 + 66 - 256),
)
CHANGE = st.tuples(
    st.integers(0, len(SOUND) - 1),
    st.binary(min_size=1, max_size=4)
    | st.sampled_from([0, 1, 2**31, 2**32, 2**60, 2**63, 2**64 - 1]).map(struct.Struct("<Q").pack),
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGE, max_size=3), cut=st.none() | st.integers(0, len(SOUND) - 1))
def test_any_bytes_open_or_are_one_problem(
    tmp_path: Path, changes: list[tuple[int, bytes]], cut: int | None
) -> None:
    content = bytearray(SOUND)
    for at, new in changes:
        content[at : at + len(new)] = new
    path = tmp_path / "m.gguf"
    path.write_bytes(content[:cut])
    tracemalloc.start()
    with contextlib.suppress(CheckpointProblem):
        checkpoint = open_checkpoint(path)
        dict(checkpoint.metadata)
        for name in checkpoint.tensors:
            with contextlib.suppress(CheckpointProblem):
                assert np.prod(checkpoint.read(name).shape) * 4 < 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
