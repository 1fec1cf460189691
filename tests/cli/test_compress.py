"""`trisplit compress`: a folder that loads, or a receipt and exit 2; and words that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from trisplit.cli import names
from trisplit.compress.recipe import ALIASES, RECIPES, STEPS
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
    assert said["weight"]["parameters"] < said["dense"]["parameters"]
    assert (said["recipe"]["name"], said["exam"]["seed"]) == ("balanced", 0)
    assert open_model(tmp_path / "m").config.ffn == (64,) * 4
    again = facts_of("evaluate", tmp_path / "m", "--against", tiny("llama"), *SHORT[2:6])
    assert again["texts"][0]["kl"] == said["texts"][0]["kl"]


def test_a_text_that_is_shorter_than_asked_is_said(tiny: Tiny, tmp_path: Path) -> None:
    asked = ("--tokens", "99999", *SHORT[2:], "--gate", "kl=99")
    shown = run("compress", tiny("llama"), "--out", tmp_path / "m", *asked)
    assert "tokens are all there are, of 99,999" in shown.stderr


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
    assert [row["name"] for row in said["rows"]] == list(RECIPES)
    assert [row["method"] for row in said["steps"]] == list(STEPS)
    shown = run("recipes").stdout
    assert all(name in shown for name in (*RECIPES, *ALIASES, *STEPS, 'spread = "alike"'))


def test_a_file_of_steps_and_what_it_changes(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[[steps]]\nmethod = "prune"\nkeep = 0.7\n[[steps]]\nmethod = "quantize"\ndtype = "int8"\n'
    )
    asked = ("compress", tiny("llama"), *SHORT[:6], "--recipe", tmp_path / "mine.toml", "--gate", "kl=99")
    shown = run(*asked, "--out", tmp_path / "m")
    assert shown.exit_code == 0
    assert "step 1: prune\n" in shown.stdout
    assert "96 neurons  64 neurons" in shown.stdout
    assert "step 2: quantize\n" in shown.stdout
    assert "139,840 of 164,416 parameters" in shown.stdout
    assert "as int8, of 657.7 kB as f32" in shown.stdout


def test_what_changes_nothing_is_said(tiny: Tiny, tmp_path: Path) -> None:
    shown = run("compress", tiny("llama"), *SHORT[:6], "--recipe", "selective", "--out", tmp_path / "m")
    assert shown.exit_code == 0
    assert "prune-by-cliff: 0 of 4 layers have a cliff of 8 or more" in shown.stdout
    assert "prune-by-cliff: nothing is cut" in shown.stdout


def test_questions_are_a_gate(tiny: Tiny, tmp_path: Path) -> None:
    """A model of noise answers no better than by guessing, so there is a note in the gate's place."""
    asked = [
        {"question": f"What is {n} and {n}?", "choices": [str(2 * n + i) for i in range(4)], "answer": 0}
        for n in range(8)
    ]
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in asked))
    how = ("--questions", tmp_path / "asked.jsonl", "--shots", "1", "--scoring", "answer")
    said = facts_of(
        "compress", tiny("llama"), "--out", tmp_path / "m", *SHORT, *how, "--gate", "kl=99,accuracy=0"
    )
    assert said["exam"]["questions"]["asked"] == 7
    assert said["scores"][0]["accuracy"]["n"] == 7
    judged = [gate["on"] for gate in said["gates"] if gate["metric"] == "accuracy"]
    assert judged == ["answer"] or "accuracy by answer is no gate" in said["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--recipe", "variant-x"), UnknownName, "variant-x"),
        (("--recipe", "none.toml"), RequestProblem, "none.toml"),
        (("--recipe", "three-zone", "--keep", "0.5"), RequestProblem, "no step has a share"),
        (("--questions", "none.csv", *SHORT[2:6]), RequestProblem, "none.csv"),
        (("--keep", "2"), RequestProblem, "keep 2.0 is no share"),
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
