"""GGUF files as members of a checkpoint: their header, their keys, and the codecs of their tensor types.

The layout is that of the GGUF specification (ggml/docs/gguf.md), versions 2 and 3, little endian:
magic, version, number of tensors, number of keys, the keys, the descriptions of the tensors, padding,
the tensors. The header is walked over a memory map that is closed again before we return. Arrays are
stepped over and decoded when they are asked for: a station needs no vocabulary, and stepping over
262,144 strings takes 40 ms where decoding them takes 130.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import (
    READABLE,
    Codec,
    Files,
    Member,
    Place,
    StoredFile,
    TensorInfo,
    assemble,
    check_name_and_shape,
    damaged,
    some,
)

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_START = struct.Struct("<4sIQQ")  # magic, version, number of tensors, number of keys
# The value types of keys by their number in the file.
_NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _ARRAY = 8, 9
_MEMBER = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_LEAST_KEY_BYTES = 8 + 4 + 1  # length of the name, type, value
_LEAST_ENTRY_BYTES = 8 + 4 + 4 + 8  # length of the name, number of dimensions, type, offset

_TYPES = {int(kind): kind for kind in GGMLQuantizationType}
_CODECS = {
    name: Codec(*GGML_QUANT_SIZES[kind], partial(dequantize, qtype=kind))
    for name, kind in GGMLQuantizationType.__members__.items()
    if name in READABLE["gguf"]
}


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array among the keys, still in the file: `count` items from `offset` to `end`."""

    file: StoredFile
    item: int
    count: int
    offset: int
    end: int

    def load(self) -> list[Any]:
        with self.file.open() as stream:
            stream.seek(self.offset)
            raw = stream.read(self.end - self.offset)
        if self.item != _TEXT:
            numbers: list[Any] = np.frombuffer(raw, _NUMBERS[self.item]).tolist()
            return numbers
        texts, at = [], 0
        for _ in range(self.count):
            end = at + 8 + _U64.unpack_from(raw, at)[0]
            texts.append(raw[at + 8 : end].decode(errors="replace"))
            at = end
        return texts


class StoredKeys(Mapping[str, Any]):
    """The keys of a GGUF: numbers, bools, texts, and lists of them.

    A list is read from the file each time it is asked for, so keep what you need of it. Bytes
    that are not UTF-8 become U+FFFD.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        return value.load() if isinstance(value, StoredArray) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF says about itself before the first tensor."""

    keys: StoredKeys
    member: Member


class _Cursor:
    """A place in the header; a step beyond the end of the file is a CheckpointProblem."""

    def __init__(self, data: mmap.mmap, file: StoredFile) -> None:
        self.data, self.file, self.at = data, file, 0

    def skip(self, n_bytes: int, what: str) -> int:
        """Step over bytes; returns where they begin."""
        start = self.at
        if n_bytes > len(self.data) - start:
            raise damaged(self.file.path, f"{what} at byte {start:,} does not fit into the file")
        self.at += n_bytes
        return start

    def number(self, form: struct.Struct, what: str) -> int:
        value: int = form.unpack_from(self.data, self.skip(form.size, what))[0]
        return value

    def text(self, what: str) -> str:
        n_bytes = self.number(_U64, what)
        start = self.skip(n_bytes, what)
        return self.data[start : self.at].decode(errors="replace")

    def skip_texts(self, count: int, what: str) -> None:
        data, at, length_at = self.data, self.at, _U64.unpack_from
        try:
            for _ in range(count):
                at += 8 + length_at(data, at)[0]
        except (struct.error, OverflowError):
            at = len(data) + 1
        self.skip(at - self.at, what)


def open_gguf(path: Path) -> Files:
    """The model that a GGUF file holds, or is one member of (`-00002-of-00003.gguf`, keys `split.*`)."""
    header = read_header(path)
    count = header.keys.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return assemble(path, "gguf", header.keys, [header.member])
    named = _MEMBER.fullmatch(path.name)
    if named is None or int(named[3]) != count:
        what = f"{path} is one of {count} files, and its name does not say which"
        raise CheckpointProblem(what, fix=f"name the files …-00001-of-{count:05d}.gguf and so on")
    paths = [path.with_name(f"{named[1]}-{i:05d}-of-{named[3]}.gguf") for i in range(1, count + 1)]
    if missing := [each.name for each in paths if not os.path.isfile(each)]:
        raise CheckpointProblem(f"{path.parent} lacks {some(missing)}", fix="fetch what is missing")
    headers = [header if each == path else read_header(each) for each in paths]
    for number, (each, at) in enumerate(zip(paths, headers)):
        if (at.keys.get("split.no"), at.keys.get("split.count")) != (number, count):
            raise damaged(each, f"it does not say that it is number {number + 1} of {count}")
    n_tensors = sum(len(at.member.places) for at in headers)
    promised = headers[0].keys.get("split.tensors.count", n_tensors)
    if promised != n_tensors:
        raise damaged(paths[0], f"it promises {promised} tensors, the {count} files hold {n_tensors:,}")
    return assemble(paths[0], "gguf", headers[0].keys, [at.member for at in headers])


def read_header(path: Path) -> Header:
    """The keys and tensors of one GGUF file; every count, length and offset is held against its size."""
    file = StoredFile.at(path)
    with file.open() as stream:
        n_tensors, n_keys = _read_start(file, stream.read(_START.size))
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            cursor = _Cursor(data, file)
            cursor.skip(_START.size, "the start")
            keys = _read_keys(cursor, n_keys)
            entries = _read_entries(cursor, n_tensors)
            digest = hashlib.sha256(data[: cursor.at]).digest()
    places = _places(file, entries, cursor.at, keys.get("general.alignment", 32))
    return Header(StoredKeys(keys), Member(file, digest, places))


def _read_start(file: StoredFile, start: bytes) -> tuple[int, int]:
    """The number of tensors and of keys."""
    if start[:4] != b"GGUF":
        what = f"{file.path} is not a GGUF file: it begins with {start[:4]!r}"
        raise CheckpointProblem(what, fix="name a folder of safetensors or a .gguf file")
    if len(start) < _START.size:
        raise damaged(file.path, f"it ends after {len(start)} bytes")
    _, version, n_tensors, n_keys = _START.unpack(start)
    if version not in (2, 3):
        # The version is a small number, so its upper half is filled only in the other byte order.
        what = "in big-endian order" if version and version & 0xFFFF == 0 else f"of version {version}"
        fix = "convert it to version 3, little endian"
        raise CheckpointProblem(f"{file.path} is a GGUF {what}, which we do not read", fix=fix)
    if n_tensors * _LEAST_ENTRY_BYTES + n_keys * _LEAST_KEY_BYTES > file.n_bytes:
        raise damaged(file.path, f"{n_tensors:,} tensors and {n_keys:,} keys in {file.n_bytes:,} bytes")
    return n_tensors, n_keys


def _read_keys(cursor: _Cursor, n_keys: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for _ in range(n_keys):
        key = cursor.text("a key")
        if key in values:
            raise damaged(cursor.file.path, f"the key {key!r} is there twice")
        values[key] = _read_value(cursor, cursor.number(_U32, repr(key)), repr(key))
    return values


def _read_value(cursor: _Cursor, kind: int, what: str) -> Any:
    if kind == _TEXT:
        return cursor.text(what)
    if kind == _ARRAY:
        item, count = cursor.number(_U32, what), cursor.number(_U64, what)
        start = cursor.at
        if item == _TEXT:
            cursor.skip_texts(count, what)
        elif item in _NUMBERS:
            cursor.skip(count * np.dtype(_NUMBERS[item]).itemsize, what)
        else:
            raise damaged(cursor.file.path, f"{what} lists items of type {item}: no numbers, bools or texts")
        return StoredArray(cursor.file, item, count, start, cursor.at)
    if kind not in _NUMBERS:
        raise damaged(cursor.file.path, f"{what} has the unknown type {kind}")
    number = np.dtype(_NUMBERS[kind])
    start = cursor.skip(number.itemsize, what)
    return np.frombuffer(cursor.data[start : cursor.at], number)[0].item()


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the header says of a tensor; `offset` counts from the end of the padded header."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def _read_entries(cursor: _Cursor, n_tensors: int) -> list[_Entry]:
    path, entries = cursor.file.path, dict[str, _Entry]()
    for _ in range(n_tensors):
        name = cursor.text("a tensor name")
        if name in entries:
            raise damaged(path, f"the tensor {name!r} is there twice")
        n_dims = cursor.number(_U32, repr(name))
        if n_dims > 4:
            raise damaged(path, f"{name!r} has {n_dims:,} dimensions")
        # The file has the dimension that varies fastest first, numpy last.
        shape = tuple(cursor.number(_U64, repr(name)) for _ in range(n_dims))[::-1]
        check_name_and_shape(path, name, shape)
        if 0 in shape:
            raise damaged(path, f"{name!r} of shape {shape} has no values")
        entries[name] = _Entry(name, shape, cursor.number(_U32, repr(name)), cursor.number(_U64, repr(name)))
    return list(entries.values())


def _places(
    file: StoredFile, entries: Sequence[_Entry], header_bytes: int, alignment: object
) -> dict[str, Place]:
    """Where the tensors lie: aligned, within the file, none upon another."""
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise damaged(file.path, f"its alignment is {alignment!r}, which is no power of two")
    data_start = -(-header_bytes // alignment) * alignment
    in_order = sorted(entries, key=lambda entry: entry.offset)
    ends = [*(entry.offset for entry in in_order[1:]), file.n_bytes - data_start]
    places = {}
    for entry, end in zip(in_order, ends):
        n_bytes = _stored_bytes(file.path, entry, end)
        if entry.offset % alignment or entry.offset + n_bytes > end:
            what = f"{n_bytes:,} bytes of {entry.name!r} at {data_start + entry.offset:,}"
            raise damaged(file.path, f"{what} lie amiss, in another tensor or beyond the end of the file")
        dtype = _TYPES[entry.kind].name if entry.kind in _TYPES else f"type {entry.kind}"
        info = TensorInfo(entry.name, entry.shape, dtype, n_bytes)
        places[entry.name] = Place(info, file, data_start + entry.offset, _CODECS.get(dtype))
    return places


def _stored_bytes(path: Path, entry: _Entry, end: int) -> int:
    """The bytes of a tensor; of a type that nobody told us the size of, all up to the next tensor."""
    if entry.kind not in _TYPES:
        return max(end - entry.offset, 0)
    n_values, n_bytes = GGML_QUANT_SIZES[_TYPES[entry.kind]]
    if math.prod(entry.shape[-1:]) % n_values:
        raise damaged(path, f"rows of {entry.name!r} {entry.shape} are no whole blocks of {n_values}")
    return math.prod(entry.shape) // n_values * n_bytes
