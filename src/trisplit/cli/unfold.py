"""Options that come in sets: a parameter that is a dataclass, shown to typer as the fields it has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def unfolded(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: in place of each parameter that is a dataclass, its fields.

    They are Annotated as parameters of a command are, and what was typed comes back as that dataclass.
    """
    hints = get_type_hints(command, include_extras=True)
    sets: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    seen = [
        option
        for name, parameter in inspect.signature(command).parameters.items()
        for option in (
            _options(sets[name]) if name in sets else [_option(name, hints[name], parameter.default)]
        )
    ]

    @wraps(command)
    def run(**typed: Any) -> None:
        made = {
            name: kind(**{field.name: typed.pop(field.name) for field in fields(kind)})
            for name, kind in sets.items()
        }
        command(**typed, **made)

    run.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in seen}
    return run


def _options(kind: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield _option(field.name, hints[field.name], default)


def _option(name: str, annotation: object, default: object) -> inspect.Parameter:
    # By keyword only, so that one without a default may follow one that has it.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
