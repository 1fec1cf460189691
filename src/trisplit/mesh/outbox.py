"""What a link sends: every frame at once, or those of one turn of the event loop together."""

from __future__ import annotations

import asyncio
from typing import Final

from picows import WSMsgType, WSTransport

from trisplit.wire.batch import Batcher

_BINARY: Final = WSMsgType.BINARY


class Outbox:
    """Frames on their way into a WebSocket, always in the order they were put in."""

    def __init__(self, transport: WSTransport) -> None:
        self._transport = transport
        self._batcher = Batcher()
        self._turn: asyncio.Handle | None = None  # the end of it

    def put(self, frame: bytes, *, wait: bool) -> None:
        """Sends it; with `wait` beside what else is put in this turn of the event loop, at its end."""
        if not wait:
            self.flush()
            self._transport.send(_BINARY, frame)
            return
        for message in self._batcher.add(frame):
            self._transport.send(_BINARY, message)
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Sends what waits, now."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for message in self._batcher.flush():
            self._transport.send(_BINARY, message)
