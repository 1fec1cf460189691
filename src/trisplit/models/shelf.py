"""The shelf: files of weights in the cache directory, each under the SHA-256 of what it holds.

Plain safetensors, so any tool can open them; the runtime maps their byte ranges. Who knows a file's
name can check its content, whichever machine it came from: `sha256sum` says the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trisplit.errors import CheckpointProblem
from trisplit.models.config import HEAD, ModelConfig, Stage
from trisplit.models.folder import read_member
from trisplit.models.stage_file import StageFile, Stored, as_head, misfit
from trisplit.paths import cache_dir, unwritable

SUFFIX: Final = ".safetensors"
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_STALE_S: Final = 3600.0
_FORGOTTEN_S: Final = 7 * 86_400.0


def shelf() -> Path:
    """The folder, made if missing; RequestProblem when it cannot be."""
    folder = cache_dir() / "engine"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    return folder


def file_of(digest: str) -> str:
    """The name of the file with this digest, 64 hex digits."""
    assert _DIGEST.fullmatch(digest), digest  # it becomes a path
    return digest + SUFFIX


def contents(digest: str) -> dict[str, Stored] | None:
    """What lies in a file of the shelf; None if it is missing, foreign or not whole, as after a power cut."""
    name = file_of(digest)
    try:
        places = read_member(shelf() / name).places
    except (OSError, CheckpointProblem):
        return None
    return {
        key: Stored(name, place.info.dtype, place.info.shape, place.offset, place.info.n_bytes)
        for key, place in places.items()
    }


def stage_on_shelf(config: ModelConfig, stage: Stage, digests: Sequence[str]) -> StageFile | None:
    """One stage's weights from the files with these digests; None while one of them is not here.

    CheckpointProblem when the stage cannot be computed from what they hold. A head that is the embedding
    has two: its own, and the embedding's.
    """
    parts = [contents(digest) for digest in digests]
    own, *more = parts
    if own is None or None in parts:
        return None
    is_tied = stage == HEAD and config.tied_head
    tensors = own | (as_head(more[0] or {}) if is_tied and more else {})
    file = StageFile(stage, shelf(), tensors)
    why = misfit(config, file) if len(parts) == 1 + is_tied else f"it has {len(parts)} files"
    if why:
        what = f"the weights of {stage} are not those of the model described: {why}"
        raise CheckpointProblem(what, fix="run the same version of trisplit on both ends")
    return file


@contextmanager
def drafted() -> Iterator[Path]:
    """Where to write a file that is not ready yet; gone afterwards unless `put` has taken it."""
    folder = shelf()
    sweep(folder)
    draft = folder / f".{os.getpid()}.{secrets.token_hex(8)}"
    try:
        yield draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def put(draft: Path) -> str:
    """Puts a ready file in its place, whole at once; returns its digest."""
    with draft.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    draft.replace(draft.with_name(file_of(digest)))
    return digest


def recorded(record: Path) -> str | None:
    """The digest that `remember` has written there."""
    try:
        found = _DIGEST.match(record.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return found and found[0]


def remember(record: Path, digest: str) -> None:
    """Notes the digest of a file, as `sha256sum --check` reads it from there."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with drafted() as draft:
        draft.write_text(f"{digest}  ../{file_of(digest)}\n", encoding="ascii")
        draft.replace(record)


def sweep(folder: Path) -> None:
    """Removes drafts a killed process has left an hour ago, and what was cut a week ago and never went on."""
    for pattern, age_s in ((".*", _STALE_S), ("*.part", _FORGOTTEN_S)):
        for left in folder.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > age_s:
                    left.unlink()
