"""What a CommonJS script loads besides itself: files it names by relative paths, and what those load."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trisplit.scripts.script import Script, is_text, kind_around

MOST_PARTS = 256

_REQUIRE = re.compile(rb"""\brequire\s*\(\s*(['"])(\.{1,2}/[^'"\\\n]*)\1\s*\)""")
_TRIED = ("", ".js", ".json")  # .node is tried next; what it would find is not ours to run


@dataclass(frozen=True, slots=True)
class Part:
    """One file: its bytes, read once, and which parts its `require` finds by which words."""

    path: Path
    source: bytes
    names: tuple[tuple[str, int], ...] = ()

    @property
    def is_json(self) -> bool:
        """Whether it is data."""
        return self.path.suffix == ".json"


def closure(script: Script) -> tuple[Part, ...]:
    """The script and everything it may load by a path that stands in it, each file once.

    A word that leads nowhere, or to what only node can load, leads to no part: a script that really loads it
    is impure. That is looked up anew each time, so a file that appears where none was makes another closure.
    """
    sources: dict[Path, bytes] = {script.path: script.source}
    found: dict[Path, dict[str, Path]] = {}
    if script.language != "javascript" or script.kind != "commonjs":
        return (Part(script.path, script.source),)
    while waiting := [path for path in sources if path not in found]:
        for path in waiting:
            found[path] = {}
            for word in _words(path, sources[path]):
                target = _resolved(path.parent, word)
                if target is None or (target not in sources and len(sources) >= MOST_PARTS):
                    continue
                if target not in sources:
                    sources[target] = _read(target)
                found[path][word] = target
    numbers = {path: number for number, path in enumerate(sources)}
    return tuple(
        Part(path, source, tuple((word, numbers[target]) for word, target in found[path].items()))
        for path, source in sources.items()
    )


def may_load(source: bytes) -> bool:
    """Whether a script of these bytes might load another file; whether that is there is not looked up."""
    return _REQUIRE.search(source) is not None


def _words(path: Path, source: bytes) -> Iterator[str]:
    if path.suffix == ".json":
        return
    for match in _REQUIRE.finditer(source):
        try:
            yield match[2].decode()
        except UnicodeDecodeError:
            continue


def _resolved(folder: Path, word: str) -> Path | None:
    """The file node would load, with no links in it; None where that is not a file of ours to run."""
    if word.endswith(("/", "/.", "/..")) or "\0" in word:
        return None
    for extension in _TRIED:
        path = Path(os.path.normpath(folder / word) + extension)
        if path.is_file():
            real = path.resolve()
            if not is_text(real):
                return None
            runs = real.suffix == path.suffix and "node_modules" not in real.parts
            if runs and real.suffix in (".cjs", ".json"):
                return real
            return real if runs and real.suffix == ".js" and kind_around(real) == ("commonjs", "") else None
    return None


def _read(path: Path) -> bytes:
    """Its bytes; of one that cannot be read none, and the script that loads it is run as ever."""
    try:
        return path.read_bytes()
    except OSError:
        return b"}"  # compiles nowhere
