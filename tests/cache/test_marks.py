"""Digests that are made once: of files that do not change, and only as long as they do not."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trisplit.cache import marks
from trisplit.cache.marks import digest_once, mark_of
from trisplit.cache.store import Store, open_store


class Digest:
    """Reads the files anew each time, and counts how often."""

    def __init__(self, *paths: Path) -> None:
        self.paths, self.made = paths, 0

    def __call__(self) -> str:
        self.made += 1
        return hashlib.sha256(b"".join(path.read_bytes() for path in self.paths)).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setattr(marks, "SETTLED_AFTER_S", -1.0)  # as if both had been left alone for long
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"weights of " + name.encode())
    return tmp_path / "a", tmp_path / "b"


def test_what_does_not_change_is_read_once(store: Store, files: tuple[Path, Path]) -> None:
    digest = Digest(*files)
    first = [digest_once(store, files, "facts", digest) for _ in range(3)]
    assert first == [digest()] * 3
    assert digest.made == 2
    digest_once(store, files, "other facts", digest)
    digest_once(store, files[:1], "facts", digest)
    assert digest.made == 4


@pytest.mark.parametrize("how", ["written", "replaced", "one byte", "renamed over", "times set back"])
def test_what_changed_in_any_way_is_read_again(how: str, store: Store, files: tuple[Path, Path]) -> None:
    digest, path = Digest(*files), files[1]
    before, was = digest_once(store, files, (), digest), path.stat()
    time.sleep(0.01)  # file systems count time in ticks
    if how == "written":
        path.write_bytes(b"other words")
    elif how == "one byte":
        with path.open("r+b") as file:
            file.write(b"W")
    elif how == "replaced":
        path.unlink()
        path.write_bytes(b"Weights of b")
    else:
        (path.parent / "new").write_bytes(b"Weights of b")
        (path.parent / "new").rename(path)
    if how == "times set back":
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    assert digest_once(store, files, (), digest) != before


def test_what_changes_while_it_is_read_or_lately_is_not_kept(
    store: Store, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing() -> str:
        files[0].write_bytes(b"while it is read")
        return "of what was there before, or not"

    digest_once(store, files, (), changing)
    assert not store.entries()
    monkeypatch.setattr(marks, "SETTLED_AFTER_S", 120.0)
    assert mark_of(files[0], time.time()) is None
    assert mark_of(files[0], time.time() + 121) is not None
    digest = Digest(*files)
    for _ in range(2):
        digest_once(store, files, (), digest)
    assert digest.made == 2
    os.utime(files[0], (time.time() + 9e5,) * 2)
    assert mark_of(files[0], time.time() + 300) is None  # clocks that were wrong prove nothing
    assert digest_once(store, (), (), lambda: "of nothing") == "of nothing"
    assert mark_of(files[0].parent / "none", time.time()) is None
