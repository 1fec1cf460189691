"""`trisplit calibrate`, `trisplit bench int4`: files and rows, and words that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from trisplit.bench.int4 import METHODS
from trisplit.cli import names
from trisplit.errors import RequestProblem, UnknownName
from trisplit.models.model import open_model
from trisplit.models.statistics import open_statistics
from trisplit.models.twins import fitted_twin, kept_statistics

Tiny = Callable[[str], Path]
SHORT = ("--tokens", "200", "--passages", "2", "--passage-tokens", "32")


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched."""
    rows = [{"title": str(n), "text": f"Text {n}: " + "the tide goes out; " * 30} for n in range(6)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "plain.txt").write_text("The tide goes out. " * 60)
    monkeypatch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")


def test_calibrate_writes_what_a_twin_takes(tiny: Tiny, tmp_path: Path) -> None:
    out, plain = tmp_path / "some.npz", tmp_path / "plain.txt"
    said = facts_of("calibrate", tiny("llama"), "--text", plain, "--tokens", "150", "--out", out)
    assert (said["file"], said["tokens"], said["bytes"]) == (str(out), 150, out.stat().st_size)
    model, statistics = open_model(tiny("llama")), open_statistics(out)
    assert statistics.about.text == said["text"]
    twin = fitted_twin(model, statistics)
    assert [file.stage for file in twin.files(model.stages[1:4], "int4")] == list(model.stages[1:4])


def test_without_a_file_drafts_find_it(tiny: Tiny) -> None:
    result = run("calibrate", tiny("mistral"), "--tokens", "100")
    kept = kept_statistics(open_model(tiny("mistral")))
    assert result.exit_code == 0, result.exception
    assert str(kept) in result.stdout
    assert "the draft twin:int4 is fitted by it" in result.stdout
    kept.unlink()


def test_several_texts_count_together(tiny: Tiny, tmp_path: Path) -> None:
    asked = ("--text", "wiki", "--text", tmp_path / "plain.txt", "--out", tmp_path / "x.npz")
    result = run("calibrate", tiny("llama"), *asked, "--tokens", "9999999", "--json")
    assert json.loads(result.stdout)["passages"] > 4
    assert "tokens are all there are, of 9,999,999" in result.stderr


def test_bench_int4_has_a_row_for_each_method(tiny: Tiny) -> None:
    said = facts_of("bench", "int4", tiny("llama"), *SHORT)
    rows = {row["method"]: row for row in said["rows"]}
    assert list(rows) == list(METHODS)
    assert {row["tokens"] for row in rows.values()} == {64}
    assert [row["calibration_tokens"] for row in rows.values()] == [0, 0, 200, 200, 200, 200]
    assert 0 < rows["fitted"]["kl"] < rows["nearest"]["kl"]
    assert all(0 < row["top1"] <= 1 for row in rows.values())


def test_bench_int4_of_a_rotated_copy_as_a_table(tiny: Tiny) -> None:
    result = run("bench", "int4", tiny("llama"), *SHORT, "--methods", "nearest,fitted", "--rotate", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith("method ")


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        (("bench", "int4", "--methods", "fit"), UnknownName, "no method is named 'fit'"),
        (("bench", "int4", "--methods", ","), RequestProblem, "no method"),
        (("bench", "int4", "--held-out-text", "wikis"), UnknownName, "wikis"),
        (("bench", "int4", "--text", "nowhere.txt"), RequestProblem, "nowhere.txt"),
        (("calibrate", "--text", "nowhere.txt"), RequestProblem, "nowhere.txt"),
        (("calibrate", "--out", "/proc/no/s.npz"), RequestProblem, "cannot be written"),
    ],
)
def test_words_that_make_no_sense(
    asked: tuple[str, ...], kind: type[Exception], said: str, tiny: Tiny
) -> None:
    problem = problem_of(*asked, tiny("llama"))
    assert isinstance(problem, kind)
    assert said in problem.what
