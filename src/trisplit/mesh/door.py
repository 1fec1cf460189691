"""How strangers come in: how many at a time, and how much each may say before we know who it is."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any, Final

from trisplit.mesh.link import Link

MAX_STRANGERS: Final = 64
MAX_GREETING_BYTES: Final = 16 * 2**10  # a Hello and a Proof are 2 KiB at most


@dataclass(slots=True)
class Tally:
    """Callers that were not let in, and peers whose link was ended because they broke the rules."""

    refused: int = 0


class Door(socket.socket):
    """A listening socket that accepts only so many callers who have not been greeted yet.

    Whoever comes when `MAX_STRANGERS` are inside is hung up on at once: before TLS, before a buffer.
    """

    def __init__(self, family: int, kind: int, proto: int, tally: Tally) -> None:
        super().__init__(family, kind, proto)
        self._tally = tally
        self._strangers: dict[int, socket.socket] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """As any socket's; asyncio takes ConnectionAbortedError as a caller that has left already."""
        caller, address = super().accept()
        for fd in [fd for fd, one in self._strangers.items() if one.fileno() != fd]:
            del self._strangers[fd]
        if len(self._strangers) >= MAX_STRANGERS:
            self._tally.refused += 1
            caller.close()
            raise ConnectionAbortedError
        self._strangers[caller.fileno()] = caller
        return caller, address

    def knows(self, link: Link) -> None:
        """This caller is a stranger no more."""
        self._strangers.pop(link.transport.get_extra_info("socket").fileno(), None)


class Porch(asyncio.BufferedProtocol):
    """Stands between a socket and its WebSocket until the caller is greeted, and counts what it says.

    picows takes a frame as large as the largest of the whole link, from anybody. A stranger that says
    more than a greeting takes is refused before it is kept.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._transport = link.transport
        self._inside: Any = self._transport.get_protocol()
        self._left_bytes = MAX_GREETING_BYTES
        self._transport.set_protocol(self)

    def let_in(self) -> None:
        """From here on the socket speaks with its WebSocket directly."""
        if not self._transport.is_closing():
            self._transport.set_protocol(self._inside)

    def buffer_updated(self, n_bytes: int) -> None:
        self._left_bytes -= n_bytes
        if self._left_bytes >= 0:
            self._inside.buffer_updated(n_bytes)
        else:
            self._link.accuse(f"a greeting of more than {MAX_GREETING_BYTES:,} bytes")

    def get_buffer(self, size_hint: int) -> Any:
        return self._inside.get_buffer(size_hint)

    def eof_received(self) -> Any:
        return self._inside.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._inside.connection_lost(error)

    def pause_writing(self) -> None:
        self._inside.pause_writing()

    def resume_writing(self) -> None:
        self._inside.resume_writing()
