"""A folder of config.json and safetensors files as a checkpoint: which files count, and their headers.

The layout is that of the safetensors format (huggingface/safetensors, README); shards are found by the
index or by their numbered names. The safetensors library does not read here, for it maps the whole file
(285 MB resident after walking 268 MB) and cannot name bfloat16 to numpy unless something else has imported
ml_dtypes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import (
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

MAX_HEADER_BYTES = 100_000_000  # the safetensors library refuses longer ones too
ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
NUMBERED = re.compile(r"(.+)-\d{5}-of-(\d{5})\.safetensors")


def open_folder(folder: Path) -> Files:
    if not os.path.isfile(folder / "config.json"):
        fix = "name a .gguf file itself" if any(folder.glob("*.gguf")) else "fetch it next to the weights"
        raise CheckpointProblem(f"{folder} has no config.json", fix=fix)
    file = StoredFile.at(folder / "config.json")
    with file.open() as stream:
        content = stream.read()
    config = _json_object(file.path, content)
    names = _weight_files(folder, index := _index(folder))
    members = [read_member(folder / name) for name in names]
    held = {name: member.file.path.name for member in members for name in member.places}
    wrong = {name for name in index.keys() | held.keys() if index.get(name) != held.get(name)}
    # What is complete by its own numbers or name needs no index, so a stale one does no harm there.
    if wrong and index and names != [ONE_FILE] and not all(map(NUMBERED.fullmatch, names)):
        what = f"{folder / INDEX} and the files disagree about {some(wrong)}"
        raise CheckpointProblem(what, fix="fetch the model again")
    described = Member(file, hashlib.sha256(content).digest(), {})
    return assemble(folder, "safetensors", config, [described, *members])


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


_CODECS = {
    "F32": Codec(1, 4, lambda raw: raw.view("<f4")),
    "F16": Codec(1, 2, lambda raw: raw.view("<f2").astype(np.float32)),
    "BF16": Codec(1, 2, lambda raw: (raw.view("<u2").astype("<u4") << 16).view("<f4")),
}


def read_member(path: Path) -> Member:
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
    return Member(file, hashlib.sha256(header).digest(), {place.info.name: place for place in places})


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
