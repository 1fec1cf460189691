"""Ways into the cache from outside, as words that begin a process: those this machine has."""

from __future__ import annotations

import sys
from pathlib import Path

from trisplit.scripts.sealing import LAUNCHER, PYTHON, SHELL


def doors() -> dict[str, tuple[str, ...]]:
    """By name, the quickest first; the script and its arguments follow these words."""
    beside = Path(sys.executable).parent
    found: dict[str, tuple[str, ...]] = {}
    if (beside / PYTHON).is_file():
        for name, program in (("launcher", beside / LAUNCHER), ("sh", beside / SHELL)):
            if program.is_file() and _is_compiled(program) == (name == "launcher"):
                found[name] = (str(program), "run")
    return {**found, "python": (sys.executable, "-m", "trisplit", "run")}


def _is_compiled(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(4) == b"\x7fELF"
