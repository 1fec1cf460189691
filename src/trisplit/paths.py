"""Where trisplit keeps files: one cache directory, the user's or the one named in $TRISPLIT_CACHE."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_dir() -> Path:
    """The cache directory, made if missing."""
    named = os.environ.get("TRISPLIT_CACHE")
    folder = Path(named).expanduser() if named else user_cache_path("trisplit")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
