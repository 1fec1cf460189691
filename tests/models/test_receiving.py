"""A file as it comes: right or not at all, resumed after a cut, one at a time, and refused by a full disk."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from trisplit.errors import RequestProblem
from trisplit.models import receiving
from trisplit.models.receiving import Receiving
from trisplit.models.shelf import file_of, shelf

CONTENT = os.urandom(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    return shelf()


def begin(n_bytes: int = len(CONTENT)) -> closing[Receiving]:
    return closing(Receiving(DIGEST, n_bytes))


def cut_off_after(n_bytes: int, content: bytes = CONTENT) -> None:
    with begin() as coming:
        coming.write(content[:n_bytes])


def pieces(start: int = 0) -> Iterator[bytes]:
    return (CONTENT[at : at + 70_000] for at in range(start, len(CONTENT), 70_000))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_has_come_whole_is_put_under_its_digest(folder: Path) -> None:
    with begin() as coming:
        assert (coming.length, coming.resumed) == (0, False)
        for piece in pieces():
            coming.write(piece)
            assert names(folder) == [f"{DIGEST}.part"]
        assert coming.finish()
    assert names(folder) == [file_of(DIGEST)]
    assert (folder / file_of(DIGEST)).read_bytes() == CONTENT


@pytest.mark.parametrize("cut", [1, 70_000, len(CONTENT) - 1, len(CONTENT)])
def test_what_was_cut_off_goes_on(cut: int, folder: Path) -> None:
    cut_off_after(cut)
    assert names(folder) == [f"{DIGEST}.part"]
    with begin() as coming:
        assert (coming.length, coming.resumed) == (cut, True)
        for piece in pieces(cut):
            coming.write(piece)
        assert coming.finish()
    assert (folder / file_of(DIGEST)).read_bytes() == CONTENT


def test_a_beginning_that_was_wrong_is_discarded(folder: Path) -> None:
    cut_off_after(1000, b"\0" * 1000)
    with begin() as coming:
        coming.write(CONTENT[1000:])
        assert not coming.finish()
        assert (coming.length, coming.resumed) == (0, False)
        coming.write(CONTENT)
        assert coming.finish()
    assert (folder / file_of(DIGEST)).read_bytes() == CONTENT


def test_more_than_was_promised_is_discarded(folder: Path) -> None:
    cut_off_after(2000)
    with begin(n_bytes=1999) as coming:
        assert (coming.length, coming.resumed) == (0, False)
    assert names(folder) == []


def test_a_wrong_digest_leaves_nothing(folder: Path) -> None:
    with begin() as coming:
        coming.write(CONTENT[:-1] + b"\0")
        assert not coming.finish()
    assert names(folder) == []


def test_of_two_one_goes_on_and_the_other_begins_a_file_of_its_own(folder: Path) -> None:
    cut_off_after(1000)
    with begin() as one, begin() as two:
        assert (one.length, two.length) == (1000, 0)
        assert len(names(folder)) == 2
        one.write(CONTENT[1000:])
        two.write(CONTENT)
        assert one.finish()
        with begin() as three:
            assert three.length == 0, "what the first has put on the shelf is no beginning"
        assert two.finish()
        one.close()
    assert names(folder) == [file_of(DIGEST)]
    assert (folder / file_of(DIGEST)).read_bytes() == CONTENT


def test_a_file_of_one_s_own_is_not_kept(folder: Path) -> None:
    with begin() as one, begin() as two:
        one.write(b"1")
        two.write(b"22")
    assert names(folder) == [f"{DIGEST}.part"]
    assert (folder / f"{DIGEST}.part").read_bytes() == b"1"


def test_another_process_holds_its_file_until_it_dies() -> None:
    script = (
        "import sys; from trisplit.models.receiving import Receiving\n"
        f"coming = Receiving({DIGEST!r}, {len(CONTENT)}); coming.write(b'x' * 500)\n"
        "print('written', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with begin() as meanwhile:
            assert meanwhile.length == 0
        other.kill()
        other.wait()
        with begin() as after:
            assert after.length == 500


def test_a_disk_that_is_too_small_refuses_before_anything_comes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off_after(100_000)
    monkeypatch.setattr(receiving.shutil, "disk_usage", lambda _: Usage(0, 0, 150_000))
    with pytest.raises(
        RequestProblem, match=r"200.0 kB of weights are to come .* has 150.0 kB free: 50.0 kB short"
    ):
        begin()
    assert names(folder) == [f"{DIGEST}.part"]
    monkeypatch.setattr(receiving.shutil, "disk_usage", lambda _: Usage(0, 0, 200_000))
    with begin() as coming:
        assert coming.length == 100_000


def test_a_disk_that_fills_up_is_freed_of_what_had_come(folder: Path) -> None:
    """A limit on the size of files stands for the end of a disk: the system refuses the same call."""
    script = (
        "import resource; from trisplit.errors import RequestProblem\n"
        "from trisplit.models.receiving import Receiving\n"
        f"coming = Receiving({DIGEST!r}, {len(CONTENT)})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    coming.write(bytes(70_000)); coming.write(bytes(70_000))\n"
        "except RequestProblem as problem: print(problem.what)\n"
        "coming.close()"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == f"the cache directory {folder} cannot be written: {os.strerror(errno.EFBIG)}\n"
    assert names(folder) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        with pytest.raises(RequestProblem, match="cannot be written: Permission denied"):
            begin()
    finally:
        folder.chmod(0o700)


def test_a_shelf_that_is_a_file_is_told(folder: Path) -> None:
    folder.rmdir()
    folder.touch()
    with pytest.raises(RequestProblem, match="cannot be written: File exists"):
        begin()
