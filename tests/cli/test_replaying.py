"""`trisplit generate`: the answer that was given, or a run; in one process, and where no run is wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import facts_of, problem_of, run
from trisplit.cache import ledger, marks, open_store
from trisplit.models.checkpoint import Files
from trisplit.models.decoder import Decoder

Tiny = Callable[[str], Path]

WORDS = ("the weights of a model", "--max-tokens", "8", "--ignore-eos", "--threads", "1")
SAME = ("text", "token_ids", "finish_reason", "prompt_tokens", "context", "threads", "legs_per_token")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))


def asked(model: Path, *more: str) -> dict[str, Any]:
    facts: dict[str, Any] = facts_of("generate", model, *WORDS, *more)
    return facts


def entries() -> int:
    with open_store() as store:
        return len(store.entries())


def test_the_second_answer_is_the_first_one(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    first = asked(model, "--cache")
    monkeypatch.setattr(Decoder, "generate", None)  # nothing may be computed
    second = asked(model, "--cache")
    assert [first["from_cache"], second["from_cache"]] == [False, True]
    assert [first[name] for name in SAME] == [second[name] for name in SAME]
    assert second["stations"] == []
    told = run("generate", model, *WORDS, "--cache")
    assert told.stdout == first["text"] + "\n"
    assert "from the cache: nothing was computed" in told.stderr
    with open_store() as store:
        records, _ = ledger.read(store.folder / ledger.FILE)
    assert [(record.surface, record.outcome) for record in records] == [
        ("generate", "miss"),
        ("generate", "hit"),
        ("generate", "hit"),
    ]


def test_stop_strings_and_texts_are_made_anew(tiny: Tiny) -> None:
    """They are cut where a run cuts them."""
    stop = asked(tiny("llama"))["text"][2:5]
    first, second = (asked(tiny("llama"), "--cache", "--stop", stop) for _ in range(2))
    assert (first["from_cache"], second["from_cache"]) == (False, True)
    assert [first[name] for name in SAME] == [second[name] for name in SAME]


@pytest.mark.parametrize(
    "other",
    [("--max-tokens", "7"), ("--seed", "1"), ("--temperature", "0.5"), ("--dtype", "int8"), ("--stop", "q")],
    ids=" ".join,
)
def test_whatever_was_asked_otherwise_is_run(other: tuple[str, ...], tiny: Tiny) -> None:
    asked(tiny("llama"), "--cache")
    assert asked(tiny("llama"), "--cache", *other)["from_cache"] is False


def test_another_model_is_run(tiny: Tiny) -> None:
    asked(tiny("llama"), "--cache")
    assert asked(tiny("mistral"), "--cache")["from_cache"] is False


def test_nobody_who_wants_a_run_is_answered_so(tiny: Tiny) -> None:
    for words in (("--no-cache",), ("--check",), ("--cache", "--check"), ("--stations", "2")):
        for _ in range(2):
            assert asked(tiny("llama"), *words)["from_cache"] is False
    assert entries() == 0


def test_one_process_replays_where_nothing_was_said(tiny: Tiny) -> None:
    assert [asked(tiny("llama"))["from_cache"] for _ in range(2)] == [False, True]


def test_no_store_is_no_reason_to_fail(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "cache" / "results").mkdir(mode=0o755)
    (tmp_path / "cache" / "results").chmod(0o755)
    assert [asked(tiny("llama"))["from_cache"] for _ in range(2)] == [False, False]
    assert "open to other users" in problem_of("generate", tiny("llama"), *WORDS, "--cache").what


def test_weights_are_read_once_for_their_digest(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "SETTLED_AFTER_S", -1.0)
    asked(tiny("llama"))
    with monkeypatch.context() as patched:
        patched.setattr(Files, "content_digest", None)
        assert asked(tiny("llama"))["from_cache"]
        assert asked(tiny("llama"), "--seed", "2", "--temperature", "1")["from_cache"] is False


@pytest.mark.parametrize("settled_after_s", [-1.0, 1e9])
def test_a_damaged_answer_is_run_again(
    settled_after_s: float, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the digest of a model that was left alone for long lies beside the answer."""
    monkeypatch.setattr(marks, "SETTLED_AFTER_S", settled_after_s)
    first = asked(tiny("llama"), "--cache")
    with open_store() as store:
        for entry in store.entries():
            (store.folder / f"{entry.key}.0").write_bytes(b"[1,2]")
    again = asked(tiny("llama"), "--cache")
    assert (again["from_cache"], again["token_ids"]) == (False, first["token_ids"])


def test_a_mesh_computes(tiny: Tiny) -> None:
    assert "one process" in problem_of("generate", tiny("llama"), "a", "--cache", "--stations", "2").what
    problem = problem_of("generate", "a", "--cache", "--mesh", "127.0.0.1:1")
    assert "--cache cannot be chosen with --mesh" in problem.what
