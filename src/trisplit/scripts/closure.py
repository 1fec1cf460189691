"""What a script loads besides itself: files it names by relative paths, and what those load."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trisplit.scripts.script import EXTENSIONS, Script, is_text, kind_around

MOST_PARTS = 256

_REQUIRE = re.compile(rb"""\brequire\s*\(\s*(['"])(\.{1,2}/[^'"\\\n]*)\1\s*\)""")
_TRIED = ("", ".js", ".json")  # .node is tried next; what it would find is not ours to run

# Declarations that stand alone in their lines, without attributes. What stands in a text or comment and looks
# like one does no harm: it is looked up, and nothing asks for it.
_NAMES = rb"(?:[\w$\s{},*]*?[\s}*]from\s*)?"
_FROM = rb"""(['"])([^'"\\\n]*)\1[ \t\r]*(?:;|$)"""
_IMPORT = re.compile(rb"(?:^|(?<=;))[ \t]*import(?![\w$])\s*" + _NAMES + _FROM, re.M)
_EXPORT = re.compile(rb"(?:^|(?<=;))[ \t]*export(?![\w$])\s*" + _NAMES + _FROM, re.M)
# Of which a URL and a path are the same.
_PLAIN = re.compile(r"\.{1,2}(/[A-Za-z0-9_.@+~$-]+)+")


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

    @property
    def is_typed(self) -> bool:
        """Whether it is TypeScript."""
        return self.path.suffix in EXTENSIONS and EXTENSIONS[self.path.suffix][0] == "typescript"


def closure(script: Script) -> tuple[Part, ...]:
    """The script and everything it may load by a path that stands in it, each file once.

    A word that leads nowhere, or to what only node can load, leads to no part: a script that really loads it
    is impure. That is looked up anew each time, so a file that appears where none was makes another closure.
    """
    sources: dict[Path, bytes] = {script.path: script.source}
    found: dict[Path, dict[str, Path]] = {}
    if script.language != "javascript" and script.kind != "module":
        return (Part(script.path, script.source),)
    words: Callable[[Path, bytes], Iterator[str]] = _required
    resolved = _resolved
    if script.kind == "module":
        words, resolved = _imported, _resolved_as_module
    while waiting := [path for path in sources if path not in found]:
        for path in waiting:
            found[path] = {}
            for word in words(path, sources[path]):
                target = resolved(path.parent, word)
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
    return any(kind.search(source) for kind in (_REQUIRE, _IMPORT, _EXPORT))


def without_imports(source: bytes) -> bytes:
    """A module's text with spaces for its declarations of imports."""
    return _IMPORT.sub(lambda found: re.sub(rb"[^\n]", b" ", found[0]), source)


def _imported(_: Path, source: bytes) -> Iterator[str]:
    for kind in (_IMPORT, _EXPORT):
        for match in kind.finditer(source):
            word = match[2].decode(errors="replace")
            if _PLAIN.fullmatch(word):
                yield word


def _required(path: Path, source: bytes) -> Iterator[str]:
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


def _resolved_as_module(folder: Path, word: str) -> Path | None:
    """The same of an import, which says the whole name; None where that is no module of ours to run."""
    path = Path(os.path.normpath(folder / word))
    if word.endswith(("/.", "/..")) or not path.is_file():
        return None
    real = path.resolve()
    language, kind = EXTENSIONS.get(real.suffix, ("", ""))
    if (
        not is_text(real)
        or real.suffix != path.suffix
        or "node_modules" in real.parts
        or language == "python"
    ):
        return None
    return real if language and (kind or kind_around(real)[0]) == "module" else None


def _read(path: Path) -> bytes:
    """Its bytes; of one that cannot be read none, and the script that loads it is run as ever."""
    try:
        return path.read_bytes()
    except OSError:
        return b"}"  # compiles nowhere
