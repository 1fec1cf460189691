"""Named tensors of a model, read lazily from a folder of safetensors or from GGUF files.

Opening reads headers only, and holds every promise they make against the sizes of the files.
`read` copies a tensor through a small buffer instead of mapping the file: mapped pages count
as resident memory, and the resident memory of a station is a promise of ours.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import CheckpointProblem

CHUNK_VALUES = 1 << 18  # 1 MB of f32: larger leaves the processor's cache, smaller pays more calls

Format = Literal["safetensors", "gguf"]

FLOATS: Final = ("F32", "F16", "BF16")
_GRIDS = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
READABLE: Final[Mapping[Format, tuple[str, ...]]] = {"safetensors": FLOATS, "gguf": FLOATS + _GRIDS}
"""The stored types we read; tensors of others are opened, so that they can be named, and never read."""


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
    def format(self) -> Format: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...
    @property
    def digest(self) -> str: ...
    @property
    def files(self) -> Sequence[Path]: ...

    def read(self, name: str) -> NDArray[np.float32]:
        """The tensor dequantised: a fresh C-contiguous array of the shape in `tensors`."""

    def slabs(self, name: str, n_rows: int) -> Iterator[NDArray[np.float32]]:
        """A matrix dequantised, `n_rows` rows at a time: it is never in memory whole."""

    def blocks(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a quantised tensor, (rows, bytes per row): a read-only view of the mapped file."""

    def content_digest(self) -> str:
        """The SHA-256 of all weights, wherever and whenever they were copied; a full read."""


def open_checkpoint(path: Path) -> Checkpoint:
    """The model at `path`: a folder of config.json and safetensors, or a GGUF file.

    One member of a split GGUF (`-00001-of-00003.gguf`) opens all of them. Every way in which the
    files can be missing, damaged or at odds is a CheckpointProblem here, not at the first read.
    """
    from trisplit.models.folder import open_folder  # it is built on this module

    if os.path.isdir(path):
        return open_folder(path)
    if path.suffix == ".safetensors":
        raise CheckpointProblem(f"{path} is one file of a model", fix="name the folder that holds it")
    # The gguf library takes 90 ms and 6 MB to import, which a station on safetensors need not pay.
    from trisplit.models.gguf import open_gguf

    return open_gguf(path)


def damaged(path: Path, why: str) -> CheckpointProblem:
    """The Problem of a file that does not keep what it promises."""
    return CheckpointProblem(f"{path} is damaged: {why}", fix="fetch or copy the file again")


def unreadable(format: Format, dtype: str, names: Iterable[str]) -> CheckpointProblem:
    """The Problem of tensors of a type we do not read."""
    what = f"tensors are stored as {dtype}, which we do not read: {some(names)}"
    return CheckpointProblem(what, fix=f"take the model as one of {', '.join(READABLE[format])}")


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
class Member:
    """One file of a model, known from its header."""

    file: StoredFile
    header_digest: bytes
    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Files:
    """The Checkpoint of both formats: they differ in how headers are read, not in what follows."""

    path: Path
    format: Format
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    digest: str
    places: Mapping[str, Place] = field(repr=False)

    @property
    def files(self) -> Sequence[Path]:
        return sorted({place.file.path for place in self.places.values()})

    def read(self, name: str) -> NDArray[np.float32]:
        place, codec = self._find(name)
        values = np.empty(place.info.shape, np.float32)
        flat, at = values.reshape(-1), 0
        for piece in _pieces(place, codec, CHUNK_VALUES):
            flat[at : at + piece.size] = piece
            at += piece.size
        return values

    def slabs(self, name: str, n_rows: int) -> Iterator[NDArray[np.float32]]:
        place, codec = self._find(name)
        columns = place.info.shape[-1]
        for piece in _pieces(place, codec, n_rows * columns):
            yield piece.reshape(-1, columns)

    def blocks(self, name: str) -> NDArray[np.uint8]:
        place, codec = self._find(name)
        if codec.n_values == 1:
            raise CheckpointProblem(f"{name!r} is {place.info.dtype}, not quantised", fix="read its values")
        *rows, columns = place.info.shape
        shape = (math.prod(rows), columns // codec.n_values * codec.n_bytes)
        with place.file.open() as stream:
            return np.memmap(stream, np.uint8, "r", place.offset, shape)

    def content_digest(self) -> str:
        digest = hashlib.sha256()
        for file in sorted({place.file for place in self.places.values()}, key=lambda file: file.path):
            with file.open() as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()

    def _find(self, name: str) -> tuple[Place, Codec]:
        place = self.places.get(name)
        if place is None:
            near = ", ".join(map(repr, get_close_matches(name, self.places))) or "nothing like it"
            raise CheckpointProblem(f"{self.path} has no tensor {name!r}", fix=f"it has {near}")
        if place.codec is None:
            raise unreadable(self.format, place.info.dtype, [name])
        return place, place.codec


def _pieces(place: Place, codec: Codec, n_values: int) -> Iterator[NDArray[np.float32]]:
    """The values of a tensor in order, `n_values` at a time, a multiple of the codec's."""
    left = math.prod(place.info.shape)
    with place.file.open() as stream:
        stream.seek(place.offset)
        while left:
            count = min(n_values, left)
            raw = np.fromfile(stream, np.uint8, count // codec.n_values * codec.n_bytes)
            if raw.size * codec.n_values != count * codec.n_bytes:
                raise damaged(place.file.path, f"it ended while {place.info.name!r} was read")
            # A damaged scale may be infinite or not a number, which is no reason to warn about numpy.
            with np.errstate(all="ignore"):
                piece = codec.decode(raw)
            yield piece
            left -= count


def assemble(path: Path, format: Format, metadata: Mapping[str, Any], members: Sequence[Member]) -> Files:
    """The files as one checkpoint; a CheckpointProblem if two hold the same tensor, or none holds any."""
    places: dict[str, Place] = {}
    digest = hashlib.sha256()
    for member in members:
        if twice := places.keys() & member.places.keys():
            raise damaged(member.file.path, f"another file of the model also holds {some(twice)}")
        places |= member.places
        digest.update(repr((member.file.path.name, member.file.n_bytes, member.file.mtime_ns)).encode())
        digest.update(member.header_digest)
    if not places:
        raise CheckpointProblem(f"{path} holds no weights", fix="fetch its .safetensors or .gguf files")
    tensors = {name: place.info for name, place in places.items()}
    return Files(path, format, metadata, tensors, digest.hexdigest(), places)


def check_name_and_shape(path: Path, name: str, shape: Sequence[int]) -> None:
    """Raise unless the name can be shown in a terminal and numpy can make an f32 array of the shape."""
    if not name.isprintable():
        raise damaged(path, f"the tensor name {name!r} is not text")
    # numpy counts the bytes of an array in 63 bits, also of one that has a dimension of zero.
    if len(shape) > 32 or math.prod(n or 1 for n in shape) >= 1 << 60:
        raise damaged(path, f"{name!r} has an impossible shape")
