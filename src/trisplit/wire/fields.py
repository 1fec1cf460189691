"""The kinds of fields that messages are made of, and what a message is."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MAX_TEXT: Final = 2000
MAX_PIECE: Final = 2**20  # bytes of a file in one message
MOST_FILES: Final = 2  # of a stage: a head that is the embedding has its own norm and the embedding's file
MOST_DRAFTED: Final = 64  # ids in one message

U16 = Annotated[int, msgspec.Meta(ge=0, lt=2**16)]
U32 = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
U64 = Annotated[int, msgspec.Meta(ge=0)]  # msgpack has no wider integer
Stream = Annotated[int, msgspec.Meta(ge=1, lt=2**32)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**32)]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Response = Annotated[bytes, msgspec.Meta(min_length=3, max_length=3)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0)]
Bytes32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """A control message; the class name travels as the field `type`."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece inside a message."""
