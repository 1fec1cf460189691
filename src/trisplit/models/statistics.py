"""What the matrices of a model were given while a text was read: second moments, kept in a file.

The file is an npz that numpy opens: `about`, JSON in bytes, and for every matrix (`attention-007.qkv`) the
upper triangle of E[xxᵀ] row by row, float32.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from trisplit.errors import RequestProblem
from trisplit.models.config import Stage
from trisplit.models.layout import Matrix
from trisplit.models.stage_file import matrix_name

Doubles = NDArray[np.float64]

_FORMAT: Final = 1
_ABOUT: Final = "about"
_UNREADABLE: Final = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
_FIX: Final = "make it again with: trisplit calibrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Whose statistics they are: SHA-256 of the model's weights and of the ids read, and how many."""

    model: str
    text: str
    tokens: int
    format: int = _FORMAT


@dataclass(frozen=True, slots=True)
class Statistics:
    """A file of second moments; a matrix's are read when they are asked for. `digest` is that of the file."""

    path: Path
    about: About
    digest: str

    def gram(self, stage: Stage, matrix: Matrix) -> Doubles:
        """E[xxᵀ] of what the matrix is given, [columns, columns]; RequestProblem when it is not there."""
        name, n = matrix_name(stage, matrix.name), matrix.columns
        try:
            with zipfile.ZipFile(self.path) as archive:
                kept = _array(archive, name)
        except _UNREADABLE as error:
            raise _odd(self.path, f"{name} cannot be read from it ({error})") from error
        if kept.shape != (n * (n + 1) // 2,) or kept.dtype != np.float32:
            raise _odd(self.path, f"{name} is {kept.dtype} {list(kept.shape)}, not of {n:,} columns")
        gram = np.zeros((n, n))
        gram[np.triu_indices(n)] = kept
        return gram + np.triu(gram, 1).T


def open_statistics(path: Path) -> Statistics:
    """The statistics in a file; RequestProblem when they are none of ours."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        with zipfile.ZipFile(path) as archive:
            about = msgspec.json.decode(_array(archive, _ABOUT).tobytes(), type=About)
    except _UNREADABLE as error:
        raise _odd(path, f"they cannot be read ({error})") from error
    if about.format != _FORMAT:
        raise _odd(path, f"they are of format {about.format}, and we read {_FORMAT}")
    return Statistics(path, about, digest)


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    return array


@contextmanager
def writing(path: Path, about: About) -> Iterator[Callable[[str, Doubles], None]]:
    """A function that adds a matrix's moments by its name. The file appears whole at the end, or not at all.

    RequestProblem when it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(draft, "w", allowZip64=True) as archive:

            def add(name: str, values: NDArray[np.generic]) -> None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)

            add(_ABOUT, np.frombuffer(msgspec.json.encode(about), np.uint8))
            yield lambda name, gram: add(name, gram[np.triu_indices(len(gram))].astype(np.float32))
        draft.replace(path)
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror or error}"
        raise RequestProblem(what, fix="make room there, or name another file") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _odd(path: Path, why: str) -> RequestProblem:
    return RequestProblem(f"{path} has no statistics of ours: {why}", fix=_FIX)
