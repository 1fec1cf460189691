"""`trisplit atlas`: one JSON object or a table, files that are written, and words that make no sense."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.running import facts_of, problem_of, run
from tests.compress import encoders
from tests.compress.test_atlas import with_cliff
from tests.tiny import write_gguf
from trisplit.compress.embedding import read_table
from trisplit.errors import CheckpointProblem, Problem, RequestProblem

Tiny = Callable[[str], Path]


def test_every_matrix_and_head_has_a_row(tiny: Tiny) -> None:
    said = facts_of("atlas", tiny("llama"))
    assert len(said["rows"]) == 4 * (7 + 4 + 2 + 2 + 4)
    head = next(row for row in said["rows"] if row["head"] == 1 and row["matrix"] == "k")
    assert (head["layer"], head["rows"], head["columns"], head["class"]) == (0, 16, 64, "fragile")
    assert {
        "cliff",
        "stable_rank",
        "effective_rank",
        "tail_25",
        "tail_50",
        "tail_75",
        "bound_50",
    } < head.keys()
    assert said["passing"] == {
        "matrices": {"k": 0, "n": 28},
        "heads": {"k": 0, "n": 48},
        "layers": {"k": 0, "n": 4},
    }
    assert (said["kind"], said["threshold"], len(said["layers"])) == ("llama", 8.0, 4)
    assert said["command"].startswith("trisplit ")


def test_a_planted_cliff_and_a_matrix_of_zeros(tmp_path: Path) -> None:
    said = facts_of("atlas", with_cliff(tmp_path / "m", 6))
    assert [layer["layer"] for layer in said["layers"] if layer["class"] == "compressible"] == [6]
    zeros = [row for row in said["rows"] if row["cliff"] is None]
    assert {(row["layer"], row["matrix"], row["stable_rank"]) for row in zeros} == {(5, "v", 0)}


def test_the_table_says_the_same(tiny: Tiny) -> None:
    shown = run("atlas", tiny("llama"), "--cliff-threshold", "p50").stdout.splitlines()
    assert shown[1].split()[:6] == ["layer", "cliff", "class", "zone", "heads", "heads_passing"]
    assert [line.split()[0] for line in shown[3:7]] == ["0", "1", "2", "3"]
    assert shown[-3].startswith("14 of 28 matrices pass")
    every = run("atlas", tiny("llama"), "--rows").stdout.splitlines()
    assert len(every) > len(shown) + 28 + 48


def test_files_are_written(tiny: Tiny, tmp_path: Path) -> None:
    model = write_gguf(tiny("llama"), tmp_path / "m.gguf")
    files = [tmp_path / name for name in ("map.svg", "m.atlas", "new.gguf")]
    said = facts_of("atlas", model, "--plot", files[0], "--save", files[1], "--embed", files[2])
    assert said["written"] == [str(file) for file in files]
    assert "Spectra of m.gguf" in files[0].read_text()
    tables = [read_table(file) for file in files[1:]]
    assert tables[0].words.tobytes() == tables[1].words.tobytes()
    assert math.isclose(tables[0].layer(2).cliff, said["layers"][2]["cliff"], rel_tol=1e-6)


def test_calibrated(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The tide goes out, and comes in again. " * 30)
    asked = ("atlas", tiny("llama"), "--calibrate", tmp_path / "text.txt", "--tokens", "90")
    said = facts_of(*asked)
    assert (said["calibrated_on"], said["tokens"]) == (str(tmp_path / "text.txt"), 90)
    assert all(0 < row["white_effective_rank"] <= 64 for row in said["rows"])
    assert all(0 < layer["carry_90"] < layer["carry_99"] <= layer["neurons"] for layer in said["layers"])
    assert all(sum(layer["shares"]) == pytest.approx(1, rel=1e-3) for layer in said["layers"])
    assert run(*asked).stdout.splitlines()[-1].startswith("90 tokens for 96 columns")
    assert run(*asked[:-1], "200").stdout.splitlines()[-1].endswith("or more)")


def test_encoders(tmp_path: Path) -> None:
    path = encoders.onnx_encoder(tmp_path / "m.onnx")
    said = facts_of("atlas", path, "--heads", "4")
    assert (said["kind"], said["passing"]["matrices"]["n"], said["passing"]["heads"]["n"]) == ("onnx", 12, 32)
    assert facts_of("atlas", path)["passing"]["heads"]["n"] == 0
    assert "heads pass" not in run("atlas", path).stdout
    assert "only decoders" in problem_of("atlas", path, "--calibrate", "wiki").what


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--cliff-threshold", "high"), RequestProblem, "'high'"),
        (("--plot", "map.pdf"), RequestProblem, "map.pdf"),
        (("--embed", "m.gguf"), RequestProblem, ".safetensors file"),
        (("--save", "none/m.atlas"), RequestProblem, "cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(arguments: Sequence[str], kind: type[Problem], said: str, tiny: Tiny) -> None:
    problem = problem_of("atlas", tiny("llama"), *arguments)
    assert isinstance(problem, kind)
    assert said in problem.what
    assert problem.fix


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "odd"}))
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    for path in (tmp_path, tmp_path / "m.onnx"):
        assert isinstance(problem_of("atlas", path), CheckpointProblem)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize(("name", "matrices"), [("minilm", 36), ("dinov2-focus", 72)])
def test_encoders_to_fetch(name: str, matrices: int) -> None:
    heads = ("--heads", "6") if name == "dinov2-focus" else ()
    said = facts_of("atlas", name, *heads)
    assert said["passing"]["matrices"] == {"k": 0, "n": matrices}
    assert said["passing"]["heads"]["n"] == 288
