"""Named tensors of a model, read lazily from a folder of safetensors or from GGUF files.

Opening reads headers only, and holds every promise they make against the sizes of the files.
`read` copies a tensor through a small buffer instead of mapping the file: mapped pages count
as resident memory, and the resident memory of a station is a promise of ours. That is why the
safetensors library does not read here: it maps the whole file (285 MB resident after walking 268 MB),
and it cannot name bfloat16 to numpy unless something else has imported ml_dtypes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import CheckpointProblem

CHUNK_VALUES = 1 << 18  # 1 MB of f32: larger leaves the processor's cache, smaller pays more calls
MAX_HEADER_BYTES = 100_000_000  # the safetensors library refuses longer ones too
ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
NUMBERED = re.compile(r"(.+)-\d{5}-of-(\d{5})\.safetensors")

Kind = Literal["safetensors", "gguf"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as stored; `shape` is in numpy order, rows first: a matrix is (out, in)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    n_bytes: int


class Checkpoint(Protocol):
    """A model on disk: its facts, and its tensors by name.

    `path` is the folder or the first GGUF file; `metadata` the content of config.json or the GGUF
    keys; `digest` changes when the header, size or mtime of any file does, and costs no full read.
    """

    @property
    def path(self) -> Path: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...
    @property
    def digest(self) -> str: ...

    def read(self, name: str) -> NDArray[np.float32]:
        """The tensor dequantised: a fresh C-contiguous array of the shape in `tensors`."""

    def blocks(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a quantised tensor, (rows, bytes per row): a read-only view of the mapped file."""


def open_checkpoint(path: Path) -> Checkpoint:
    """The model at `path`: a folder of config.json and safetensors, or a GGUF file.

    One member of a split GGUF (`-00001-of-00003.gguf`) opens all of them. Every way in which the
    files can be missing, damaged or at odds is a CheckpointProblem here, not at the first read.
    """
    if os.path.isdir(path):
        return _open_folder(path)
    if path.suffix == ".safetensors":
        raise CheckpointProblem(f"{path} is one file of a model", fix="name the folder that holds it")
    # The gguf library takes 90 ms and 6 MB to import, which a station on safetensors need not pay.
    from trisplit.models.gguf import open_gguf

    return open_gguf(path)


def damaged(path: Path, why: str) -> CheckpointProblem:
    """The Problem of a file that does not keep what it promises."""
    return CheckpointProblem(f"{path} is damaged: {why}", fix="fetch or copy the file again")


def some(names: Iterable[str]) -> str:
    """The first names of many, for a message."""
    first = sorted(names)
    return ", ".join(first[:4]) + (f" and {len(first) - 4:,} more" if len(first) > 4 else "")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was when its header was read."""

    path: Path
    n_bytes: int
    mtime_ns: int

    @classmethod
    def at(cls, path: Path) -> StoredFile:
        if not os.path.isfile(path):
            raise CheckpointProblem(f"{path} does not exist, or is no file", fix="check the path")
        now = path.stat()
        return cls(path, now.st_size, now.st_mtime_ns)

    def open(self) -> BufferedReader:
        """The file for reading; a CheckpointProblem if it is not the one whose header we know."""
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise CheckpointProblem(f"{self.path} cannot be read: {error}", fix="check the path") from None
        now = os.fstat(stream.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.n_bytes, self.mtime_ns):
            stream.close()
            raise CheckpointProblem(f"{self.path} changed after it was opened", fix="start again")
        return stream


@dataclass(frozen=True, slots=True)
class Codec:
    """A stored type: `n_values` values in a block of `n_bytes` bytes; `decode` takes whole blocks."""

    n_values: int
    n_bytes: int
    decode: Callable[[NDArray[np.uint8]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies; `codec` is None for the types we do not read."""

    info: TensorInfo
    file: StoredFile
    offset: int
    codec: Codec | None


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model, known from its header."""

    file: StoredFile
    header_digest: bytes
    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Files:
    """The Checkpoint of both kinds: they differ in how headers are read, not in what follows."""

    path: Path
    kind: Kind
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    digest: str
    places: Mapping[str, Place] = field(repr=False)

    def read(self, name: str) -> NDArray[np.float32]:
        place, codec = self._find(name)
        values = np.empty(place.info.shape, np.float32)
        flat = values.reshape(-1)
        # A damaged scale may be infinite or not a number, which is no reason to warn about numpy.
        with place.file.open() as stream, np.errstate(all="ignore"):
            stream.seek(place.offset)
            for first in range(0, flat.size, CHUNK_VALUES):
                part = flat[first : first + CHUNK_VALUES]
                raw = np.fromfile(stream, np.uint8, part.size // codec.n_values * codec.n_bytes)
                if raw.size * codec.n_values != part.size * codec.n_bytes:
                    raise damaged(place.file.path, f"it ended while {name!r} was read")
                part[:] = codec.decode(raw)
        return values

    def blocks(self, name: str) -> NDArray[np.uint8]:
        place, codec = self._find(name)
        if codec.n_values == 1:
            raise CheckpointProblem(f"{name!r} is {place.info.dtype}, not quantised", fix="read its values")
        *rows, columns = place.info.shape
        shape = (math.prod(rows), columns // codec.n_values * codec.n_bytes)
        with place.file.open() as stream:
            return np.memmap(stream, np.uint8, "r", place.offset, shape)

    def _find(self, name: str) -> tuple[Place, Codec]:
        place = self.places.get(name)
        if place is None:
            near = ", ".join(map(repr, get_close_matches(name, self.places))) or "nothing like it"
            raise CheckpointProblem(f"{self.path} has no tensor {name!r}", fix=f"it has {near}")
        if place.codec is None:
            known = "F32, F16, BF16" + (", Q4_0 to Q8_0, Q2_K to Q6_K" if self.kind == "gguf" else "")
            what = f"{name!r} is stored as {place.info.dtype}, which we do not read"
            raise CheckpointProblem(what, fix=f"take the model as one of {known}")
        return place, place.codec


def assemble(path: Path, kind: Kind, metadata: Mapping[str, Any], parts: Sequence[Part]) -> Files:
    """The parts as one checkpoint; a CheckpointProblem if two hold the same tensor, or none holds any."""
    places: dict[str, Place] = {}
    digest = hashlib.sha256()
    for part in parts:
        if twice := places.keys() & part.places.keys():
            raise damaged(part.file.path, f"another file of the model also holds {some(twice)}")
        places |= part.places
        digest.update(repr((part.file.path.name, part.file.n_bytes, part.file.mtime_ns)).encode())
        digest.update(part.header_digest)
    if not places:
        raise CheckpointProblem(f"{path} holds no weights", fix="fetch its .safetensors or .gguf files")
    tensors = {name: place.info for name, place in places.items()}
    return Files(path, kind, metadata, tensors, digest.hexdigest(), places)


def check_name_and_shape(path: Path, name: str, shape: Sequence[int]) -> None:
    """Raise unless the name can be shown in a terminal and numpy can make an f32 array of the shape."""
    if not name.isprintable():
        raise damaged(path, f"the tensor name {name!r} is not text")
    # numpy counts the bytes of an array in 63 bits, also of one that has a dimension of zero.
    if len(shape) > 32 or math.prod(n or 1 for n in shape) >= 1 << 60:
        raise damaged(path, f"{name!r} has an impossible shape")


def _open_folder(folder: Path) -> Files:
    if not os.path.isfile(folder / "config.json"):
        fix = "name a .gguf file itself" if any(folder.glob("*.gguf")) else "fetch it next to the weights"
        raise CheckpointProblem(f"{folder} has no config.json", fix=fix)
    file = StoredFile.at(folder / "config.json")
    with file.open() as stream:
        content = stream.read()
    config = _json_object(file.path, content)
    names = _weight_files(folder, index := _index(folder))
    parts = [_read_part(folder / name) for name in names]
    held = {name: part.file.path.name for part in parts for name in part.places}
    wrong = {name for name in index.keys() | held.keys() if index.get(name) != held.get(name)}
    # What is complete by its own numbers or name needs no index, so a stale one does no harm there.
    if wrong and index and names != [ONE_FILE] and not all(map(NUMBERED.fullmatch, names)):
        what = f"{folder / INDEX} and the files disagree about {some(wrong)}"
        raise CheckpointProblem(what, fix="fetch the model again")
    return assemble(folder, "safetensors", config, [Part(file, hashlib.sha256(content).digest(), {}), *parts])


def _json_object(path: Path, content: bytes, *, once: bool = False) -> dict[str, Any]:
    """The JSON object in a file; with `once`, no name may be in an object twice."""
    try:
        value = json.loads(content, object_pairs_hook=_once if once else None)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := [repr(name) for name, n in Counter(name for name, _ in pairs).items() if n > 1]:
        raise ValueError(f"{some(twice)} more than once")
    return dict(pairs)


def _index(folder: Path) -> dict[str, str]:
    """Tensor name to file name; empty if there is no index, or none that can be read."""
    try:
        named = _json_object(folder / INDEX, (folder / INDEX).read_bytes())["weight_map"]
    except (OSError, CheckpointProblem, KeyError):
        return {}
    return named if isinstance(named, dict) and all(isinstance(file, str) for file in named.values()) else {}


def _weight_files(folder: Path, index: Mapping[str, str]) -> list[str]:
    """The files that hold the weights; `model.safetensors` goes first, as it does for transformers."""
    present = {path.name for path in folder.glob("*.safetensors") if os.path.isfile(path)}
    if ONE_FILE in present:
        return [ONE_FILE]
    named = set(index.values())
    if named and named <= present and not _absent(named):
        return sorted(named)
    whole = [files for files in _numbered(present) if not _absent(files)]
    if len(whole) == 1:
        return sorted(whole[0])
    if missing := (named - present) | _absent(present):
        raise CheckpointProblem(f"{folder} lacks {some(missing)}", fix="fetch what is missing")
    if len(present) > 1:
        raise CheckpointProblem(f"{folder} holds {some(present)}", fix=f"keep one, or add {INDEX}")
    return list(present)


def _numbered(files: set[str]) -> list[set[str]]:
    """The numbered shards among the names, those of one set together."""
    sets: dict[tuple[str, ...], set[str]] = {}
    for file in files:
        if match := NUMBERED.fullmatch(file):
            sets.setdefault(match.groups(), set()).add(file)
    return list(sets.values())


def _absent(files: set[str]) -> set[str]:
    """The shards that the numbers in these names promise and that are not among them."""
    return {
        f"{stem}-{i:05d}-of-{count}.safetensors"
        for stem, count in {match.groups() for match in map(NUMBERED.fullmatch, files) if match}
        for i in range(1, int(count) + 1)
    } - files


# The other types of the format are opened, so that they can be named, and never read.
_CODECS = {
    "F32": Codec(1, 4, lambda raw: raw.view("<f4")),
    "F16": Codec(1, 2, lambda raw: raw.view("<f2").astype(np.float32)),
    "BF16": Codec(1, 2, lambda raw: (raw.view("<u2").astype("<u4") << 16).view("<f4")),
}


def _read_part(path: Path) -> Part:
    """One safetensors file: u64 length of the header, the header in JSON, then the tensors without gaps."""
    file = StoredFile.at(path)
    with file.open() as stream:
        n_header = int.from_bytes(stream.read(8), "little")
        if not 2 <= n_header <= min(MAX_HEADER_BYTES, file.n_bytes - 8):
            raise damaged(path, f"a header of {n_header:,} bytes in a file of {file.n_bytes:,}")
        header = stream.read(n_header)
    entries = _json_object(path, header, once=True)
    entries.pop("__metadata__", None)
    end = 8 + n_header
    places = [_place(file, name, entry, end) for name, entry in entries.items()]
    places.sort(key=lambda place: (place.offset, place.info.n_bytes))
    for place in places:
        if place.offset != end:
            raise damaged(path, f"{place.info.name!r} begins at byte {place.offset:,}, not {end:,}")
        end += place.info.n_bytes
    if end != file.n_bytes:
        raise damaged(path, f"its header promises {end:,} bytes, it has {file.n_bytes:,}")
    return Part(file, hashlib.sha256(header).digest(), {place.info.name: place for place in places})


def _place(file: StoredFile, name: str, entry: object, data_start: int) -> Place:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [first, last]} if (
            dtype.isprintable() and all(type(n) is int and 0 <= n < 1 << 63 for n in (*shape, first, last))
        ):
            codec, n_bytes = _CODECS.get(dtype), last - first
        case _:
            raise damaged(file.path, f"no type, shape and place for {name!r}")
    check_name_and_shape(file.path, name, shape)
    if n_bytes < 0 or (codec and n_bytes != math.prod(shape) * codec.n_bytes):
        raise damaged(file.path, f"{name!r} of shape {shape} in {dtype} has {n_bytes:,} bytes")
    return Place(TensorInfo(name, tuple(shape), dtype, n_bytes), file, data_start + first, codec)
