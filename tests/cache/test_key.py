"""Keys: equal for equal content, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.cache.key import Impure, canonical, is_key, key_of

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=12,
)


@dataclass(frozen=True)
class Fact:
    name: str
    size: int


@dataclass
class Loose:
    name: str


def told(value: Any) -> str:
    """All of a value that a key may see: types, bits of floats, order."""
    match value:
        case tuple() | list():
            return f"{type(value).__name__}[{','.join(map(told, value))}]"
        case dict():
            return f"dict[{','.join(f'{told(k)}:{told(v)}' for k, v in value.items())}]"
        case float():
            return f"float {np.float64(value).tobytes().hex()}"
    return f"{type(value).__name__} {value!r}"


@given(VALUES, VALUES)
def test_keys_are_equal_exactly_when_contents_are(one: Any, other: Any) -> None:
    assert (key_of("test", value=one) == key_of("test", value=other)) == (told(one) == told(other))
    assert (canonical(one) == canonical(other)) == (told(one) == told(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", b"1"),
        ((1, 2), [1, 2]),
        (("ab", "c"), ("a", "bc")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),  # a loop over them differs
        (Fact("a", 1), {"name": "a", "size": 1}),
        (np.zeros(4, np.float32), np.zeros(4, np.int32)),
        (np.zeros((2, 2)), np.zeros(4)),
    ],
    ids=repr,
)
def test_what_looks_alike_is_not_the_same(one: Any, other: Any) -> None:
    assert key_of("test", value=one) != key_of("test", value=other)


def test_sets_have_no_order() -> None:
    assert key_of("test", value={"a", "b", "c"}) == key_of("test", value={"c", "b", "a"})


def test_kinds_and_names_set_apart() -> None:
    keys = {key_of("x", a=1), key_of("y", a=1), key_of("x", b=1), key_of("x"), key_of("x", a=1, b=1)}
    assert len(keys) == 5
    assert all(isinstance(key, str) and is_key(key) for key in keys)


@pytest.mark.parametrize(
    "value", [print, object(), Loose("a"), [Loose("a")], lambda: 1, np.array([object()]), range(3)]
)
def test_what_has_no_content_has_no_key(value: Any) -> None:
    key = key_of("test", value=value)
    assert isinstance(key, Impure)
    assert key.why.startswith("value: a ")


class Loud(str):
    """A subclass may mean anything."""

    __slots__ = ()


def test_subclasses_are_not_taken_for_what_they_extend() -> None:
    assert isinstance(key_of("test", value=Loud("a")), Impure)


@pytest.mark.parametrize("text", ["", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n"])
def test_what_is_no_key(text: str) -> None:
    assert not is_key(text)
