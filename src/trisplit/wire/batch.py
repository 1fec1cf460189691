"""Batches: frames that leave together as one message, each behind its length."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from trisplit.errors import PeerProblem
from trisplit.wire.frame import SAME_VERSION, is_whole

MOST_FRAMES: Final = 16
MOST_BYTES: Final = 64 * 2**10  # of a batch, with its header and lengths

_BATCH: Final = 4  # where a frame has its kind, which is never this
_KIND_AT: Final = 8
_HEADER: Final = struct.Struct("!IIBB")  # as long as a frame's: 0, the number of frames, _BATCH, 0
_LENGTH: Final = struct.Struct("!I")


class Batcher:
    """Frames that wait to leave together; whatever is added leaves in the order it came in."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._n_bytes = _HEADER.size

    def add(self, payload: bytes) -> list[bytes]:
        """Lets a frame wait; the messages that are due by that, in order.

        What waited is due when the frame would not fit beside it, all is when the batch is full. A payload
        that is not exactly one frame, or is too long to share a message, is a message of its own.
        """
        n_bytes = _LENGTH.size + len(payload)
        if _HEADER.size + n_bytes > MOST_BYTES or not is_whole(payload):
            return [*self.flush(), payload]
        due = self.flush() if self._n_bytes + n_bytes > MOST_BYTES else []
        self._waiting.append(payload)
        self._n_bytes += n_bytes
        return self.flush() if len(self._waiting) == MOST_FRAMES else due

    def flush(self) -> list[bytes]:
        """All that waits, as the one message it leaves as: a single frame stays a plain frame."""
        if not self._waiting:
            return []
        waited, self._waiting, self._n_bytes = self._waiting, [], _HEADER.size
        return waited if len(waited) == 1 else [_joined(waited)]


def _joined(frames: Sequence[bytes]) -> bytes:
    parts = [_HEADER.pack(0, len(frames), _BATCH, 0)]
    for frame in frames:
        parts += _LENGTH.pack(len(frame)), frame
    return b"".join(parts)


def split(message: bytes | memoryview) -> Sequence[bytes | memoryview]:
    """The frames of a message, in order, as views of it: the message itself where it is no batch.

    `PeerProblem` for a batch that no Batcher makes. What the frames say is for whoever reads them to check.
    """
    if len(message) <= _KIND_AT or message[_KIND_AT] != _BATCH:
        return (message,)
    n_bytes = len(message)
    if not _HEADER.size <= n_bytes <= MOST_BYTES:
        raise _nonsense(f"of {n_bytes:,} bytes, where {_HEADER.size} to {MOST_BYTES:,} may be")
    zero, count, _, flags = _HEADER.unpack_from(message)
    if zero or flags or not 1 < count <= MOST_FRAMES:
        raise _nonsense(f"with stream {zero} and flags {flags} for {count:,} frames")
    view, at = memoryview(message), _HEADER.size
    frames = []
    while at + _LENGTH.size <= n_bytes:
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(view, at)[0]
        frames.append(view[begin:at])
    if at != n_bytes or len(frames) != count or not all(map(is_whole, frames)):
        raise _nonsense(f"whose {count} frames are not all of its {n_bytes:,} bytes")
    return frames


def _nonsense(what: str) -> PeerProblem:
    return PeerProblem(f"a batch {what}", fix=SAME_VERSION)
