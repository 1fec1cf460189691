"""Words between a resident and who asks it, over a socket in the store that only its owner can reach."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from trisplit.cache.entry import Frame
from trisplit.cache.store import Store
from trisplit.errors import RequestProblem
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import Answer
from trisplit.scripts.script import Script

SOCKET, LOCK = "resident", "resident.lock"
MOST_BYTES = 64 << 20
ANSWER_WITHIN_S = 60.0

_LENGTH = struct.Struct(">I")


class Greeting(msgspec.Struct, frozen=True, array_like=True, tag="greeting"):
    """What holds for all that is asked over a connection: whose runs these would be."""

    folder: str
    command: str
    environment: dict[str, str]
    limits: tuple[str, ...] = ()
    stdout_is_terminal: bool = False
    stderr_is_terminal: bool = False


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A script, by its path, and its arguments; `hits_only`: it is not to be tried where nothing is kept."""

    path: str
    arguments: tuple[str, ...] = ()
    hits_only: bool = False


class Order(msgspec.Struct, frozen=True, array_like=True, tag="order"):
    """`status` or `stop`."""

    what: str


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """`frames` is None where the script has to be run by who asked; `said` says why."""

    said: str
    exit_code: int = 0
    frames: list[tuple[int, bytes]] | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A resident about itself."""

    pid: int
    began_s: int
    hits: int
    misses: int
    left_to_others: int
    verified: int
    mismatches: int
    waiting_nodes: int


Asked = Greeting | Ask | Order

_encode = msgspec.msgpack.Encoder().encode
_decode_reply = msgspec.msgpack.Decoder(Reply).decode


class Line:
    """One connection: messages in their length and themselves. ConnectionError when the other end is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: msgspec.Struct) -> None:
        """Sends all of it."""
        packed = _encode(message)
        self._connection.sendall(_LENGTH.pack(len(packed)) + packed)

    def receive(self) -> bytes:
        """The next message's bytes."""
        (n,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if n > MOST_BYTES:
            raise ConnectionError("a message that is too long")
        return self._exactly(n)

    def close(self) -> None:
        """Ends the connection, also for a thread that waits on it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _exactly(self, n: int) -> bytes:
        pieces = self._connection.recv(n)
        while len(pieces) < n:
            piece = self._connection.recv(n - len(pieces))
            if not piece:
                raise ConnectionError("the other end is gone")
            pieces += piece
        return pieces


class Resident:
    """A resident that answers, as who asks sees it. `find_resident` makes one."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def greet(self, command: str, around: Surroundings, folder: Path) -> None:
        """Says for whom it is asked from now on."""
        self._line.send(
            Greeting(
                folder=str(folder),
                command=command,
                environment=dict(around.environment),
                limits=around.limits,
                stdout_is_terminal=around.stdout_is_terminal,
                stderr_is_terminal=around.stderr_is_terminal,
            )
        )

    def ask(self, path: str, arguments: Sequence[str] = (), *, hits_only: bool = False) -> Answer | None:
        """What the script at an absolute path printed or prints; None where it must be run by ourselves."""
        self._line.send(Ask(path, tuple(arguments), hits_only))
        reply = _decode_reply(self._line.receive())
        if reply.frames is None:
            return None
        frames = tuple(Frame(fd, data) for fd, data in reply.frames)
        return Answer(exit_code=reply.exit_code, frames=frames, said=reply.said)

    def status(self) -> Status:
        """What it says about itself."""
        self._line.send(Order("status"))
        return msgspec.msgpack.decode(self._line.receive(), type=Status)

    def stop(self) -> None:
        """Has it end; returns when it hears no more."""
        with contextlib.suppress(OSError):
            self._line.send(Order("stop"))
            self._line.receive()


def find_resident(store: Store) -> Resident | None:
    """The resident of this store, if one answers and is ours."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ANSWER_WITHIN_S)
    try:
        with place_in(store, SOCKET) as address:
            connection.connect(address)
        if is_ours(connection):
            return Resident(Line(connection))
    except OSError:
        pass
    connection.close()
    return None


def asked(
    resident: Resident, script: Script, arguments: Sequence[str], command: str, around: Surroundings
) -> Answer | None:
    """One question over a connection of its own; a resident that fails is as good as none."""
    with resident:
        try:
            resident.greet(command, around, Path.cwd())
            return resident.ask(os.path.abspath(script.named), arguments)
        except (OSError, msgspec.DecodeError, UnicodeEncodeError):
            return None


@contextlib.contextmanager
def place_in(store: Store, name: str) -> Iterator[str]:
    """The address of a socket in the store's folder, short enough for one however long the folder's is."""
    path = str(store.folder / name)
    if len(os.fsencode(path)) < 100:
        yield path
        return
    fd = os.open(store.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            raise RequestProblem(
                f"{path} is too long a name for a socket", fix="name a shorter directory in TRISPLIT_CACHE"
            )
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def is_ours(connection: socket.socket) -> bool:
    """Whether a process of our own user is at the other end; where that cannot be told the folder vouches."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.geteuid())
