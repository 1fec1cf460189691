"""`trisplit diagnose`: a ruined layer named in words, figures and a picture; and what makes no sense."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from tests.cli.running import facts_of, problem_of, run
from trisplit.cli import names
from trisplit.errors import Problem, RequestProblem, UnknownName

Tiny = Callable[[str], Path]
SHORT = ("--passages", "1", "--passage-tokens", "24")


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched."""
    rows = [{"title": str(n), "text": " ".join(f"Tide {n}.{i}" for i in range(60))} for n in range(10)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")


@pytest.fixture
def ruined(tiny: Tiny, tmp_path: Path) -> Path:
    """A copy whose layer 2 adds the contrary of what it should."""
    folder = shutil.copytree(tiny("llama"), tmp_path / "ruined")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.2.mlp.down_proj.weight"] *= -2
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_ruined_layer_is_named(tiny: Tiny, ruined: Path, tmp_path: Path) -> None:
    picture = tmp_path / "d.svg"
    shown = run("diagnose", tiny("llama"), "--twin", ruined, *SHORT, "--gate", "kl=0.01", "--plot", picture)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[3].split()[:2] == ["2", "100.0%"]
    assert any(line.startswith("layer 2 carries 100% of the KL: it is") for line in lines)
    assert any(
        line.startswith("kl on wiki") and line.endswith("left dense alone, layer 2 would pass it")
        for line in lines
    )
    assert lines[-1] == f"written: {picture}"
    assert "edited alone" in picture.read_text()


def test_the_same_facts_as_json(tiny: Tiny, ruined: Path) -> None:
    said = facts_of("diagnose", tiny("llama"), "--twin", ruined, *SHORT, "--held-out", "wiki")
    assert (said["carriers"], said["passed"], said["held_out"]) == ([2], False, ["wiki"])
    assert [layer["share"] for layer in said["layers"]] == [0, 0, 1, 0]
    assert said["layers"][2]["own"]["error"] == pytest.approx(9, rel=1e-3)
    assert said["layers"][2]["spared"]["kl"] == 0
    assert [layer["depth"]["apart"] > 0 for layer in said["layers"]] == [False, False, True, True]


def test_a_recipe_is_made_and_looked_at(tiny: Tiny) -> None:
    said = facts_of(
        *("diagnose", tiny("llama"), "--recipe", "balanced", "--keep", "0.7", "--tokens", "600", *SHORT)
    )
    assert said["whole"]["kl"] > 0
    assert all(0 < layer["own"]["error"] < 1 for layer in said["layers"])
    assert sum(layer["share"] for layer in said["layers"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ((), RequestProblem, "one copy"),
        (("--recipe", "balanced", "--twin", "x"), RequestProblem, "one copy"),
        (("--recipe", "variant-x"), UnknownName, "variant-x"),
        (("--recipe", "balanced", "--gate", "best"), UnknownName, "best"),
        (("--recipe", "balanced", "--plot", "x.bmp"), RequestProblem, "x.bmp"),
        (("--twin", "nowhere/at/all"), Problem, "nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(arguments: Sequence[str], kind: type[Problem], said: str, tiny: Tiny) -> None:
    problem = problem_of("diagnose", tiny("llama"), *arguments)
    assert isinstance(problem, kind)
    assert said in problem.what
