"""Values of GGUF keys with the types that files have them in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gguf import GGUFValueType, GGUFWriter

_SCALARS: Final = {
    bool: GGUFValueType.BOOL,
    int: GGUFValueType.UINT32,
    float: GGUFValueType.FLOAT32,
    str: GGUFValueType.STRING,
}
# Numbers in arrays are signed, as llama.cpp's converter writes them.
_ITEMS: Final = {**_SCALARS, int: GGUFValueType.INT32}


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its type; of an array also that of its items. Texts are str, or bytes as they came."""

    value: Any
    type: GGUFValueType
    of: GGUFValueType | None = None


def typed(values: Mapping[str, Any]) -> dict[str, Value]:
    """Bools, whole numbers, floats, texts and lists of them, in the types that llama.cpp's converter uses."""
    return dict(_typed(values))


def _typed(values: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in values.items():
        if isinstance(value, list):
            yield name, Value(value, GGUFValueType.ARRAY, _ITEMS[type(value[0])])
        else:
            yield name, Value(value, _SCALARS[type(value)])


def add_values(writer: GGUFWriter, values: Mapping[str, Value]) -> None:
    """Hands the values to a writer; empty arrays have no place in a GGUF of its making and are left out."""
    for name, value in values.items():
        if value.of is None or len(value.value):
            writer.add_key_value(name, value.value, value.type, value.of)
