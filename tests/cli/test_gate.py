"""`trisplit gate …`: verdicts as one JSON object or a table, and words that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from trisplit.cli import names
from trisplit.cli.app import app
from trisplit.errors import Problem, RequestProblem, UnknownName

Tiny = Callable[[str], Path]
SHORT = ("--rounds", "3", "--windows", "2")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["gate", "overlap", *map(str, arguments)])


def facts(*arguments: str | Path) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    assert result.stdout.count("\n") == 1
    said: dict[str, Any] = json.loads(result.stdout)
    return said


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched."""
    rows = [{"title": str(n), "text": f"Text {n}: " + "the tide goes out; " * 30} for n in range(10)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")


def test_a_standard_model_is_off_at_the_limit_of_the_residual(tiny: Tiny) -> None:
    said = facts(tiny("llama"), *SHORT)
    assert [row["layer"] for row in said["rows"]] == [1, 2, 3]
    assert {row["verdict"] for row in said["rows"]} == {"OFF"}
    assert all("over 0.0001" in row["reason"] for row in said["rows"])
    assert (said["on"], said["exact"], said["limit"]) == ([], False, {"residual": 1e-4})
    assert (said["seed"], said["kv"], said["rounds"], said["windows"]) == ("x+attn", "canonical", 3, 2)
    assert said["command"].startswith("trisplit ")


def test_a_generous_limit_turns_every_layer_on(tiny: Tiny) -> None:
    said = facts(tiny("llama"), *SHORT, "--kl", "1e9", "--layers", "1-2", "--seed", "x", "--kv", "stale")
    assert said["on"] == [1, 2]
    assert (said["limit"], said["tried_sets"]) == ({"kl": 1e9}, 1)
    assert said["together"]["kl"] > 0
    assert 0 < said["saves_ms"] < said["token_ms"]


def test_parallel_blocks_are_on_and_exact(tiny: Tiny) -> None:
    said = facts(tiny("neox"), *SHORT)
    assert (said["on"], said["exact"]) == ([0, 1, 2, 3], True)
    assert {(row["residual"], row["verdict"]) for row in said["rows"]} == {(0.0, "ON")}
    assert facts(tiny("neox-sequential"), *SHORT)["on"] == []


def test_the_table_says_the_same(tiny: Tiny) -> None:
    head, _, *lines = run(tiny("llama"), *SHORT).stdout.splitlines()
    assert " ".join(head.split()) == "layer residual logit kl ppl_ratio overlap_ms saves_ms verdict reason"
    assert [line.split()[0] for line in lines[:3]] == ["1", "2", "3"]
    assert lines[-1].startswith("OFF: no layer passes")


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--seed", "y"), UnknownName, "'y'"),
        (("--kv", "fresh"), UnknownName, "'fresh'"),
        (("--text", "smollm2"), UnknownName, "smollm2"),
        (("--dtype", "fp8"), UnknownName, "fp8"),
        (("--limit", "1", "--kl", "1"), RequestProblem, "more than one limit"),
        (("--kl", "nan"), RequestProblem, "a limit of nan"),
        (("--ppl-ratio", "-1"), RequestProblem, "a limit of -1"),
        (("--layers", "0"), RequestProblem, "'0'"),
        (("--layers", "1,4"), RequestProblem, "'4'"),
        (("--layers", "3-2"), RequestProblem, "'3-2'"),
        (("--layers", "all"), RequestProblem, "'all'"),
        (("--windows", "99"), RequestProblem, "there are 5"),
        (("--rounds", "9999"), RequestProblem, "there are 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(arguments: Sequence[str], kind: type[Problem], said: str, tiny: Tiny) -> None:
    result = run(tiny("llama"), *arguments)
    assert result.stdout == ""
    assert isinstance(result.exception, kind), result.exception
    assert said in result.exception.what
    assert result.exception.fix
