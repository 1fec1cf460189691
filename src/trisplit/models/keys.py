"""Typed look-ups in metadata that nobody vouches for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from trisplit.errors import CheckpointProblem

GET_AGAIN: Final = "get the model again"
_LARGEST: Final = 2**28


class Keys:
    """Typed look-ups in untrusted metadata; a wrong type or an absurd value is a CheckpointProblem.

    It names the key. What is null counts as missing; `default` None makes a key compulsory.
    """

    def __init__(self, data: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.data, self.where, self.prefix = data, where, prefix

    def get(self, key: str) -> Any:
        """The value as it stands; None if there is none."""
        return self.data.get(self.prefix + key)

    def has(self, key: str) -> bool:
        return self.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the key is there and says: nothing."""
        return self.prefix + key in self.data and not self.has(key)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.get(key)
        return self._finite(key, default if value is None else value)

    def _finite(self, key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise self.wrong(key, "is missing" if value is None else f"is {value!r}, not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(key, f"is {value}")
        return number

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        return int(self.number(key, default))

    def size(self, key: str, default: int | None = None, *, most: int = _LARGEST) -> int:
        """A count of at least one, and not absurd."""
        return self._size(key, self.number(key, default), most)

    def sizes(self, key: str, count: int) -> tuple[int, ...]:
        """`count` sizes, said as one number for all of them or one by one."""
        value = self.get(key)
        if not isinstance(value, (list, tuple)):
            return (self.size(key),) * count
        if len(value) != count:
            raise self.wrong(key, f"has {len(value)} numbers for {count} layers")
        return tuple(self._size(key, self._finite(key, item), _LARGEST) for item in value)

    def _size(self, key: str, number: float, most: int) -> int:
        value = int(number)
        if not 1 <= value <= most:
            raise self.wrong(key, f"is {value}")
        return value

    def positive(
        self, key: str, default: float | None = None, *, least: float = 1e-12, most: float = 1e12
    ) -> float:
        """A number over zero, and not absurd."""
        value = self.number(key, default)
        if not least <= value <= most:
            raise self.wrong(key, f"is {value:g}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, f"is {value!r}, neither true nor false")
        return default if value is None else value

    def text(self, key: str, default: str) -> str:
        value = self.get(key)
        return default if value is None else str(value)

    def table(self, key: str) -> Mapping[str, Any]:
        """An object, empty if there is none."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, f"is {value!r}, not an object")
        return value or {}

    def wrong(self, key: str, how: str) -> CheckpointProblem:
        """The Problem of a key that is not as it must be."""
        return CheckpointProblem(f"{self.prefix}{key} {how} in {self.where}", fix=GET_AGAIN)
