"""`trisplit evaluate`: one JSON object or tables, exit 2 when a gate fails, and words that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from trisplit.cli import names
from trisplit.errors import Problem, RequestProblem, UnknownName

Tiny = Callable[[str], Path]
SHORT = ("--passages", "2", "--passage-tokens", "32")


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched, and questions beside them."""
    rows = [{"title": str(n), "text": f"Text {n}: " + "the tide goes out; " * 30} for n in range(10)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    asked = [{"question": f"{n}?", "options": ["a", "b", "c", "d"], "answer": n % 4} for n in range(9)]
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    (tmp_path / "plain.txt").write_text("The tide goes out. " * 60)
    monkeypatch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")


def test_alone(tiny: Tiny) -> None:
    said = facts_of("evaluate", tiny("llama"), *SHORT)
    (text,) = said["texts"]
    assert (text["text"], text["tokens"], text["kl"]) == ("wiki", 64, None)
    assert text["ppl"] > 1
    assert (said["gates"], said["passed"], said["dense"], said["scores"]) == ([], None, None, [])
    assert said["weight"]["weight_bytes"] == 4 * said["weight"]["parameters"]
    assert said["command"].startswith("trisplit ")


def test_beside_the_dense_model(tiny: Tiny, tmp_path: Path) -> None:
    said = facts_of(
        *("evaluate", tiny("llama"), "--dtype", "int8", "--against", tiny("llama"), *SHORT),
        *("--text", "brown", "--text", tmp_path / "plain.txt"),
        *("--questions", tmp_path / "asked.jsonl", "--shots", "2", "--limit", "5"),
    )
    assert [text["text"] for text in said["texts"]] == ["brown", "plain.txt"]
    assert all(0 < text["kl"] < 1 for text in said["texts"])
    assert [(score["scoring"], score["questions"]) for score in said["scores"]] == [
        ("letter", 5),
        ("answer", 5),
    ]
    assert {"accuracy", "standard_error", "accuracy_dense", "p_value"} < said["scores"][0].keys()
    assert {(gate["metric"], gate["on"]) for gate in said["gates"]} >= {("kl", "brown"), ("ppl", "plain.txt")}
    assert said["weight"]["weight_bytes"] < said["dense"]["weight_bytes"]


def test_a_gate_that_fails_ends_with_2_and_only_if_it_was_asked_for(tiny: Tiny) -> None:
    asked = ("evaluate", tiny("llama"), "--dtype", "int8", "--against", tiny("llama"), *SHORT)
    said = facts_of(*asked, "--gate", "kl=0", exit_code=2)
    assert ([gate["metric"] for gate in said["gates"]], said["passed"]) == (["kl"], False)
    assert facts_of(*asked, "--gate", "kl=9,top1=0")["passed"] is True
    assert run(*asked).exit_code == 0


def test_questions_alone_need_no_text(tiny: Tiny, tmp_path: Path) -> None:
    said = facts_of("evaluate", tiny("llama"), "--questions", tmp_path / "asked.jsonl", "--scoring", "letter")
    assert (said["texts"], [score["questions"] for score in said["scores"]]) == ([], [9])


def test_the_tables_say_the_same(tiny: Tiny) -> None:
    shown = run("evaluate", tiny("llama"), "--against", tiny("llama"), *SHORT).stdout
    heads = [line.split() for line in shown.splitlines() if line[:4] in ("text", "gate")]
    assert heads == [
        ["text", "tokens", "ppl", "ppl_dense", "ppl_ratio", "kl", "top1"],
        ["gate", "on", "limit", "measured", "passed"],
    ]
    assert shown.splitlines()[-1] == "passed"


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--gate", "kl=1"), RequestProblem, "dense model"),
        (("--dtype", "fp8"), UnknownName, "fp8"),
        (("--against-dtype", "fp8"), UnknownName, "fp8"),
        (("--scoring", "guess"), UnknownName, "guess"),
        (("--text", "none.txt"), RequestProblem, "none.txt"),
        (("--questions", "none.csv"), RequestProblem, "none.csv"),
        (("--passages", "999"), RequestProblem, "999 passages"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(arguments: Sequence[str], kind: type[Problem], said: str, tiny: Tiny) -> None:
    problem = problem_of("evaluate", tiny("llama"), *arguments)
    assert isinstance(problem, kind)
    assert said in problem.what
    assert problem.fix


def test_more_shots_than_questions_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    asked = ("--questions", str(tmp_path / "asked.jsonl"), "--shots", "9")
    assert "9 are shown" in problem_of("evaluate", tiny("llama"), *asked).what
