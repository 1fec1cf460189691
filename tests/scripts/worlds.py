"""What tests of scripts share: node, and surroundings that differ in all a script could read."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node on PATH")

PLAIN = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
ELSEWHERE = (
    {"TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "SEED": "1", "COLUMNS": "40"},
    {"TZ": "America/Caracas", "LC_ALL": "C", "NO_COLOR": "1", "TERM": "xterm-256color", "NODE_ENV": "test"},
    {"TZ": "UTC", "LANG": "tr_TR.UTF-8", "COLORTERM": "truecolor", "TERM": "dumb"},
)
SHIFTS_S = (0, -400_000_000, 17_300_003)  # today, years ago, some day in half a year


def surroundings_of(number: int) -> dict[str, str]:
    """The variables of one of the worlds."""
    return {**PLAIN, **ELSEWHERE[number % len(ELSEWHERE)]}


def reference(path: Path, folder: Path, number: int) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and error of node in one of the worlds.

    They differ in time zone, locale, variables, directory (`folder` in the first), in what random numbers
    begin with, and in the clock where there is a compiler to set it.
    """
    assert NODE is not None
    world = number % len(ELSEWHERE)
    clock = {"LD_PRELOAD": _shifting(), "CLOCK_SHIFT_S": str(SHIFTS_S[world])} if _shifting() else {}
    ran = subprocess.run(
        [NODE, f"--random-seed={number + 1}", str(path)],
        cwd=(folder, "/", tempfile.gettempdir())[world],
        env={**surroundings_of(world), **clock},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    return ran.returncode, ran.stdout, ran.stderr


@functools.cache
def _shifting() -> str:
    """The library that sets the clock of a program; none where nothing compiles it."""
    to = Path(tempfile.mkdtemp(prefix="trisplit-tests-")) / "clock.so"
    source = Path(__file__).with_name("clock.c")
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(to), str(source)]
    try:
        made = subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        made = False
    return str(to) if made else ""
