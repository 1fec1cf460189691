"""`trisplit fetch` and `inspect`: the facts, the refusals, and that JSON stands alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from syrupy.assertion import SnapshotAssertion

from tests.assets import fakes
from tests.cli.running import facts_of, problem_of, run
from tests.tiny import GGUF_VARIANTS, VARIANTS, build, build_variant, write_gguf
from trisplit.assets import ASSETS
from trisplit.errors import CheckpointProblem

ROOT = Path(__file__).parents[2]

Build = Callable[[str], Path]


def changed(folder: Path, change: Callable[[dict[str, Any]], object], file: str = "config.json") -> Path:
    """The model with its config changed."""
    config = json.loads((folder / file).read_text())
    change(config)
    (folder / file).write_text(json.dumps(config))
    return folder


def rewritten(folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> Path:
    """The model with its tensors changed."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


# --- inspect --------------------------------------------------------------------------------------

# llama: 64 wide, 4 + 2 × 2 heads of 16, 96 neurons, 320 tokens, 4 layers, its own head.
ATTENTION = 4 * ((64 + 2 * 32) * 64 + 64 * 64 + 64)
GATE_UP = 4 * (2 * 96 * 64 + 64)
DOWN = 4 * 64 * 96
EMBED, HEAD = 320 * 64, 320 * 64 + 64


def test_parameters_and_bytes_by_kind_of_stage(tiny: Build) -> None:
    facts = facts_of("inspect", tiny("llama"))
    parameters = {
        "embed": EMBED,
        "attention": ATTENTION,
        "gate_up": GATE_UP,
        "down": DOWN,
        "head": HEAD,
        "total": EMBED + ATTENTION + GATE_UP + DOWN + HEAD,
    }
    norms = {"attention": 4 * 64, "gate_up": 4 * 64, "head": 64, "total": 9 * 64}
    f32 = {kind: 4 * count for kind, count in parameters.items()}

    def blocks(kind: str, bytes_of_32: int) -> int:
        return (parameters[kind] - norms.get(kind, 0)) // 32 * bytes_of_32 + 4 * norms.get(kind, 0)

    int8 = {kind: blocks(kind, 32 + 4) for kind in parameters}
    int4 = {kind: blocks(kind, 16 + 4 + 4) for kind in ("attention", "gate_up", "down")}
    int4 |= {kind: int8[kind] for kind in ("embed", "head")}
    assert facts["parameters"] == parameters
    assert facts["bytes"] == {
        "stored": f32,
        "f32": f32,
        "int8": int8,
        "int4": int4 | {"total": sum(int4.values())},
    }
    assert (facts["family"], facts["format"], facts["unused"], facts["unsupported"]) == (
        "llama",
        "safetensors",
        [],
        [],
    )


def test_shapes(tiny: Build) -> None:
    assert facts_of("inspect", tiny("gemma3"))["shapes"] == {
        "family": "gemma3_text",
        "layers": 6,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 1,
        "head_dim": 32,
        "ffn": [96] * 6,
        "vocab": 320,
        "context": 512,
        "windows": [16] * 5 + [0],
        "rope": {"dimensions": 32, "base": 1e6, "slowed_short": 1.0, "slowed_long": 1.0},
        "local_rope": {"dimensions": 32, "base": 1e4, "slowed_short": 1.0, "slowed_long": 1.0},
        "tied_head": True,
        "parallel": False,
    }


@pytest.mark.parametrize(
    ("variant", "changes", "rope"),
    [
        ("llama", {}, (16, 10_000.0, 1.0, 1.0)),
        ("qwen2", {}, (16, 1_000_000.0, 1.0, 1.0)),
        ("phi3-partial-rotary", {}, (16, 10_000.0, 1.0, 1.0)),
        ("neox-sequential", {}, (24, 10_000.0, 1.0, 1.0)),
        ("llama-linear-rope", {}, (16, 10_000.0, 4.0, 4.0)),
        ("llama-llama3-rope", {"head_dim": 64}, (64, 500_000.0, 1.0, 8.0)),
        ("llama-llama3-rope", {}, (16, None, None, None)),
    ],
)
def test_rope_is_told_from_its_frequencies(
    tmp_path: Path, variant: str, changes: dict[str, Any], rope: tuple[float, ...]
) -> None:
    folder = build_variant(variant, tmp_path / "model", **changes)
    for model in (folder, write_gguf(folder, tmp_path / "model.gguf")):
        assert tuple(facts_of("inspect", model)["shapes"]["rope"].values()) == rope


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_of_a_file_is_counted_once(tiny: Build, variant: str) -> None:
    folder = tiny(variant)
    sizes = [tensor.size for tensor in load_file(folder / "model.safetensors").values()]
    facts = facts_of("inspect", folder)
    assert facts["parameters"]["total"] == sum(sizes)
    assert facts["bytes"]["stored"]["total"] == 4 * sum(sizes) == facts["stored"][0]["n_bytes"]
    assert (facts["stored"][0]["tensors"], facts["unused"], facts["unsupported"]) == (len(sizes), [], [])
    kinds = ("embed", "attention", "gate_up", "down", "head")
    for by_kind in (facts["parameters"], *facts["bytes"].values()):
        assert by_kind["total"] == sum(by_kind[kind] for kind in kinds)


@pytest.mark.parametrize("variant", GGUF_VARIANTS)
def test_gguf_and_safetensors_are_one_model(tiny: Build, tmp_path: Path, variant: str) -> None:
    ours = facts_of("inspect", tiny(variant))
    facts = facts_of("inspect", write_gguf(tiny(variant), tmp_path / "model.gguf"))
    assert (facts["parameters"], facts["bytes"]) == (ours["parameters"], ours["bytes"])
    assert facts["shapes"] == ours["shapes"] | {"family": facts["family"]}
    assert (facts["unused"], facts["unsupported"]) == ([], [])


def test_a_tied_head_counts_under_embed(tmp_path: Path) -> None:
    tied = facts_of("inspect", build("llama", tmp_path / "tied", tied=True))
    own = facts_of("inspect", build("llama", tmp_path / "own", tied=False))
    assert (tied["parameters"]["head"], own["parameters"]["head"]) == (64, HEAD)
    for form in ("stored", "f32", "int8", "int4"):
        assert tied["bytes"][form]["head"] == 64 * 4
        saved = own["bytes"][form]["total"] - tied["bytes"][form]["total"]
        assert saved == own["bytes"][form]["embed"] == tied["bytes"][form]["embed"]


def test_stored_types_are_counted(tiny: Build, tmp_path: Path) -> None:
    types = {"token_embd*": "Q8_0", "*ffn_up*": "Q4_1"}
    facts = facts_of("inspect", write_gguf(tiny("llama"), tmp_path / "model.gguf", types=types))
    stored = {row["type"]: (row["tensors"], row["parameters"], row["n_bytes"]) for row in facts["stored"]}
    assert stored["Q8_0"] == (1, 320 * 64, 320 * 64 // 32 * 34)
    assert stored["Q4_1"] == (4, 4 * 96 * 64, 4 * 96 * 64 // 32 * 20)
    assert facts["bytes"]["stored"]["embed"] == stored["Q8_0"][2]
    # Our int4 keeps the file's grid of up, with offsets, and fits one to gate, which is stored as floats.
    assert facts["bytes"]["int4"]["gate_up"] == 4 * (2 * 96 * 64 // 32 * 24 + 64 * 4)


def test_what_we_cannot_run_is_told_beside_what_can_be_read(tmp_path: Path) -> None:
    folder = changed(build("llama", tmp_path), lambda config: config.update(model_type="mixtral"))
    facts = facts_of("inspect", folder, exit_code=1)
    fix = "supported families: deci, gemma3_text, gpt_neox, llama, mistral, nemotron-nas, phi3, qwen2, qwen3"
    total = EMBED + ATTENTION + GATE_UP + DOWN + HEAD
    assert facts["unsupported"] == [{"what": "model type 'mixtral' is not supported", "fix": fix}]
    assert (facts["architecture"], facts["family"], facts["shapes"]) == ("mixtral", None, None)
    assert (facts["parameters"], facts["bytes"]) == ({"total": total}, {"stored": {"total": 4 * total}})
    assert facts["stored"][0]["tensors"] == 2 + 1 + 4 * 9


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope scaling 'yarn' is not supported"),
        ({"hidden_act": "relu"}, "activation 'relu' is not supported"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3 key/value heads evenly"),
    ],
)
def test_the_reason_is_the_config_reader_s_own(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    folder = changed(build("llama", tmp_path), lambda config: config.update(change))
    (reason,) = facts_of("inspect", folder, exit_code=1)["unsupported"]
    assert reason["what"].startswith(what)


DOWN_0 = "model.layers.0.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda tensors: tensors.pop(DOWN_0),
            (f"tensors are missing: {DOWN_0}", "get the model again"),
        ),
        (
            lambda tensors: tensors.update({DOWN_0: tensors[DOWN_0].T.copy()}),
            (
                f"{DOWN_0} has shape [96, 64], the config promises [64, 96]",
                "get the model again: the weights and the config do not belong together",
            ),
        ),
        (
            lambda tensors: tensors.update({DOWN_0: tensors[DOWN_0].astype(np.int8)}),
            (
                f"tensors are stored as I8, which we do not read: {DOWN_0}",
                "take the model as one of F32, F16, BF16",
            ),
        ),
    ],
)
def test_weights_that_do_not_serve_are_named(
    tmp_path: Path, change: Callable[[dict[str, np.ndarray]], object], reason: tuple[str, str]
) -> None:
    facts = facts_of("inspect", rewritten(build("llama", tmp_path), change), exit_code=1)
    assert [tuple(found.values()) for found in facts["unsupported"]] == [reason]
    assert facts["parameters"]["down"] == DOWN


def test_every_command_refuses_a_model_that_lacks_a_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))
    last = "model.layers.3.mlp.down_proj.weight"
    folder = rewritten(build("llama", tmp_path / "model"), lambda tensors: tensors.pop(last))
    for arguments in (["plan", folder], ["generate", folder, "hello"], ["chat", folder]):
        problem = problem_of(*arguments)
        assert isinstance(problem, CheckpointProblem)
        assert problem.what == f"tensors are missing: {last}"
    assert not (tmp_path / "cache").exists()


def test_tensors_no_stage_uses_do_no_harm(tmp_path: Path) -> None:
    extra = {"model.layers.0.rotary_emb.inv_freq": np.ones(8, np.int8)}
    folder = rewritten(build("llama", tmp_path, tied=True), lambda tensors: tensors.update(extra))
    facts = facts_of("inspect", folder)
    unused = {"name": "model.layers.0.rotary_emb.inv_freq", "shape": [8], "dtype": "I8", "n_bytes": 8}
    assert (facts["unused"], facts["unsupported"]) == ([unused], [])
    assert [row["readable"] for row in facts["stored"]] == [True, False]


@pytest.mark.real
def test_a_published_model() -> None:
    facts = facts_of("inspect", "smollm2")
    totals = {form: by_kind["total"] for form, by_kind in facts["bytes"].items()}
    assert facts["parameters"]["total"] == 134_515_008
    assert totals == {"stored": 96_576_768, "f32": 538_060_032, "int8": 151_430_400, "int4": 111_617_280}
    assert facts["shapes"]["rope"] == {
        "dimensions": 64,
        "base": 100_000.0,
        "slowed_short": 1.0,
        "slowed_long": 1.0,
    }
    assert (facts["unused"], facts["unsupported"]) == ([], [])


def test_a_damaged_file_is_no_model_at_all(tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"!")
    assert isinstance(problem_of("inspect", folder, "--json"), CheckpointProblem)


def test_inspect_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    extra = {"extra.weight": np.ones(1000, np.int8)}
    rewritten(build_variant("gemma3", Path("good")), lambda tensors: tensors.update(extra))
    changed(build("llama", Path("bad")), lambda config: config.update(model_type="mixtral"))
    assert run("inspect", "good").stdout == snapshot
    assert run("inspect", "bad").stdout == snapshot


# --- fetch ----------------------------------------------------------------------------------------


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache; `fake` is all that can be fetched."""
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "wheels").mkdir()
    fakes.make_parts(tmp_path / "wheels")
    for name, value in fakes.pip_environment(folder=tmp_path / "wheels").items():
        monkeypatch.setenv(name, value)
    real = dict(ASSETS)
    ASSETS.clear()
    ASSETS["fake"] = fakes.fake_asset()
    yield tmp_path / "cache"
    ASSETS.clear()
    ASSETS.update(real)


def test_fetch_says_where_how_much_and_under_which_licence(fake: Path) -> None:
    row = {"name": "fake", "what": "random bytes", "bytes": 600_000, "licence": "none"}
    assert facts_of("fetch", "--list") == {"rows": [row | {"fetched": False}]}
    path = fake / "fake" / "fake.bin"
    assert facts_of("fetch", "fake") == row | {"path": str(path)}
    assert path.read_bytes() == fakes.JOINED
    assert run("fetch", "fake").stdout == f"{path}\n600,000 bytes, licence: none\n"
    assert facts_of("fetch", "--list") == {"rows": [row | {"fetched": True}]}


def test_an_asset_of_many_files_is_weighed_without_its_receipt(fake: Path) -> None:
    first, _ = fakes.fake_asset().packages
    ASSETS["fake"] = replace(fakes.fake_asset(sha256=""), packages=(first,), file="")
    facts = facts_of("fetch", "fake")
    assert (facts["path"], facts["bytes"]) == (str(fake / "fake"), 300_000)


def test_fetch_refuses(fake: Path) -> None:
    assert problem_of("fetch", "fak", "--json").fix == "did you mean 'fake'?"
    assert problem_of("fetch").fix == "trisplit fetch --list shows the names"
    assert not (fake / "fak").exists()


def test_the_list_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    assert run("fetch", "--list").stdout == snapshot


# --- as a process ---------------------------------------------------------------------------------


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=120
    )


def test_a_problem_is_two_lines_and_an_exit_code(tiny: Build) -> None:
    done = python("-m", "trisplit", "plan", str(tiny("llama")), "--stations", "0", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "error: --stations 0 makes no sense\n  fix: use 1 to 1000, or the addresses of running stations\n"
    )


def test_help_imports_nothing_heavy() -> None:
    heavy = ("numpy", "onnxruntime", "onnx", "gguf", "tokenizers", "rich.progress", "picows", "asyncio")
    said = python("-c", f"import sys, trisplit.cli; print([m for m in {heavy} if m in sys.modules])")
    assert said.stdout == "[]\n", said.stderr
