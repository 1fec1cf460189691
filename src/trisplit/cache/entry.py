"""What is kept of a run, and the bytes it is kept as. Pure: no files, no clock."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

STDOUT, STDERR = 1, 2

LONGEST_HEADER = 1 << 20

_MAGIC = b"trisplit result 1\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of output: which stream it went to, and its bytes."""

    fd: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a run left: exit code, and its output in order. What it cost is for the ledger alone.

    `surface` says what kind of work it was, `label` names it to people. An entry with `impure` set holds no
    result: it remembers why there is none.
    """

    frames: tuple[Frame, ...] = ()
    exit_code: int = 0
    surface: str = ""
    label: str = ""
    cpu_us: int = 0
    wall_us: int = 0
    impure: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether standard output alone says it all: exit code 0, nothing on another stream."""
        return self.exit_code == 0 and not self.impure and all(frame.fd == STDOUT for frame in self.frames)

    @property
    def n_bytes(self) -> int:
        """Bytes of output."""
        return sum(len(frame.data) for frame in self.frames)

    def output(self, fd: int = STDOUT) -> bytes:
        """All that went to one stream."""
        return b"".join(frame.data for frame in self.frames if frame.fd == fd)


class _Facts(msgspec.Struct, frozen=True):
    """What is written beside the bytes of an output."""

    surface: str
    label: str
    cpu_us: int
    wall_us: int


class _Header(msgspec.Struct, frozen=True):
    """The line before the bytes of an entry; `sha256` covers the header without it, and the bytes."""

    key: str
    exit_code: int
    frames: list[tuple[int, int]]
    length: int
    facts: _Facts
    impure: str
    sha256: str = ""


def pack(key: str, entry: Entry) -> bytes:
    """An entry as one file: magic, header, output."""
    body = b"".join(frame.data for frame in entry.frames)
    header = _Header(
        key=key,
        exit_code=entry.exit_code,
        frames=[(frame.fd, len(frame.data)) for frame in entry.frames],
        length=len(body),
        facts=_facts(entry),
        impure=entry.impure,
    )
    signed = msgspec.structs.replace(header, sha256=_digest(header, body))
    return _MAGIC + msgspec.json.encode(signed) + b"\n" + body


def unpack(key: str, packed: bytes) -> Entry | None:
    """The entry in a file's bytes; None unless it is whole and of this key."""
    end = packed.find(b"\n", len(_MAGIC), len(_MAGIC) + LONGEST_HEADER)
    if not packed.startswith(_MAGIC) or end < 0:
        return None
    try:
        header = msgspec.json.decode(packed[len(_MAGIC) : end], type=_Header)
    except msgspec.DecodeError:
        return None
    body = packed[end + 1 :]
    unsigned = msgspec.structs.replace(header, sha256="")
    if header.key != key or header.length != len(body) or header.sha256 != _digest(unsigned, body):
        return None
    frames, at = [], 0
    for fd, n in header.frames:
        frames.append(Frame(fd, body[at : at + n]))
        at += n
    return Entry(
        frames=tuple(frames), exit_code=header.exit_code, impure=header.impure, **_as_dict(header.facts)
    )


def note(key: str, entry: Entry) -> bytes:
    """What lies beside a plain entry's output: its digest, as sha256sum writes it, and then the facts."""
    digest = hashlib.sha256(entry.output()).hexdigest()
    return f"{digest}  {key}.0\n".encode() + msgspec.json.encode(_facts(entry)) + b"\n"


def read_plain(key: str, body: bytes, beside: bytes) -> Entry | None:
    """A plain entry of its two files; None unless they belong together."""
    first, _, second = beside.partition(b"\n")
    if first != f"{hashlib.sha256(body).hexdigest()}  {key}.0".encode():
        return None
    try:
        facts = msgspec.json.decode(second, type=_Facts)
    except msgspec.DecodeError:
        return None
    return Entry(frames=(Frame(STDOUT, body),) if body else (), **_as_dict(facts))


def _digest(unsigned: _Header, body: bytes) -> str:
    return hashlib.sha256(msgspec.json.encode(unsigned) + b"\n" + body).hexdigest()


def _facts(entry: Entry) -> _Facts:
    return _Facts(entry.surface, entry.label, entry.cpu_us, entry.wall_us)


def _as_dict(facts: _Facts) -> dict[str, Any]:
    return msgspec.structs.asdict(facts)
