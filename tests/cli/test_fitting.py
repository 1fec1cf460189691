"""`trisplit compress --fit`: a folder of the size that was found and what was tried, or exit 2 alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from tests.tiny import build
from trisplit.cli import names
from trisplit.errors import RequestProblem
from trisplit.models.model import open_model

SHORT = ("--tokens", "600", "--passages", "2", "--passage-tokens", "32", "--fit")


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched."""
    rows = [{"title": str(n), "text": " ".join(f"Tide {n}.{i}" for i in range(60))} for n in range(10)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return build("llama", tmp_path / "m", layers=2)


def test_a_size_is_found_written_and_drawn(model: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "out", tmp_path / "f.svg"
    shown = run("compress", model, "--out", out, *SHORT, "--gate", "kl=0.5", "--plot", picture)
    assert shown.exit_code == 0, shown.exception
    lines = shown.stdout.splitlines()
    assert lines[-3:] == ["passed", f"written: {out}", f"drawn: {picture}"]
    assert "% of the neurons, " in lines[-4]
    assert any(line.startswith("neurons  parameters  ppl wiki") for line in lines)
    assert open_model(out).config.layers == 2
    assert "KL, nats a token" in picture.read_text()


def test_the_same_facts_as_json_and_nothing_passes(model: Path, tmp_path: Path) -> None:
    asked = ("compress", model, "--out", tmp_path / "out", *SHORT, "--held-out", "wiki")
    said = facts_of(*asked, "--gate", "kl=0", exit_code=2)
    assert (said["passed"], said["kept"]) == (False, None)
    assert [point["passed"] for point in said["frontier"]] == [False] * len(said["frontier"])
    assert not (tmp_path / "out").exists()
    said = facts_of(*asked, "--gate", "kl=0.5")
    assert (said["passed"], said["kept"]) == (True, str(tmp_path / "out"))
    (made,) = [point for point in said["frontier"] if point["neurons"] == sum(said["widths"])]
    assert made["texts"] == said["texts"]
    assert made["parameters"] == said["weight"]["parameters"]


def test_that_no_size_passes_is_said(model: Path, tmp_path: Path) -> None:
    shown = run("compress", model, "--out", tmp_path / "out", *SHORT, "--gate", "kl=0")
    assert shown.exit_code == 2
    assert shown.stdout.splitlines()[-2:] == [
        "no size passes: what keeps 83.3% of the neurons loses too much already",
        f"nothing is written to {tmp_path / 'out'}",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fit", "--keep", "0.5"), "--fit finds the size"),
        (("--fit", "--recipe", "balanced"), "--fit finds the size"),
        (("--fit", "--keep-failed"), "--fit finds the size"),
        (("--plot", "x.svg"), "--plot draws what --fit has tried"),
        (("--fit", "--plot", "x.bmp"), "x.bmp"),
        (("--fit", "--gate", "accuracy=0.1", "--passages", "1"), "no gate is on texts"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(arguments: Sequence[str], said: str, model: Path, tmp_path: Path) -> None:
    problem = problem_of("compress", model, "--out", tmp_path / "out", *arguments)
    assert isinstance(problem, RequestProblem)
    assert said in problem.what
