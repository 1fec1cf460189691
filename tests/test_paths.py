"""Scratch folders end with who made them: at once, or when the next one looks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trisplit.errors import RequestProblem
from trisplit.paths import scratch

HOLDER = """
import sys
from trisplit.paths import scratch
with scratch() as folder:
    (folder / "rows").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    return tmp_path


@contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that has one, until its input ends."""
    command = (sys.executable, "-c", HOLDER)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())


def test_it_is_gone_afterwards(cache: Path) -> None:
    with scratch() as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("x")
        assert folder.is_relative_to(cache)
    with pytest.raises(ZeroDivisionError), scratch() as other:
        1 / 0  # noqa: B018
    assert not folder.exists()
    assert not other.exists()


def test_what_a_killed_process_left_is_taken_away_by_the_next() -> None:
    with holder() as (process, left):
        process.kill()
    assert (left / "rows").exists()
    with scratch():
        assert not left.exists()


def test_what_a_living_process_has_stays() -> None:
    with holder() as (_, theirs), scratch() as ours, scratch() as another:
        assert (theirs / "rows").exists()
        assert len({theirs, ours, another}) == 3
        assert ours.exists()
    assert not theirs.exists()


def test_no_room_to_make_one_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(cache / "file"))
    (cache / "file").touch()
    with pytest.raises(RequestProblem, match="cannot be written"), scratch():
        pass
