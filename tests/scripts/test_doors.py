"""Where no C compiler is: the launcher is a script for a shell, which hands everything over as it came."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.scripts.launching import COMPILED
from trisplit.scripts import doors as of
from trisplit.scripts.doors import doors


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "trisplit").write_bytes(COMPILED["SHELL"].read_bytes())
    (folder / "trisplit-py").write_text('#!/bin/sh\nprintf "%s|" "$@"; exit 7\n')
    for name in ("trisplit", "trisplit-py"):
        (folder / name).chmod(0o755)
    return folder / "trisplit"


def test_a_shell_hands_over_whatever_it_was_started_by(program: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(program)
    words = ("run", "a b", "", "--x", "*")
    for started, folder in (
        (str(program), "/"),
        ("./trisplit", program.parent),
        ("trisplit", "/"),
        ("./link", tmp_path),
    ):
        ran = subprocess.run(
            [started, *words],
            cwd=folder,
            env={"PATH": f"{program.parent}:{os.environ['PATH']}"},
            capture_output=True,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"run|a b||--x|*|", b"")


def test_it_may_be_run_as_it_lies_here() -> None:
    assert os.access(COMPILED["SHELL"], os.X_OK)  # an installer copies that as well


def test_no_compiler_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler in ("none", "/bin/false", "no-such-compiler"):
        monkeypatch.setenv("TRISPLIT_CC", compiler)
        assert COMPILED["compile_launcher"](tmp_path / "trisplit") == ""
        assert not (tmp_path / "trisplit").exists()


def test_doors_are_those_beside_this_python(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of.sys, "executable", str(program.with_name("python")))
    assert list(doors()) == ["python"]
    program.rename(program.with_name("trisplit-sh"))
    assert list(doors()) == ["sh", "python"]
    program.write_bytes(b"\x7fELF")
    assert list(doors()) == ["launcher", "sh", "python"]
