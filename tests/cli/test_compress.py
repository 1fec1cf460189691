"""`trisplit compress`: a folder that loads, or a receipt and exit 2; and words that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from trisplit.cli import names
from trisplit.errors import Problem, RequestProblem, UnknownName
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
SHORT = (
    "--tokens",
    "600",
    "--passages",
    "2",
    "--passage-tokens",
    "32",
    "--recipe",
    "balanced",
    "--keep",
    "0.7",
)


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched."""
    rows = [{"title": str(n), "text": " ".join(f"Tide {n}.{i}" for i in range(60))} for n in range(10)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")


def test_a_copy_that_passes_is_kept(tiny: Tiny, tmp_path: Path) -> None:
    said = facts_of("compress", tiny("llama"), "--out", tmp_path / "m", *SHORT, "--gate", "kl=99")
    assert said["kept"] == str(tmp_path / "m")
    assert (said["widths"], said["passed"]) == ([64] * 4, True)
    assert [text["text"] for text in said["texts"]] == ["wiki", "brown"]
    assert said["parameters"] < said["parameters_dense"]
    assert open_model(tmp_path / "m").config.ffn == (64,) * 4
    again = facts_of("evaluate", tmp_path / "m", "--against", tiny("llama"), *SHORT[2:6])
    assert again["texts"][0]["kl"] == said["texts"][0]["kl"]


def test_one_that_fails_ends_with_2(tiny: Tiny, tmp_path: Path) -> None:
    asked = ("compress", tiny("llama"), *SHORT, "--gate", "kl=0")
    said = facts_of(*asked, "--out", tmp_path / "m", exit_code=2)
    assert (said["kept"], said["passed"]) == (None, False)
    assert [file.name for file in (tmp_path / "m").iterdir()] == ["receipt.json"]
    shown = run(*asked, "--out", tmp_path / "kept", "--keep-failed", "--held-out", "wiki")
    assert shown.exit_code == 2
    assert shown.stdout.splitlines()[-2:] == ["failed", f"written: {tmp_path / 'kept'}"]
    assert open_model(tmp_path / "kept").config.layers == 4


def test_recipes_are_shown() -> None:
    said = facts_of("recipes")
    assert [row["name"] for row in said["rows"]] == ["conservative", "balanced", "allocated"]
    assert "variant-a" in run("recipes").stdout


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--recipe", "variant-x"), UnknownName, "variant-x"),
        (("--keep", "2"), RequestProblem, "--keep 2"),
        (("--gate", "best"), UnknownName, "best"),
        (("--calibrate", "none.txt"), RequestProblem, "none.txt"),
        (("--held-out", "none.txt"), RequestProblem, "none.txt"),
        (("--passages", "999"), RequestProblem, "999 passages"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(
    arguments: Sequence[str], kind: type[Problem], said: str, tiny: Tiny, tmp_path: Path
) -> None:
    problem = problem_of("compress", tiny("llama"), "--out", tmp_path / "m", *arguments)
    assert isinstance(problem, kind)
    assert said in problem.what
    assert not (tmp_path / "m").exists()
