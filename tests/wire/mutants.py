"""Damaged frames: what a broken or hostile peer, or one of another version, could send in place of ours."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from trisplit.wire.batch import Batcher
from trisplit.wire.frame import CONTROL

HEADER_BYTES, BOTH_BYTES = 10, 27
# Where the numbers of the two headers begin, and how long they are (docs/wire.md).
NUMBERS = ((0, 4), (4, 4), (8, 1), (9, 1), (10, 4), (14, 4), (18, 2), (20, 2), (22, 1), (23, 4))
WEIRD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**16, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, -(2**63)),
    *(0.5, 1e308, float("nan"), float("inf"), "", "x" * 300, "\0", "x" * 3000, b"", b"\xff" * 40),
    *([], {}, [[]], [None] * 50, {"a": 1}, [2**32 - 1] * 20),
)


class Mutator:
    """Makes mutants of frames, the same ones for the same seed; `corpus` is what they are crossed with."""

    def __init__(self, seed: int, corpus: Sequence[bytes]) -> None:
        self.random = random.Random(seed)
        self._corpus = corpus
        self._ways: tuple[Callable[[bytes], bytes], ...] = (
            *(self._flip, self._poke, self._cut, self._grow, self._lose, self._stutter, self._cross),
            *(self._number, self._number, self._field, self._field, self._stranger, self._batch),
        )

    def mutant(self, frame: bytes) -> bytes:
        """The frame, damaged in one or two ways; now and then it is still sound."""
        for _ in range(self.random.choice((1, 1, 1, 2))):
            frame = self.random.choice(self._ways)(frame)
        return frame

    def _at(self, data: bytes) -> int:
        return self.random.randrange(len(data)) if data else 0

    def _flip(self, data: bytes) -> bytes:
        damaged = bytearray(data or b"\0")
        for _ in range(self.random.randint(1, 3)):
            damaged[self._at(damaged)] ^= 1 << self.random.randrange(8)
        return bytes(damaged)

    def _poke(self, data: bytes) -> bytes:
        damaged = bytearray(data or b"\0")
        damaged[self._at(damaged)] = self.random.choice((0, 1, 0x7F, 0x80, 0xC1, 0xDF, 0xFF))
        return bytes(damaged)

    def _cut(self, data: bytes) -> bytes:
        return data[: self._at(data)]

    def _grow(self, data: bytes) -> bytes:
        return data + self.random.randbytes(self.random.randint(1, 9))

    def _lose(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + data[at + self.random.randint(1, 8) :]

    def _stutter(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + data[at : at + self.random.randint(1, 32)] * 2 + data[at:]

    def _cross(self, data: bytes) -> bytes:
        other = self.random.choice(self._corpus)
        return data[: self._at(data)] + other[self._at(other) :]

    def _number(self, data: bytes) -> bytes:
        """A number of a header at one of its ends."""
        damaged = bytearray(data.ljust(BOTH_BYTES, b"\0"))
        at, n_bytes = self.random.choice(NUMBERS)
        most = 256**n_bytes - 1
        value = self.random.choice((0, 1, 2, 3, 4, most // 2, most // 2 + 1, most - 1, most))
        damaged[at : at + n_bytes] = value.to_bytes(n_bytes)
        return bytes(damaged)

    def _field(self, data: bytes) -> bytes:
        """A message with one value replaced, lost or added; an activation with other numbers."""
        if len(data) <= HEADER_BYTES or data[8] != CONTROL:
            n = max(0, len(data) - BOTH_BYTES) // 4
            weird = [self.random.choice((0.0, -1.0, 1e38, float("nan"), float("inf"))) for _ in range(n)]
            return data[:BOTH_BYTES] + struct.pack(f"<{n}f", *weird)
        try:
            message = msgspec.msgpack.decode(data[HEADER_BYTES:])
        except msgspec.DecodeError:
            return data
        return data[:HEADER_BYTES] + msgspec.msgpack.encode(self._weird(message))

    def _weird(self, value: Any) -> Any:
        """The value with something inside it replaced."""
        if isinstance(value, dict) and value:
            key = self.random.choice(list(value))
            lost = {k: v for k, v in value.items() if k != key}
            changed = self.random.choice((self._weird(value[key]), self.random.choice(WEIRD)))
            return self.random.choice(
                (value | {key: changed}, value | {key: changed}, lost, value | {"more": 1})
            )
        if isinstance(value, list) and value and self.random.random() < 0.8:
            at = self.random.randrange(len(value))
            return [*value[:at], self._weird(value[at]), *value[at + 1 :]]
        return self.random.choice(WEIRD)

    def _stranger(self, data: bytes) -> bytes:
        """Another frame in its place, at the right number."""
        other = self.random.choice(self._corpus)
        return other[:4] + data[4:8] + other[8:]

    def _batch(self, data: bytes) -> bytes:
        """Beside others in one message, which may be damaged in turn."""
        batcher = Batcher()
        messages = [m for _ in range(self.random.randint(2, 5)) for m in batcher.add(data)] + batcher.flush()
        return self.random.choice((lambda m: m, self._flip, self._poke, self._cut, self._grow))(messages[0])
