"""JSON lines: one record a line, written from dataclasses and read back as them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from trisplit.errors import FetchProblem

Row = TypeVar("Row")


def to_line(row: object) -> bytes:
    """One dataclass as one line of JSON, in the order of its fields."""
    return msgspec.json.encode(row) + b"\n"


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Every line of `path` as a `kind`. FetchProblem: no such file, or a line that is not one."""
    decoder = msgspec.json.Decoder(kind)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise FetchProblem(
            f"cannot read {path}: {error.strerror}", fix="fetch it, or check the path"
        ) from None
    rows: list[Row] = []
    try:
        rows.extend(map(decoder.decode, lines))
    except msgspec.DecodeError as error:
        raise FetchProblem(
            f"line {len(rows) + 1} of {path} is no {kind.__name__}: {error}",
            fix="remove the file and fetch it again",
        ) from None
    return rows
