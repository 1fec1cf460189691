"""`trisplit bench speculation`: one JSON object, a picture, and words that make no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.tiny import build
from trisplit.cli.app import app
from trisplit.errors import RequestProblem, UnknownName

COLUMNS = (
    "draft mode k prompts prompt temperature one_way_ms legs_per_token tokens acceptance tokens_per_traversal"
    " predicted_tokens_per_traversal in_flight tok_per_s plain_tok_per_s serial_floor_tok_per_s"
    " ratio_to_serial_floor bottleneck_ms share_of_bottleneck_rate distinct_4gram_share counts tokens_equal"
)
SHORT = ("--stations", "2", "--one-way-ms", "1", "--tokens", "5", "--temperature", "0.8", "--k", "2")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tokenizer makes many tokens of a text, so it has room for them."""
    return build("qwen2", tmp_path_factory.mktemp("long"), layers=2, max_position_embeddings=4096)


def run(model: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", "speculation", str(model), *map(str, arguments)])


def test_a_row_for_every_answer_and_a_picture(model: Path, tmp_path: Path) -> None:
    drafts, plot = f"ngram,model:{model}@int8", tmp_path / "rates.svg"
    result = run(model, *SHORT, "--drafts", drafts, "--prompts", "draftable", "--plot", plot, "--json")
    assert result.exception is None, result.exception
    said = json.loads(result.stdout)
    assert {" ".join(row) for row in said["rows"]} == {COLUMNS}
    singles = [row for row in said["rows"] if row["prompt"] != "median"]
    assert len(singles) == 4 * 5
    assert len(said["rows"]) == len(singles) + 5
    assert {(row["tokens_equal"], row["temperature"], row["tokens"]) for row in singles} == {(True, 0.8, 5)}
    assert "serial floor" in plot.read_text()


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--modes", "plain,rivers", "rivers"),
        ("--drafts", "guess", "guess"),
        ("--k", "0", "--k 0 makes no sense"),
        ("--one-way-ms", "5,soon", "--one-way-ms 5,soon makes no sense"),
        ("--one-way-ms", "nan", "--one-way-ms nan makes no sense"),
        ("--temperature", "hot", "--temperature hot makes no sense"),
        ("--prompts", "old", "old"),
        ("--plot", "rates.txt", "rates.txt"),
    ],
)
def test_words_that_make_no_sense(model: Path, option: str, text: str, said: str) -> None:
    result = run(model, "--prompts", "draftable", option, text)
    assert isinstance(result.exception, RequestProblem | UnknownName)
    assert said in str(result.exception)
