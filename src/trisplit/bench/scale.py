"""What was measured with time passing more quickly, as it would be at the pace it stands for; pure."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def at_scale(measured: T, factor: float) -> T:
    """Every `…_ms` so many times as long, and rates as many times lower; so in rows inside, too."""
    return replace(
        measured, **{f.name: _scaled(f.name, getattr(measured, f.name), factor) for f in fields(measured)}
    )


def _scaled(name: str, value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_scaled("", each, factor) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return at_scale(value, factor)
    if value is None or not (name.endswith("_ms") or name == "mbit"):
        return value
    return value / factor if name == "mbit" else value * factor
