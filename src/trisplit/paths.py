"""Where trisplit keeps files: one cache directory, the user's or the one named in $TRISPLIT_CACHE."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from trisplit.errors import RequestProblem


def cache_dir() -> Path:
    """The cache directory, made if missing; RequestProblem when it cannot be."""
    named = os.environ.get("TRISPLIT_CACHE")
    try:
        folder = Path(named).expanduser() if named else user_cache_path("trisplit")
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of somebody who is not here
        raise unwritable(Path(named or "~"), error) from error
    return folder


def unwritable(folder: Path, error: Exception) -> RequestProblem:
    """The problem of a cache that cannot be written, and why."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RequestProblem(
        f"the cache directory {folder} cannot be written: {why}",
        fix="make room or give leave there, or name another directory in TRISPLIT_CACHE",
    )
