"""Typed look-ups in metadata that nobody vouches for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from trisplit.errors import CheckpointProblem

GET_AGAIN: Final = "get the model again"
_LARGEST: Final = 2**28
_MOST_LAYERS: Final = 4096


class Keys:
    """Typed look-ups in untrusted metadata; a wrong type is a CheckpointProblem naming the key."""

    def __init__(self, data: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.data, self.where, self.prefix = data, where, prefix

    def has(self, key: str) -> bool:
        return self.data.get(self.prefix + key) is not None

    def number(self, key: str, default: float | None = None) -> float:
        value = self.data.get(self.prefix + key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            wrong = "is missing" if value is None else f"is {value!r}, not a number"
            raise CheckpointProblem(f"{self.prefix}{key} {wrong} in {self.where}", fix=GET_AGAIN)
        if not math.isfinite(value):
            raise CheckpointProblem(f"{self.prefix}{key} is {value} in {self.where}", fix=GET_AGAIN)
        return float(value)

    def count(self, key: str, default: int | None = None) -> int:
        return int(self.number(key, default))

    def size(self, key: str, default: int | None = None) -> int:
        """A count of at least one, and not absurd."""
        value = self.count(key, default)
        if not 1 <= value <= _LARGEST:
            raise CheckpointProblem(f"{self.prefix}{key} is {value} in {self.where}", fix=GET_AGAIN)
        return value

    def layers(self, key: str) -> int:
        """The number of layers: what follows makes lists of it."""
        value = self.size(key)
        if value > _MOST_LAYERS:
            raise CheckpointProblem(f"{self.where} says {value} layers", fix=GET_AGAIN)
        return value

    def positive(self, key: str, default: float | None = None, *, most: float = 1e12) -> float:
        """A number over zero, and not absurd."""
        value = self.number(key, default)
        if not 0 < value <= most:
            raise CheckpointProblem(f"{self.prefix}{key} is {value:g} in {self.where}", fix=GET_AGAIN)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.data.get(self.prefix + key)
        return default if value is None else bool(value)

    def text(self, key: str, default: str) -> str:
        value = self.data.get(self.prefix + key)
        return default if value is None else str(value)

    def table(self, key: str) -> Mapping[str, Any]:
        value = self.data.get(self.prefix + key)
        return value if isinstance(value, Mapping) else {}
