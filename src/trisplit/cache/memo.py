"""`@memo`: a pure function of ours is run once per code, arguments and machine."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import msgspec

from trisplit.cache.code import code_of, machine
from trisplit.cache.entry import STDOUT, Entry, Frame
from trisplit.cache.key import Impure, Key, key_of
from trisplit.cache.recall import Stopwatch, put_down, recall, remember
from trisplit.cache.store import Store, open_store
from trisplit.errors import RequestProblem

P = ParamSpec("P")
R = TypeVar("R")

SURFACE = "memo"


def memo(function: Callable[P, R]) -> Callable[P, R]:
    """The function, answered from the store where code, arguments, libraries and machine are the same.

    It must be pure: the same result from the same arguments, nothing read besides, arguments left as they
    are. What is checked: it is no closure, and says what it returns; a result that would not come back from
    the store as it went in is not kept; nor is one whose code changed on disk since. Code is every source
    file of the function's package. Arguments without content (`key_of`) make a call run every time.
    """
    if function.__closure__ or "<locals>" in function.__qualname__:
        raise TypeError(f"{function.__qualname__} is a closure: what it holds has no name")
    if "return" not in function.__annotations__:
        raise TypeError(f"{function.__qualname__} does not say what it returns")
    signature = inspect.signature(function)
    code = code_of(function.__module__)

    @functools.wraps(function)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            store = open_store()
        except RequestProblem:  # no store is no reason to fail
            return function(*args, **kwargs)
        with store:
            return _answered(store, function, code, bound)

    return remembered


def _answered(store: Store, function: Callable[..., R], code: str, bound: inspect.BoundArguments) -> R:
    watch = Stopwatch()
    label = f"{function.__module__}.{function.__qualname__}"
    key = _key(function, label, code, bound)
    returns = typing.get_type_hints(function)["return"]
    if not isinstance(key, Impure) and (entry := recall(store, key, watch)) is not None:
        value: R = _decoded(entry.output(), returns)
        return value
    value = function(*bound.args, **bound.kwargs)
    entry = Entry(surface=SURFACE, label=label, cpu_us=watch.cpu_us, wall_us=watch.wall_us)
    packed = _encoded(value, returns)
    if isinstance(key, Impure) or packed is None or code != code_of(function.__module__):
        put_down(store, entry)
    else:
        remember(store, key, replace(entry, frames=(Frame(STDOUT, packed),)))
    return value


def _key(function: Callable[..., Any], label: str, code: str, bound: inspect.BoundArguments) -> Key | Impure:
    if not code:
        return Impure("the function has no source to name it by")
    which = (label, function.__code__.co_firstlineno)
    return key_of(SURFACE, function=which, code=code, machine=machine(), arguments=dict(bound.arguments))


def _encoded(value: Any, returns: Any) -> bytes | None:
    """The value as bytes that decode to its equal, or None."""
    try:
        packed = msgspec.msgpack.encode(value, enc_hook=_array_to_parts)
        again = key_of(SURFACE, value=_decoded(packed, returns))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return None
    same = key_of(SURFACE, value=value)
    return packed if same == again and not isinstance(same, Impure) else None


def _decoded(packed: bytes, returns: Any) -> Any:
    return msgspec.msgpack.decode(packed, type=returns, dec_hook=_array_of_parts)


def _array_to_parts(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.dtype.hasobject:
        raise TypeError(type(value).__name__)
    return value.dtype.str, value.shape, value.tobytes()


def _array_of_parts(kind: type, parts: Any) -> Any:
    import numpy

    if typing.get_origin(kind) is not numpy.ndarray and kind is not numpy.ndarray:
        raise TypeError(kind.__name__)
    dtype, shape, content = parts
    return numpy.ndarray(tuple(shape), dtype=dtype, buffer=bytearray(content))
