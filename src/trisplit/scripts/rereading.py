"""Scripts that are read again and again: their bytes each time, their folders when those may be others."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from trisplit.errors import Problem
from trisplit.scripts.held import SURE_FOR_NS
from trisplit.scripts.script import EXTENSIONS, Script, nearest_package, read_script

MOST = 4096

_Mark = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found out, of which file and when; it holds while no package.json is others than these."""

    script: Script
    file: tuple[int, int]
    at_ns: int
    absent: tuple[str, ...]
    present: tuple[str, _Mark] | None


class Reader:
    """Reads scripts as `read_script` does, but finds their folders as they were without resolving paths anew.

    That is only done when a tenth of a second has passed, the path leads to another file, or a package.json
    came, went or was written.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def read(self, path: str) -> Script:
        """The script at an absolute path; errors as those of `read_script`."""
        known = self._known.get(path)
        if known is not None and time.monotonic_ns() - known.at_ns < SURE_FOR_NS and _is_still(known):
            source = _read(path, known.file)
            if source is not None:
                return replace(known.script, source=source)
        return self._anew(path)

    def _anew(self, path: str) -> Script:
        self._known.pop(path, None)
        at_ns = time.monotonic_ns()
        before = os.stat(path) if os.path.exists(path) else None
        absent, present = _packages(path)
        script = read_script(path)
        if before is not None and not script.unclear:
            if len(self._known) >= MOST:
                self._known.clear()
            file = before.st_dev, before.st_ino
            self._known[path] = _Known(replace(script, source=b""), file, at_ns, absent, present)
        return script


def _packages(path: str) -> tuple[tuple[str, ...], tuple[str, _Mark] | None]:
    """Where there is no package.json, and the one there is, of those that could count."""
    if EXTENSIONS.get(os.path.splitext(path)[1], ("", "known"))[1]:
        return (), None
    real = Path(os.path.realpath(path))
    try:
        nearest = nearest_package(real)
    except Problem:  # read_script says so too
        nearest = None
    absent = list[str]()
    for folder in real.parents:
        if folder.name == "node_modules":
            break
        file = folder / "package.json"
        if nearest is not None and file == nearest[0]:
            return tuple(absent), (str(file), _mark(str(file)))
        absent.append(str(file))
    return tuple(absent), None


def _is_still(known: _Known) -> bool:
    if any(os.access(name, os.F_OK) for name in known.absent):
        return False
    return known.present is None or _mark(known.present[0]) == known.present[1]


def _mark(path: str) -> _Mark:
    try:
        facts = os.stat(path)
    except OSError:
        return ()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _read(path: str, file: tuple[int, int]) -> bytes | None:
    """Its bytes, if it is that file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(fd)
        if (facts.st_dev, facts.st_ino) != file:
            return None
        source = os.read(fd, facts.st_size + 1)
        return source if len(source) == facts.st_size else None
    finally:
        os.close(fd)
