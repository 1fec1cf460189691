"""Reading bytes together with when the kernel received them, which is some time before a process wakes up."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import Final

_SO_TIMESTAMPNS: Final = 35  # of Linux, which stamps TCP on loopback, too; Python has no name for it
_TIMESPEC: Final = struct.Struct("@qq")


def stamp(sock: socket.socket) -> None:
    """Has the kernel stamp what this socket receives, if it can; `receive` goes by its own clock else."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive(sock: socket.socket, n_bytes: int) -> tuple[bytes, int]:
    """At most `n_bytes`, and when the last of them came, in ns of the clock on the wall (`time.time_ns`).

    Nothing at the end of the stream. Raises what `recv` raises.
    """
    chunk, stamps, _, _ = sock.recvmsg(n_bytes, socket.CMSG_SPACE(_TIMESPEC.size))
    if not stamps:
        return chunk, time.time_ns()
    seconds, ns = _TIMESPEC.unpack(stamps[0][2])
    return chunk, seconds * 10**9 + ns
