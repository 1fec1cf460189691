"""`trisplit bench draft`: one JSON object of two kinds of rows, and words that make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.tiny import build
from trisplit.cli import names
from trisplit.cli.app import app
from trisplit.errors import Problem, RequestProblem, UnknownName

ROW_COLUMNS = (
    "draft tokens greedy_agreement coupled_agreement temperature kl guessed ms_per_token weight_bytes"
    " kv_bytes"
)
ACCEPTANCE_COLUMNS = (
    "draft prompts prompt temperature tokens acceptance in_a_row guessed distinct_4gram_share counts"
)
SHORT = ("--windows", "2", "--window-tokens", "8", "--tokens", "6")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tokenizer makes many tokens of a text, so it has room for them."""
    return build("qwen2", tmp_path_factory.mktemp("long"), layers=1, max_position_embeddings=4096)


@pytest.fixture
def _texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched: those that are held out, the prompts' among them."""
    path = tmp_path / "articles.jsonl"
    titles = ["seen", "Afghanistan", "seen", "Ayn Rand"]
    lines = [{"title": title, "text": f"{title}: the tide comes in " * 20} for title in titles]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    monkeypatch.setattr(names, "fetched", lambda _: path)


def run(model: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", "draft", str(model), *map(str, arguments)])


def said_by(model: Path, *arguments: str | Path) -> dict[str, Any]:
    result = run(model, *arguments, *SHORT, "--json")
    assert result.exception is None, result.exception
    said: dict[str, Any] = json.loads(result.stdout)
    assert list(said) == ["rows", "acceptance", "machine", "command"]
    return said


@pytest.mark.usefixtures("_texts")
def test_every_draft_in_every_row(model: Path) -> None:
    said = said_by(model, "--draft", "ngram,twin:int8")
    assert {" ".join(row) for row in said["rows"]} == {ROW_COLUMNS}
    assert {" ".join(row) for row in said["acceptance"]} == {ACCEPTANCE_COLUMNS}
    assert [(row["draft"], row["tokens"]) for row in said["rows"]] == [("ngram", 16), ("twin:int8", 16)]
    singles = [row for row in said["acceptance"] if row["prompt"] != "median"]
    assert len(singles) == 2 * 8 * 2
    assert {(row["prompts"], row["temperature"], row["tokens"]) for row in singles} == {
        (kind, temperature, 6) for kind in ("novel", "draftable") for temperature in (0, 0.8)
    }


def test_a_text_of_one_s_own_and_no_article(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One fine day the sea was calm. " * 10)
    asked = ("--prompts", "draftable", "--draft", f"model:{model}@int4", "--temperature", "0")
    said = said_by(model, "--text", text, *asked)
    (row,) = said["rows"]
    assert row["greedy_agreement"] == row["coupled_agreement"]
    assert row["weight_bytes"] > 0
    assert {row["prompts"] for row in said["acceptance"]} == {"draftable"}


def test_the_tables_have_the_same_columns(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One fine day the sea was calm. " * 10)
    result = run(model, "--text", text, "--prompts", "draftable", "--draft", "none", *SHORT)
    assert result.exception is None, result.exception
    heads = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert ROW_COLUMNS in heads
    assert ACCEPTANCE_COLUMNS in heads


@pytest.mark.usefixtures("_texts")
@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--draft", "ngrams"), UnknownName, "ngrams"),
        (("--draft", ","), RequestProblem, "no draft"),
        (("--draft", "twin:int5"), UnknownName, "int5"),
        (("--prompts", "noble"), UnknownName, "noble"),
        (("--temperature", "warm"), RequestProblem, "--temperature warm"),
        (("--temperature", "-1"), RequestProblem, "temperature -1"),
        (("--temperature", ""), RequestProblem, "no temperature"),
        (("--text", "wikis"), UnknownName, "wikis"),
        (("--text", "./nowhere.txt"), RequestProblem, "nowhere.txt"),
        (("--text", ""), RequestProblem, "no text"),
        (("--tokens", "4096"), RequestProblem, "context"),
        (("--dtype", "fp8"), UnknownName, "fp8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(arguments: tuple[str, ...], kind: type[Problem], said: str, model: Path) -> None:
    result = run(model, "--windows", "1", "--window-tokens", "8", *arguments)
    assert result.stdout == ""
    assert isinstance(result.exception, kind), result.exception
    assert said in result.exception.what
