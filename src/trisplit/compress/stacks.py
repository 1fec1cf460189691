"""Recipes in files: a TOML list of steps, each with its method and that method's parameters."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import msgspec

from trisplit.compress.recipe import STEPS, Recipe, recipe_named
from trisplit.compress.steps.step import Step
from trisplit.errors import RequestProblem, UnknownName

SUFFIX: Final = ".toml"


def open_recipe(name: str, keep: float | None = None) -> Recipe:
    """The recipe of this name or in this file, with another share if one is given.

    Whatever ends in .toml is a file. UnknownName, or RequestProblem.
    """
    if not name.endswith(SUFFIX):
        return recipe_named(name, keep)
    recipe = read_stack(Path(name))
    return recipe if keep is None else recipe.keeping(keep)


def read_stack(path: Path) -> Recipe:
    """The recipe in a file; its name is the file's. UnknownName for typos, RequestProblem for the rest."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RequestProblem(f"{path} cannot be read: {error}", fix="name a file of steps") from error
    except tomllib.TOMLDecodeError as error:
        raise RequestProblem(f"{path} is no TOML: {error}", fix="mend that line") from error
    _refuse_typos(f"key of {path.name}", table, ("what", "steps"))
    what, steps = table.get("what", ""), table.get("steps", [])
    if not isinstance(what, str) or not isinstance(steps, list):
        raise RequestProblem(f"{path}: `what` is text, `steps` a list", fix="write each step under [[steps]]")
    made = tuple(_step(f"step {number} of {path.name}", one) for number, one in enumerate(steps, 1))
    return Recipe(path.stem, what, made)


def _step(where: str, table: object) -> Step:
    if not isinstance(table, dict) or "method" not in table:
        raise RequestProblem(f"{where} has no method", fix=f"write method = one of {', '.join(STEPS)}")
    method, given = str(table["method"]), {key: value for key, value in table.items() if key != "method"}
    if method not in STEPS:
        raise UnknownName("method", method, STEPS)
    kind = STEPS[method]
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    _refuse_typos(f"parameter of {method}", given, known)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise RequestProblem(f"{where}: {error}", fix="see docs/shrink.md for what it can be") from error


def _refuse_typos(kind: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    names = list(known)
    for key in given:
        if key not in names:
            raise UnknownName(kind, key, names)
