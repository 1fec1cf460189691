"""An atlas inside a model's own file: a new file with one key more, all else byte for byte as it was.

In a GGUF the table is the array of uint32 `trisplit.atlas`; in a safetensors file the text of that name in
`__metadata__`, the same words in base64. Programs that do not know the key pass it over.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from trisplit.compress.atlas_table import KEY, AtlasTable, table_of
from trisplit.errors import CheckpointProblem, RequestProblem

_CHUNK_BYTES: Final = 1 << 22
# Of the GGUF specification: types of a key's value.
_ARRAY, _UINT32 = 9, 4


def embed(table: AtlasTable, model: Path, path: Path) -> None:
    """Writes `path`, the model's file with the table in it; an atlas that was there is replaced.

    A folder of safetensors must be of one file. RequestProblem when it is not, or `path` cannot be written;
    CheckpointProblem for a file that is damaged.
    """
    source = _source(model)
    if path.exists() and path.samefile(source):
        raise RequestProblem(f"{path} is the model itself", fix="name another file to write")
    if path.suffix != source.suffix:
        raise RequestProblem(
            f"{path} would be a {source.suffix} file", fix=f"end its name in {source.suffix}"
        )
    draft = path.with_name(f".{path.name}.part")
    try:
        with source.open("rb") as old, draft.open("wb") as new:
            write = _write_gguf if source.suffix == ".gguf" else _write_safetensors
            write(table, source, old, new)
        draft.replace(path)
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror or error}"
        raise RequestProblem(what, fix="make room there, or name another file") from error
    finally:
        draft.unlink(missing_ok=True)


def read_table(path: Path) -> AtlasTable:
    """The atlas in a file of its own, in a GGUF or in a safetensors file; CheckpointProblem: none there."""
    try:
        with path.open("rb") as stream:
            start = stream.read(4)
            if start == b"GGUF":
                return table_of(_gguf_value(path), str(path))
            stream.seek(0)
            if path.suffix == ".safetensors":
                _, header = _safetensors_header(path, stream)
                text = header.get("__metadata__", {}).get(KEY, "")
                return table_of(base64.b64decode(text), str(path))
            return table_of(stream.read(), str(path))
    except (OSError, ValueError) as error:
        raise CheckpointProblem(f"{path} cannot be read: {error}", fix="check the path") from None


def _source(model: Path) -> Path:
    """The one file of a model."""
    if not model.is_dir():
        return model
    files = sorted(model.glob("*.safetensors"))
    if len(files) != 1:
        what = f"{model} has {len(files)} safetensors files, and an atlas goes into one"
        raise RequestProblem(what, fix="save the atlas beside it with --save")
    return files[0]


# --- safetensors ----------------------------------------------------------------------------------


def _write_safetensors(table: AtlasTable, source: Path, old: BinaryIO, new: BinaryIO) -> None:
    begin, header = _safetensors_header(source, old)
    metadata = header.get("__metadata__") or {}
    text = base64.b64encode(table.words.astype("<u4").tobytes()).decode()
    header = {**header, "__metadata__": {**metadata, KEY: text}}
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % 8)  # the library pads so, that tensors begin aligned
    new.write(len(raw).to_bytes(8, "little") + raw)
    old.seek(begin)
    _copy(old, new)


def _safetensors_header(path: Path, stream: BinaryIO) -> tuple[int, dict[str, Any]]:
    """Where the tensors begin, and the header."""
    length = int.from_bytes(stream.read(8), "little")
    try:
        header = json.loads(stream.read(length) if length < 1 << 30 else b"")
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise CheckpointProblem(f"{path} is damaged: its header is no JSON object", fix="get the file again")
    return 8 + length, header


# --- GGUF -----------------------------------------------------------------------------------------


def _write_gguf(table: AtlasTable, source: Path, old: BinaryIO, new: BinaryIO) -> None:
    """Keys and the list of tensors are copied as they are: places of tensors are counted from their end."""
    from gguf import GGUFReader

    reader = GGUFReader(source)
    keys = [field for name, field in reader.fields.items() if not name.startswith("GGUF.") and name != KEY]
    magic, version, tensors = struct.unpack("<IIQ", old.read(16))
    header = bytearray(struct.pack("<IIQQ", magic, version, tensors, len(keys) + 1))
    for field in sorted(keys, key=lambda field: field.offset):
        header += b"".join(part.tobytes() for part in field.parts)
    header += _gguf_key(table)
    for tensor in reader.tensors:
        header += b"".join(part.tobytes() for part in tensor.field.parts)
    header += bytes(-len(header) % reader.alignment)
    new.write(header)
    old.seek(reader.data_offset)
    _copy(old, new)


def _gguf_key(table: AtlasTable) -> bytes:
    name, words = KEY.encode(), table.words.astype("<u4")
    start = struct.pack("<Q", len(name)) + name
    return start + struct.pack("<IIQ", _ARRAY, _UINT32, len(words)) + words.tobytes()


def _gguf_value(path: Path) -> bytes:
    from trisplit.models.gguf import read_header

    words = read_header(path).keys.get(KEY)
    if not isinstance(words, list):
        return b""
    return struct.pack(f"<{len(words)}I", *words)


def _copy(old: BinaryIO, new: BinaryIO) -> None:
    for chunk in _chunks(old):
        new.write(chunk)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk
