"""What tests of scripts share: node, and surroundings that differ in all a script could read."""

from __future__ import annotations

import os
import shutil
import subprocess
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


def reference(path: Path, folder: Path, number: int) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and error of node in one of the surroundings."""
    assert NODE is not None
    ran = subprocess.run(
        [NODE, str(path)],
        cwd=folder,
        env={**PLAIN, **ELSEWHERE[number % len(ELSEWHERE)]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    return ran.returncode, ran.stdout, ran.stderr
