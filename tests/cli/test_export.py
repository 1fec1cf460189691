"""`trisplit export`: what it says, in words and as JSON, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from trisplit.errors import RequestProblem, UnknownName
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


def test_a_file_and_its_figures(tiny: Tiny, tmp_path: Path) -> None:
    said = facts_of("export", tiny("qwen2"), "--out", tmp_path / "m.gguf", "--format", "gguf")
    assert said["path"] == str(tmp_path / "m.gguf")
    assert (said["family"], said["type"], said["stored"]["F32"]) == ("qwen2", "f16", 21)
    assert said["check"]["delta"] <= 1e-3 < said["check"]["of_file"]
    assert said["check"]["parameters"] == said["parameters"]
    again = open_model(tmp_path / "m.gguf")
    assert again.config.ffn == tuple(said["widths"])


def test_a_folder_in_words(tiny: Tiny, tmp_path: Path) -> None:
    shown = run("export", tiny("deci"), "--out", tmp_path / "m", "--no-check")
    assert shown.exit_code == 0, shown.exception
    lines = shown.stdout.splitlines()
    assert lines[-1] == f"written: {tmp_path / 'm'}"
    assert "288 neurons of zeros" in shown.stdout
    assert any(line.split() == ["read", "anew", "no"] for line in lines)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--format", "onnx"), UnknownName, "onnx"),
        (("--type", "q4_0"), RequestProblem, "have no q4_0"),
        (("--format", "gguf"), RequestProblem, "would be a GGUF file"),
    ],
)
def test_refused(arguments: tuple[str, ...], kind: type, said: str, tiny: Tiny, tmp_path: Path) -> None:
    problem = problem_of("export", tiny("llama"), "--out", tmp_path / "m", *arguments)
    assert isinstance(problem, kind)
    assert said in problem.what
