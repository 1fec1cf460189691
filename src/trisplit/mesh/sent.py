"""What a station has sent of a stream to one group, so that it can be said again when that group is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Final

import msgspec

from trisplit.wire.frame import Activation
from trisplit.wire.losses import Begun

IN_MEMORY_BYTES: Final = 256 * 1024  # of each log; what is beyond lies in a temporary file


@dataclass(frozen=True, slots=True)
class _Entry:
    """A frame without its payload, and where that lies."""

    bare: Activation
    offset: int
    n_bytes: int


class Sent:
    """Frames in the order they went out, a prompt in its chunks and tokens one by one.

    A rewind forgets those that began where it begins or later. An earlier one stays whole, for its first
    rows are still meant: played again in order, frames overwrite what they overwrote.
    """

    def __init__(self) -> None:
        # Closed with the log: whoever drops the last reference drops the file, which has no name.
        self._file = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115
        self._entries: list[_Entry] = []

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self._entries[-1].bare.position + self._entries[-1].bare.rows if self._entries else 0

    def add(self, said: Activation) -> None:
        """Keeps a frame; its payload is copied."""
        while self._entries and self._entries[-1].bare.position >= said.position:
            self._entries.pop()
        last = self._entries[-1] if self._entries else None
        offset = last.offset + last.n_bytes if last else 0
        self._file.seek(offset)
        n_bytes = self._file.write(bytes(said.payload))
        self._entries.append(_Entry(msgspec.structs.replace(said, payload=b""), offset, n_bytes))

    def again(self, epoch: int, since: int, epochs: Sequence[Begun] = ()) -> Iterator[Activation]:
        """The frames that begin at `since` or later, as frames of this epoch.

        A rewind may not have come here yet: `epochs` tell where each began, and what it has made void.
        """
        for entry in self._entries:
            later = [begun.position for begun in epochs if begun.epoch > entry.bare.epoch]
            if since <= entry.bare.position < min(later, default=entry.bare.position + 1):
                self._file.seek(entry.offset)
                payload = self._file.read(entry.n_bytes)
                yield msgspec.structs.replace(entry.bare, payload=payload, epoch=epoch)

    def close(self) -> None:
        """Gives back the memory and the file."""
        self._file.close()
