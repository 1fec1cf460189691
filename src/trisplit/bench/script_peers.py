"""The engines that scripts are timed beside: bun, deno and node, of PATH or as npm installs them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.errors import UnknownName

NAMES: Final = ("bun", "deno", "node")
HOW: Final = "make peers-scripts"

_TYPES_FROM: Final = (22, 18)  # from here on node runs TypeScript by itself, and without a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One program that runs scripts; the script follows `words`."""

    name: str
    version: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """Its path."""
        return self.words[0]

    def runs(self, command: str) -> bool:
        """Whether it takes a script of this name."""
        if self.name != "node" or not command.endswith(".ts"):
            return True
        return tuple(int(part) for part in self.version.split(".")[:2]) >= _TYPES_FROM


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What is not among the rows, and why."""

    what: str
    why: str


def find_peers(names: Sequence[str], folder: Path) -> tuple[list[Peer], list[LeftOut]]:
    """Those of these names that are on PATH or were installed into `folder`; UnknownName.

    Of node both, the one of PATH first: it is the one scripts run with here.
    """
    found, missing = list[Peer](), list[LeftOut]()
    for name in names:
        if name not in NAMES:
            raise UnknownName("peer", name, NAMES)
        places = [shutil.which(name), shutil.which(name, path=str(folder / "node_modules" / ".bin"))]
        programs = dict.fromkeys(str(Path(place).resolve()) for place in places if place)
        peers = [peer for program in programs if (peer := _asked(name, program)) is not None]
        found += peers if name == "node" else peers[-1:]
        if not peers:
            missing.append(LeftOut(what=name, why=f"neither on PATH nor in {folder}: {HOW}"))
    return found, missing


def _asked(name: str, program: str) -> Peer | None:
    """What it says it is; None for what does not say so."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    version = re.search(r"\d+\.\d+\.\d+", said)
    words = (program, "run") if name == "deno" else (program,)
    return None if version is None else Peer(name=name, version=version[0], words=words)
