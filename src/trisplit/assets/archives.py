"""The files inside a wheel, a tarball or a Debian package, one after the other, as streams."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

# What reading a damaged archive raises; gzip's own kind is an OSError.
DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError)

Member = tuple[str, IO[bytes]]


def members(archive: Path, pattern: str) -> Iterator[Member]:
    """Each file of `archive` whose path fits the glob `pattern`, in the archive's order.

    Read a stream before asking for the next: nothing is unpacked to disk, and no path of the archive is
    ever written to. Raises one of DAMAGED, from here or from the stream, when the bytes are broken.
    """
    if archive.suffix == ".whl":
        yield from _zipped(archive, pattern)
    elif archive.suffix == ".deb":
        unpack = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        with (
            subprocess.Popen(unpack, stdout=subprocess.PIPE) as unpacking,
            tarfile.open(fileobj=unpacking.stdout, mode="r|") as tar,
        ):
            yield from _tarred(tar, pattern)
    else:
        with tarfile.open(archive, mode="r|gz") as tar:
            yield from _tarred(tar, pattern)


def _zipped(archive: Path, pattern: str) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as wheel:
        for info in wheel.infolist():
            if not info.is_dir() and fnmatchcase(info.filename, pattern):
                with wheel.open(info) as stream:
                    yield info.filename, stream


def _tarred(tar: tarfile.TarFile, pattern: str) -> Iterator[Member]:
    for info in tar:
        name = info.name.removeprefix("./")
        stream = tar.extractfile(info) if info.isfile() and fnmatchcase(name, pattern) else None
        if stream is not None:
            with stream:
                yield name, stream
