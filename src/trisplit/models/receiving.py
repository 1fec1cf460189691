"""A file on its way to the shelf: written in order, resumed after a cut, put there if its digest is right."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import threading
from io import FileIO
from pathlib import Path
from typing import Final

from trisplit.errors import RequestProblem
from trisplit.models.shelf import file_of, shelf, sweep
from trisplit.paths import unwritable
from trisplit.table import size

_CHUNK_BYTES: Final = 1 << 20


class Receiving:
    """One file as it comes; `length` of its `n_bytes` are here already when an earlier try was cut off.

    Of processes that receive the same file at once one goes on with what is there, the others begin files of
    their own. To be closed always: what has come until then is kept for the next try, which checks all of it.
    RequestProblem, here and from `write` and `finish`, when the disk cannot take it.
    """

    def __init__(self, digest: str, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._digest, self._folder = digest, shelf()
        self._lock = threading.Lock()  # a thread may still write when its task is given up and closes
        sweep(self._folder)
        try:
            self._path, self._file = _claim(self._folder, digest)
        except OSError as error:
            raise unwritable(self._folder, error) from error
        try:
            self._take_up()
            self._refuse_if_short()
        except OSError as error:
            self.close()
            raise unwritable(self._folder, error) from error
        except RequestProblem:
            self.close()
            raise

    def _take_up(self) -> None:
        """Goes over what is there, as if it came just now."""
        self._begin()
        if self._path.stat().st_size > self.n_bytes:
            self._file.truncate(0)
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK_BYTES):
            self._hash.update(chunk)
            self.length += len(chunk)
        self.resumed = self.length > 0

    def _begin(self) -> None:
        self._hash, self.length, self.resumed = hashlib.sha256(), 0, False

    def _refuse_if_short(self) -> None:
        due, free = self.n_bytes - self.length, shutil.disk_usage(self._folder).free
        if due > free:
            what = f"{size(due)} of weights are to come and the disk of {self._folder} has {size(free)} free"
            fix = "make room there, or name another directory in TRISPLIT_CACHE"
            raise RequestProblem(f"{what}: {size(due - free)} short", fix=fix)

    def write(self, data: bytes) -> None:
        """Appends what has come; a disk that cannot take it is freed of all of it."""
        left = memoryview(data)
        with self._lock:
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError as error:
                self._discard()
                raise unwritable(self._folder, error) from error
            self._hash.update(data)
            self.length += len(data)

    def finish(self) -> bool:
        """Puts the file on the shelf; False, and nothing of it is left, when it is not what was promised."""
        with self._lock:
            try:
                if self._hash.hexdigest() != self._digest:
                    self._file.truncate(0)
                    self._begin()
                    return False
                os.fsync(self._file.fileno())
                self._path.replace(self._folder / file_of(self._digest))
            except OSError as error:
                raise unwritable(self._folder, error) from error
        return True

    def close(self) -> None:
        """Lets go of it; safe to call again."""
        with self._lock:
            if not self._file.closed and (self._path.name.startswith(".") or not self.length):
                self._discard()
            self._file.close()

    def _discard(self) -> None:
        """Removes what was written, unless that is on the shelf or gone, and the name another's by now."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                self._path.unlink()


def _claim(folder: Path, digest: str) -> tuple[Path, FileIO]:
    """The file to append to: the one that was cut off, locked, or one of our own while another has that."""
    shared = folder / f"{digest}.part"
    file = FileIO(shared, "a+")
    if _is_ours_alone(file, shared):
        return shared, file
    file.close()
    own = folder / f".{digest}.{os.getpid()}.{secrets.token_hex(8)}"
    return own, FileIO(own, "a+")


def _is_ours_alone(file: FileIO, path: Path) -> bool:
    """Locks it; False when another has, or has taken it away meanwhile, or files cannot be locked here."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
