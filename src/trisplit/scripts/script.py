"""A script as it is on disk: its bytes, read once, and which engine and loader they are for."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trisplit.errors import RequestProblem, UnknownName

Language = Literal["javascript", "typescript", "python"]
Kind = Literal["commonjs", "module", ""]

# What an extension says: the language, and the kind of module where the extension decides that.
EXTENSIONS: dict[str, tuple[Language, Kind]] = {
    ".js": ("javascript", ""),
    ".cjs": ("javascript", "commonjs"),
    ".mjs": ("javascript", "module"),
    ".ts": ("typescript", ""),
    ".cts": ("typescript", "commonjs"),
    ".mts": ("typescript", "module"),
    ".py": ("python", ""),
}
# JSX, which node does not run at all; other engines do.
FOR_OTHERS: dict[str, Language] = {".jsx": "javascript", ".tsx": "typescript"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What runs. `path` has no links in it; `unclear` says why its kind cannot be told, where that is so."""

    named: str
    path: Path
    source: bytes
    language: Language
    kind: Kind = ""
    unclear: str = ""


def read_script(named: str) -> Script:
    """The script at a path. RequestProblem when it cannot be read, UnknownName for another extension."""
    extension = os.path.splitext(named)[1]
    if extension not in EXTENSIONS and extension not in FOR_OTHERS:
        raise UnknownName("kind of script", extension or named, [*EXTENSIONS, *FOR_OTHERS])
    language, kind = EXTENSIONS.get(extension) or (FOR_OTHERS[extension], "")
    try:
        path = Path(named).resolve(strict=True)
        source = path.read_bytes()
    except OSError as error:
        what = f"{named} cannot be read: {error.strerror or error}"
        raise RequestProblem(what, fix="name a script that is there") from error
    unclear = ""
    if extension in FOR_OTHERS:
        unclear = f"node runs no {extension}"
    elif not is_text(path):
        unclear = "lies where names are no text"
    elif path.suffix != extension:
        unclear = f"is a link to {path.name}, which has another extension"
    elif not kind and language != "python":
        kind, unclear = kind_around(path)
    return Script(named=named, path=path, source=source, language=language, kind=kind, unclear=unclear)


def is_text(path: Path) -> bool:
    """Whether node and we would write this path the same way."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def kind_around(path: Path) -> tuple[Kind, str]:
    """What the nearest package.json says its scripts are; the second is why it cannot be told."""
    try:
        found = nearest_package(path)
        return ("commonjs", "") if found is None else (kind_in(found[1]), "")
    except RequestProblem as problem:
        return "", problem.what


def nearest_package(path: Path) -> tuple[Path, bytes] | None:
    """The package.json that counts for a script, and its bytes; RequestProblem when it cannot be read."""
    for folder in path.parents:
        if folder.name == "node_modules":
            break
        file = folder / "package.json"
        try:
            return file, file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise RequestProblem(f"{file} cannot be read", fix="make it readable") from error
    return None


def kind_in(package: bytes) -> Kind:
    """What a package.json says its scripts are; RequestProblem when readers of JSON would differ."""
    try:
        said = json.loads(package.decode(), object_pairs_hook=_without_doubles, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise RequestProblem("the nearest package.json cannot be read", fix="mend it") from error
    if not isinstance(said, dict):
        raise RequestProblem("the nearest package.json is no object", fix="mend it")
    return "module" if said.get("type") == "module" else "commonjs"


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Readers of JSON differ in which of two equal names counts."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)


def _refused(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
