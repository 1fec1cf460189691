"""`generate --overlap`: a mesh that says what the shadow simulates, what is told of it, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.running import facts_of, problem_of, run
from tests.flows.test_ahead import simulated
from trisplit.cli import names
from trisplit.cli.app import app
from trisplit.errors import RequestProblem
from trisplit.mesh import shadow
from trisplit.mesh.overlap import Early
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.decoder import PREFILL_CHUNK
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
TOKENS = 6
WORDS = ("--max-tokens", str(TOKENS), "--ignore-eos", "--context", "71", "--cut", "thirds")
PROMPT = "the tide goes out; "


def at(stations: dict[str, str], n: int = 3) -> tuple[str, str]:
    return "--stations", ",".join([*stations.values()][:n])


@pytest.fixture(scope="module")
def prompts(tiny: Tiny) -> list[tuple[str, list[int]]]:
    """Texts of one token more than a chunk, and their ids."""
    tokenizer, found = open_model(tiny("llama")).tokenizer(), []
    for n in range(3):
        begun = tokenizer.encode(f"{n} boats; {PROMPT * 11}")[1 : PREFILL_CHUNK + 1]
        text = tokenizer.decode(begun)
        found.append((text, tokenizer.encode(text)))
    assert [len(ids) for _, ids in found] == [PREFILL_CHUNK + 1] * 3
    return found


@pytest.fixture
def record(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Has the gate judge a tiny model on articles in the place of what would be fetched."""
    rows = [{"title": str(n), "text": f"Text {n}: " + "the tide goes out; " * 30} for n in range(10)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def judged(*words: str, model: str = "llama") -> Path:
        out = tmp_path / f"{model}.json"
        with monkeypatch.context() as patch:
            patch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")
            short = ("--rounds", "2", "--windows", "1", "--out", out)
            result = run("gate", "overlap", tiny(model), *short, *words)
        assert result.exit_code == 0, result.exception
        assert f"recorded in {out}" in result.stdout
        return out

    return judged


def tokens(facts: dict[str, Any]) -> list[int]:
    ids: list[int] = facts["token_ids"]
    assert len(ids) == TOKENS
    return ids


# --- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "ahead", "topology"),
    [
        *(("all", (1, 2, 3), topology) for topology in TOPOLOGIES),
        ("3,1", (1, 3), "ring"),
        ("none", (), "ring"),
    ],
)
def test_a_mesh_says_what_the_shadow_says(
    asked: str,
    ahead: tuple[int, ...],
    topology: str,
    tiny: Tiny,
    stations: dict[str, str],
    prompts: list[tuple[str, list[int]]],
) -> None:
    model, differ = tiny("llama"), 0
    for text, ids in prompts[:2]:
        truth, plain = (simulated(open_model(model), layers, Early(), ids) for layers in (ahead, ()))
        where = (*at(stations), "--topology", topology, "--overlap", asked)
        assert tokens(facts_of("generate", model, text, *WORDS, *where)) == truth.token_ids
        differ += truth.token_ids != plain.token_ids
    assert bool(differ) == bool(ahead)


def test_what_starts_ahead_is_told_and_nothing_claimed(tiny: Tiny, stations: dict[str, str]) -> None:
    words = (tiny("llama"), PROMPT, "--cut", "thirds", *at(stations), "--overlap", "3,1")
    facts = facts_of("generate", *words)
    assert facts["overlap"] == {
        "asked": "3,1",
        "layers": [1, 3],
        "exact": False,
        "seed": "x+attn",
        "kv": "canonical",
    }
    assert facts["identity_withheld"].startswith("layers 1, 3 start ahead")
    assert facts["identical_to_one_machine"] is None
    told = " ".join(run("generate", *words).stderr.split())
    assert "overlap: layers 1, 3 start ahead on x+attn, keys and values canonical (--overlap 3,1)" in told
    assert "identical to one machine: not claimed, layers 1, 3 start ahead" in told


def test_check_reports_other_tokens_and_is_content(
    tiny: Tiny, stations: dict[str, str], prompts: list[tuple[str, list[int]]]
) -> None:
    model, seen = tiny("llama"), set()
    for text, ids in prompts:
        ours, theirs = (
            simulated(open_model(model), layers, Early(), ids).token_ids for layers in ((1, 2, 3), ())
        )
        alike = next((i for i in range(TOKENS) if ours[i] != theirs[i]), TOKENS)
        words = ("generate", model, text, *WORDS, *at(stations), "--overlap", "all", "--check")
        facts = facts_of(*words)
        assert (facts["identical_to_one_machine"], facts["tokens_alike"]) == (alike == TOKENS, alike)
        result = run(*words)
        told = f"all {TOKENS} tokens alike" if alike == TOKENS else f"first {alike} of {TOKENS} tokens alike"
        assert (result.exit_code, told in result.stderr) == (0, True)
        seen.add(alike == TOKENS)
    assert False in seen


def test_parallel_blocks_overlap_exactly_and_need_not_be_asked(tiny: Tiny, stations: dict[str, str]) -> None:
    for asked in ("none", "all", "2"):
        words = (tiny("neox"), PROMPT, *WORDS, *at(stations), "--overlap", asked, "--check")
        facts = facts_of("generate", *words)
        assert (facts["overlap"]["layers"], facts["overlap"]["exact"]) == ([1, 2, 3], True)
        assert (facts["identical_to_one_machine"], facts["identity_withheld"]) == (True, None)
    told = run("generate", *words).stderr
    assert "overlap: in layers 1-3 attention and FFN run at once, exactly" in told
    assert "identical to one machine: yes" in told


def test_a_conversation_starts_ahead_too(tiny: Tiny, stations: dict[str, str]) -> None:
    words = ("chat", tiny("llama"), "--cut", "thirds", *at(stations), "--overlap", "all", "--max-tokens", "3")
    result = CliRunner().invoke(app, list(map(str, words)), input="the tide\n")
    assert result.exit_code == 0, result.exception
    assert "layers 1-3 start ahead" in result.stderr


# --- records --------------------------------------------------------------------------------------


def test_a_record_says_which_layers_and_how(
    record: Callable[..., Path],
    tiny: Tiny,
    stations: dict[str, str],
    prompts: list[tuple[str, list[int]]],
) -> None:
    out = record("--kl", "1e9", "--layers", "2-3", "--seed", "x", "--kv", "stale")
    said = json.loads(out.read_text())
    assert (said["on"], said["measure"], said["at_most"], said["off"]) == ([2, 3], "kl", 1e9, {})
    text, ids = prompts[0]
    facts = facts_of("generate", tiny("llama"), text, *WORDS, *at(stations), "--overlap", out)
    truth = simulated(open_model(tiny("llama")), (2, 3), Early("x", "stale"), ids)
    assert tokens(facts) == truth.token_ids
    assert (facts["overlap"]["layers"], facts["overlap"]["seed"]) == ([2, 3], "x")


def test_a_record_in_which_nothing_passes_leaves_everything_as_it_was(
    record: Callable[..., Path], tiny: Tiny, stations: dict[str, str]
) -> None:
    out = record()
    said = json.loads(out.read_text())
    assert (said["on"], sorted(said["off"])) == ([], ["1", "2", "3"])
    words = ("generate", tiny("llama"), PROMPT, *at(stations), "--overlap", out, "--check")
    facts = facts_of(*words)
    assert (facts["identical_to_one_machine"], facts["identity_withheld"]) == (True, None)
    assert facts["overlap"]["layers"] == []
    assert "overlap: OFF, no layer may start ahead" in run(*words).stderr


def test_the_record_of_parallel_blocks_changes_nothing(
    record: Callable[..., Path], tiny: Tiny, stations: dict[str, str]
) -> None:
    out = record(model="neox")
    words = (tiny("neox"), PROMPT, *WORDS, *at(stations), "--overlap", out, "--check")
    assert facts_of("generate", *words)["identical_to_one_machine"] is True


def test_a_record_is_for_the_model_that_was_judged(
    record: Callable[..., Path], tiny: Tiny, stations: dict[str, str]
) -> None:
    where = (PROMPT, *WORDS, *at(stations), "--overlap", record("--kl", "1e9"))
    assert "another model" in problem_of("generate", tiny("mistral"), *where).what
    assert "it is to run in int8" in problem_of("generate", tiny("llama"), *where, "--dtype", "int8").what


def test_where_no_record_can_be_written_nothing_is_measured(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(shadow, "Shadow")
    out = tmp_path / "no" / "record.json"
    assert "no record can be written" in problem_of("gate", "overlap", tiny("llama"), "--out", out).what


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("0", "--overlap '0' are no layers"),
        ("1,4", "--overlap '4' are no layers"),
        ("3-2", "--overlap '3-2' are no layers"),
        (",", "--overlap '' are no layers"),
        ("some", "--overlap some is neither layers nor a file"),
        ("", "--overlap  is neither layers nor a file"),
        ("/", "record / cannot be read"),
        (__file__, "is no record of a gate"),
    ],
)
def test_what_makes_no_sense(asked: str, said: str, tiny: Tiny, stations: dict[str, str]) -> None:
    problem = problem_of("generate", tiny("llama"), PROMPT, *WORDS, *at(stations), "--overlap", asked)
    assert isinstance(problem, RequestProblem)
    assert said in problem.what


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stations", "3"), "in the cut layers no attention stands alone"),
        (("--stations", "3", "--cut", "recut"), "in the cut recut no attention stands alone"),
        ((), "in one process no layer starts ahead"),
        (("--mesh", "127.0.0.1:1"), "--overlap cannot be chosen with --mesh"),
    ],
)
def test_where_no_layer_can(words: tuple[str, ...], said: str, tiny: Tiny) -> None:
    model = [] if "--mesh" in words else [tiny("llama")]
    problem = problem_of("generate", *model, PROMPT, *words, "--overlap", "all")
    assert said in problem.what
    assert problem.fix


def test_not_together_with_failover(tiny: Tiny) -> None:
    words = ("--stations", "3", "--cut", "thirds", "--overlap", "all")
    problem = problem_of("up", tiny("llama"), *words)
    assert "cannot be played again when a station is lost" in problem.what
    assert "trisplit up" in problem.fix
