"""Entries on disk, one or two files each, that any number of processes read and write at once.

An entry is written under a temporary name and renamed, so a name stands for a whole file or none. Nothing is
synced to disk: what a crash of the machine leaves behind is found out by its digest. A read verifies, and
what fails is removed and was never there. So a cache may lose, and cannot lie.

`KEY` is the general form; `KEY.0` is the standard output of a run that ended with 0 and printed nothing
else, with `KEY.d` beside it, so that a shell can check and print it. `KEY.u` is one byte long per use.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trisplit.cache.entry import LONGEST_HEADER, Entry, note, pack, read_plain, unpack
from trisplit.cache.key import Key, is_key
from trisplit.errors import RequestProblem
from trisplit.paths import cache_dir, unwritable

FOLDER = "results"
MAX_BYTES = 1 << 30
MAX_ENTRY_BYTES = 16 << 20
MOST_COUNTED_USES = 4096
STRAY_AFTER_S = 3600

_TEMPORARY = ".tmp."
_SUFFIXES = ("", ".0", ".d", ".u")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One entry as `list` shows it. `last_use_ns` is by the clock of the file system."""

    key: Key
    n_bytes: int
    uses: int
    last_use_ns: int


class Store:
    """A folder of entries. `open_store` makes one and checks whose it is."""

    def __init__(
        self, folder: Path, fd: int, *, max_bytes: int = MAX_BYTES, max_entry_bytes: int = MAX_ENTRY_BYTES
    ) -> None:
        self.folder = folder
        self.max_bytes, self.max_entry_bytes = max_bytes, max_entry_bytes
        self._fd = fd
        self._n_bytes: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the folder."""
        os.close(self._fd)

    def get(self, key: Key) -> Entry | None:
        """The entry, verified, and one more use counted; None when there is none that is whole."""
        entry = self.read(key)
        if entry is not None:
            self._count_use(key)
        return entry

    def read(self, key: Key) -> Entry | None:
        """As `get`, without counting. What is damaged is removed."""
        body, packed = self._bytes(f"{key}.0"), None
        if body is not None:
            entry = read_plain(key, body, self._bytes(f"{key}.d") or b"")
        else:
            packed = self._bytes(key)
            entry = None if packed is None else unpack(key, packed)
        if entry is None and (body is not None or packed is not None):
            self.remove(key)
        return entry

    def put(self, key: Key, entry: Entry) -> bool:
        """Keeps an entry; False when it is too large or the disk will not take it, which harms nobody.

        Others are evicted, the least used first, when the folder outgrows `max_bytes`.
        """
        if entry.n_bytes > min(self.max_entry_bytes, self.max_bytes):
            return False
        try:
            if entry.is_plain:
                self._write(f"{key}.d", note(key, entry))
                self._write(f"{key}.0", entry.output())
                self._unlink(key)
            else:
                self._write(key, pack(key, entry))
                self._unlink(f"{key}.0")
                self._unlink(f"{key}.d")
            self._make_room(entry.n_bytes)
        except OSError:
            return False
        return True

    def remove(self, key: Key) -> None:
        """Forgets an entry; the body goes first, so that no reader finds it without its digest."""
        for suffix in (".0", "", ".d", ".u"):
            self._unlink(f"{key}{suffix}")

    def entries(self) -> list[Kept]:
        """All there are, the least used first; of equally used ones the one that was used longest ago."""
        held: dict[str, dict[str, os.stat_result]] = {}
        for name in self._names():
            key, dot, suffix = name.partition(".")
            if is_key(key) and f"{dot}{suffix}" in _SUFFIXES and (facts := self._stat(name)) is not None:
                held.setdefault(key, {})[f"{dot}{suffix}"] = facts
        kept = [
            Kept(
                key=Key(key),
                n_bytes=sum(f.st_size for suffix, f in files.items() if suffix != ".u"),
                uses=files[".u"].st_size if ".u" in files else 0,
                last_use_ns=max(f.st_mtime_ns for f in files.values()),
            )
            for key, files in held.items()
            if "" in files or ".0" in files
        ]
        return sorted(kept, key=lambda one: (one.uses, one.last_use_ns, one.key))

    def prune(self, max_bytes: int) -> list[Key]:
        """Evicts the least used until the rest fits; what crashed writers left goes too."""
        self.sweep()
        entries = self.entries()
        n_bytes, gone = sum(one.n_bytes for one in entries), list[Key]()
        for one in entries:
            if n_bytes <= max_bytes:
                break
            self.remove(one.key)
            n_bytes -= one.n_bytes
            gone.append(one.key)
        self._n_bytes = n_bytes
        return gone

    def verify(self) -> tuple[int, list[Key]]:
        """How many entries are whole, and the keys of those that were not and are gone."""
        whole, gone = 0, list[Key]()
        for one in self.entries():
            if self.read(one.key) is not None:
                whole += 1
            else:
                gone.append(one.key)
        return whole, gone

    def clear(self) -> int:
        """Forgets all entries; returns how many there were."""
        entries = self.entries()
        for one in entries:
            self.remove(one.key)
        self.sweep()
        self._n_bytes = 0
        return len(entries)

    def walk(self) -> Iterator[tuple[Kept, Entry]]:
        """Each entry that is whole, the most used first."""
        for kept in reversed(self.entries()):
            entry = self.read(kept.key)
            if entry is not None:
                yield kept, entry

    def sweep(self) -> int:
        """Removes what belongs to no entry and no living writer can still be writing; returns how many.

        Ages are by the clock of the file system, whatever it says: one far ahead is as strange as one far
        behind. A writer whose file is swept all the same loses its entry, no more.
        """
        names = set(self._names())
        strays = [name for name in names if _is_stray(name, names)]
        swept = 0
        with contextlib.suppress(OSError):  # no clock to tell on a disk that is full
            now_s = self._now_s() if strays else 0.0
            for name in strays:
                facts = self._stat(name)
                if facts is not None and abs(now_s - facts.st_mtime) > STRAY_AFTER_S:
                    self._unlink(name)
                    swept += 1
        return swept

    # --- files ------------------------------------------------------------------------------------

    def _bytes(self, name: str) -> bytes | None:
        """A file of ours, whole; None for none, for somebody else's, and for what cannot be an entry."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._fd)
        except OSError:
            return None
        with contextlib.suppress(OSError), open(fd, "rb") as file:
            facts = os.fstat(file.fileno())
            ours = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid()
            if ours and facts.st_size <= self.max_entry_bytes + LONGEST_HEADER:
                return file.read()
        return None

    def _write(self, name: str, content: bytes) -> None:
        temporary = f"{_TEMPORARY}{os.getpid()}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with open(os.open(temporary, flags, 0o600, dir_fd=self._fd), "wb") as file:
                file.write(content)
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            self._unlink(temporary)
            raise

    def _count_use(self, key: Key) -> None:
        name = f"{key}.u"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            fd = os.open(name, flags, 0o600, dir_fd=self._fd)
            try:
                if os.fstat(fd).st_size < MOST_COUNTED_USES:
                    os.write(fd, b".")
                else:
                    os.utime(fd)
            finally:
                os.close(fd)

    def _make_room(self, n_bytes: int) -> None:
        """Looks at the whole folder only when what this store has put could have filled it."""
        self._n_bytes = None if self._n_bytes is None else self._n_bytes + n_bytes
        if self._n_bytes is None or self._n_bytes > self.max_bytes:
            self._n_bytes = sum(one.n_bytes for one in self.entries())
            if self._n_bytes > self.max_bytes:
                self.prune(self.max_bytes * 9 // 10)

    def _names(self) -> list[str]:
        # Through an opening of its own: listings of one share their place in it.
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._fd)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return None

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)

    def _now_s(self) -> float:
        """The time the file system would stamp on a file written now."""
        name = f"{_TEMPORARY}{os.getpid()}.{secrets.token_hex(8)}"
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._fd))
        try:
            return os.stat(name, dir_fd=self._fd).st_mtime
        finally:
            self._unlink(name)


def open_store(
    folder: Path | None = None, *, max_bytes: int = MAX_BYTES, max_entry_bytes: int = MAX_ENTRY_BYTES
) -> Store:
    """The store in `folder`, made if missing; by default `results` in the cache directory.

    RequestProblem when it cannot be made, or when others could have put something into it.
    """
    folder = cache_dir() / FOLDER if folder is None else folder
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise unwritable(folder, error) from error
    facts = os.fstat(fd)
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        os.close(fd)
        whose = "is another user's" if facts.st_uid != os.geteuid() else "is open to other users"
        raise RequestProblem(
            f"{folder} {whose}: results in it cannot be trusted",
            fix=f"remove it (rm -r {folder}), or name another directory in TRISPLIT_CACHE",
        )
    return Store(folder, fd, max_bytes=max_bytes, max_entry_bytes=max_entry_bytes)


def _is_stray(name: str, names: set[str]) -> bool:
    """Whether a file is a temporary one, or lies beside an entry that is not there."""
    key, _, suffix = name.partition(".")
    beside = is_key(key) and suffix in ("d", "u")
    return name.startswith(_TEMPORARY) or (beside and not {key, f"{key}.0"} & names)
