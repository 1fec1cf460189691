"""The name of a computation: one digest of everything its result depends on, or why there is none."""

from __future__ import annotations

import hashlib
import re
import struct
import sys
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NewType

# Part of every key: raised whenever what a key is made of, or what is stored under it, changes its meaning.
SCHEMA = 1

Key = NewType("Key", str)

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Impure:
    """Why a computation has no name: it depends on something no key can hold."""

    why: str


class _Nameless(Exception):
    """A value whose content cannot be told."""


def is_key(text: str) -> bool:
    """Whether `text` could be a key: 64 lower-case hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


def key_of(kind: str, /, **parts: Any) -> Key | Impure:
    """The SHA-256 of `parts`, by name and content; Impure when one of them has no content to tell.

    Content is None, bool, int, float (by its bits), str, bytes, and tuples, lists, sets, dicts, frozen
    dataclasses and numpy arrays of these. Kinds never share keys.

    >>> key_of("sum", terms=(1, 2)) == key_of("sum", terms=(1, 2))
    True
    >>> key_of("sum", terms=(1, 2)) == key_of("sum", terms=(1, "2"))
    False
    >>> key_of("sum", terms=print)
    Impure(why='terms: a builtin_function_or_method has no content to name it by')
    """
    digest = hashlib.sha256(canonical((SCHEMA, kind)))
    for name, value in sorted(parts.items()):
        try:
            digest.update(canonical(name) + canonical(value))
        except _Nameless as nameless:
            return Impure(f"{name}: {nameless}")
    return Key(digest.hexdigest())


def canonical(value: Any) -> bytes:
    """Bytes that are equal exactly when type and content are; raises for what has no such bytes.

    Every value is written as a letter for its type, the length of what follows, and that.
    """
    match value:
        case None:
            return b"n"
        case bool():
            return b"t" if value else b"f"
        case int() | float() | str() | bytes() if type(value) in _PLAIN:
            tag, written = _PLAIN[type(value)]
            return _framed(tag, written(value))
        case tuple() | list() if type(value) in (tuple, list):
            return _framed(b"(" if type(value) is tuple else b"[", b"".join(map(canonical, value)))
        case set() | frozenset() if type(value) in (set, frozenset):
            return _framed(b"{", b"".join(sorted(map(canonical, value))))
        case dict() if type(value) is dict:
            # In their order: a function may well depend on it.
            return _framed(b"d", b"".join(canonical(k) + canonical(v) for k, v in value.items()))
    return _of_a_class(value)


def _of_a_class(value: Any) -> bytes:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_dataclass(value) and kind.__dataclass_params__.frozen and "<locals>" not in name:
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return _framed(b"c", canonical(name) + canonical(held))
    numpy = sys.modules.get("numpy")  # an array can only come from where it is loaded
    if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject:
        return _framed(b"a", canonical((value.dtype.str, value.shape)) + value.tobytes())
    raise _Nameless(f"a {kind.__qualname__} has no content to name it by")


def _framed(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack(">Q", len(content)) + content


_PLAIN: dict[type, tuple[bytes, Any]] = {
    int: (b"i", lambda value: str(value).encode()),
    float: (b"r", lambda value: struct.pack(">d", value)),
    str: (b"s", lambda value: value.encode("utf-8", "surrogatepass")),
    bytes: (b"b", bytes),
}
