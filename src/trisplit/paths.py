"""Where trisplit keeps files: one cache directory, the user's or the one named in $TRISPLIT_CACHE."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from trisplit.errors import RequestProblem

_SCRATCH: Final = "scratch-"


def cache_dir() -> Path:
    """The cache directory, made if missing; RequestProblem when it cannot be."""
    named = os.environ.get("TRISPLIT_CACHE")
    try:
        folder = Path(named).expanduser() if named else user_cache_path("trisplit")
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of somebody who is not here
        raise unwritable(Path(named or "~"), error) from error
    return folder


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for what is only needed meanwhile, on the disk of the cache; gone afterwards.

    A process that is killed leaves its own behind, up to gigabytes: the next one takes it away. Whose lock is
    held lives; locks end with their process. RequestProblem when nothing can be made there.
    """
    home = cache_dir()
    try:
        for left in home.glob(f"{_SCRATCH}*"):
            _sweep(left)
        folder, lock = _locked(home)
    except OSError as error:
        raise unwritable(home, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(home: Path) -> tuple[Path, int]:
    """A new folder and its lock. One that is swept before it is locked is no more the one of its name."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=home))
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Takes a folder away unless somebody holds it."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def unwritable(folder: Path, error: Exception) -> RequestProblem:
    """The problem of a cache that cannot be written, and why."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RequestProblem(
        f"the cache directory {folder} cannot be written: {why}",
        fix="make room or give leave there, or name another directory in TRISPLIT_CACHE",
    )
