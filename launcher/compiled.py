"""Compiles the launcher with what there is: musl, or the system's compiler, or one you name."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).with_name("trisplit.c")
SHELL = Path(__file__).with_name("trisplit.sh")

_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")

# It starts three times as fast without shared libraries, and a little faster when it is in fewer pieces.
_LINKED = (("-static", "-Wl,-z,noseparate-code"), ("-static",), ())


def compile_launcher(to: Path) -> str:
    """Compiles to a file; returns the words it was done with, empty when no compiler could.

    TRISPLIT_CC names another compiler (`python -m ziglang cc -target x86_64-linux-musl`), or `none`.
    """
    if sys.platform != "linux":
        return ""
    for compiler in _compilers():
        for linked in _LINKED:
            words = [*compiler, *_FLAGS, *linked, str(SOURCE), "-o", str(to)]
            try:
                ran = subprocess.run(words, capture_output=True, timeout=120)
            except (OSError, subprocess.TimeoutExpired):
                break
            if ran.returncode == 0 and _starts(to):
                return shlex.join(words)
    to.unlink(missing_ok=True)
    return ""


def _compilers() -> Iterator[list[str]]:
    named = os.environ.get("TRISPLIT_CC", "")
    if named:
        yield from [] if named == "none" else [shlex.split(named)]
        return
    yield from ([name] for name in ("musl-gcc", "cc", "gcc", "clang") if shutil.which(name))


def _starts(program: Path) -> bool:
    """Whether it runs here: with nothing to hand over to, it says so and ends with 1."""
    try:
        ran = subprocess.run([program], capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 1 and ran.stderr.startswith(b"error: ")
