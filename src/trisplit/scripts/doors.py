"""Ways into the cache from outside, as words that begin a process: those this machine has."""

from __future__ import annotations

import sys


def doors() -> dict[str, tuple[str, ...]]:
    """By name, the quickest first; the script and its arguments follow these words."""
    return {"python": (sys.executable, "-m", "trisplit", "run")}
