"""`generate`, `chat` and `up` guess ahead: by themselves where legs are long, or as they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import facts_of, problem_of, run
from tests.flows.test_up import brought_up, trisplit
from trisplit.bench.delays import Delay
from trisplit.bench.relay import RelayLink, relays
from trisplit.errors import RequestProblem, UnknownName

Tiny = Callable[[str], Path]
TOKENS = 24
PROMPT = "the tide goes out; the tide comes in; the tide goes out; the tide"
WORDS = ("--max-tokens", str(TOKENS), "--ignore-eos", "--context", "128")


def behind_relays(places: list[str], one_way_ms: float, story: Callable[[str], None]) -> None:
    """Tells the story of these stations as far away as that, for whoever calls them."""

    async def far() -> None:
        delay = Delay(one_way_ms=one_way_ms)
        links = [RelayLink(caller="all", station=place, address=place, delay=delay) for place in places]
        async with relays(links) as slow:
            there = slow.addresses_for["all"]
            await asyncio.to_thread(story, ",".join(there[place] for place in places))

    asyncio.run(far())


def test_long_legs_are_drafted_for_unless_told_otherwise(tiny: Tiny, stations: dict[str, str]) -> None:
    model, places = tiny("llama"), [stations[name] for name in ("s1", "s2", "s3")]
    near = facts_of("generate", model, PROMPT, *WORDS, "--stations", ",".join(places), "--check")
    assert (near["drafts"], near["identical_to_one_machine"]) == (None, True)

    def story(there: str) -> None:
        far = facts_of("generate", model, PROMPT, *WORDS, "--stations", there, "--check")
        assert far["drafts"]["draft"] == "auto"
        assert far["drafts"]["right"] > 0
        assert far["drafts"]["trip_ms"] > 3 * 4.0
        plain = facts_of("generate", model, PROMPT, *WORDS, "--stations", there, "--speculate", "none")
        assert (plain["drafts"], plain["token_ids"]) == (None, near["token_ids"])
        assert far["token_ids"] == near["token_ids"]
        assert far["identical_to_one_machine"]

    behind_relays(places, 4.0, story)


@pytest.mark.parametrize(
    ("draft", "go", "topology"),
    [
        ("twin:int8", "auto", "ring"),
        ("ngram", "stream", "chain"),
        ("twin:int4", "rounds:4", "ring"),
        ("twin:int8", "rounds:4", "chain"),
        ("none", "auto", "chain"),
    ],
)
def test_a_draft_that_is_named_is_used_anywhere(
    draft: str, go: str, topology: str, tiny: Tiny, stations: dict[str, str]
) -> None:
    where = ("--stations", ",".join([*stations.values()][:2]), "--topology", topology)
    how = ("--speculate", draft, "--drafts-go", go, "--temperature", "0.8", "--seed", "3", "--check")
    facts = facts_of("generate", tiny("llama"), PROMPT, *WORDS, *where, *how)
    assert facts["identical_to_one_machine"]
    assert facts["drafts"] is None or facts["drafts"]["draft"] == draft


def test_what_it_has_gained_is_said(tiny: Tiny, stations: dict[str, str]) -> None:
    def story(there: str) -> None:
        told = run("generate", tiny("llama"), PROMPT, *WORDS, "--stations", there, "--speculate", "twin:int8")
        (line,) = [line for line in told.stderr.splitlines() if line.startswith("drafted by twin:int8: ")]
        assert " guesses right, " in line
        assert " × a token a trip (" in line

    behind_relays([stations["s1"], stations["s2"]], 4.0, story)


def test_a_conversation_is_drafted_too(tiny: Tiny, stations: dict[str, str]) -> None:
    from typer.testing import CliRunner

    from trisplit.cli.app import app

    said = "the weights of a model\nand of a token?\n"
    where = ["chat", str(tiny("llama")), "--max-tokens", "9"]
    alone = CliRunner().invoke(app, where, input=said)
    mesh = [*where, "--stations", ",".join([*stations.values()][:2]), "--speculate", "twin:int8"]
    drafted = CliRunner().invoke(app, mesh, input=said)
    assert drafted.exit_code == 0, drafted.exception
    assert drafted.stdout == alone.stdout


def test_a_mesh_that_is_up_drafts_for_its_clients(tiny: Tiny) -> None:
    model = tiny("llama")
    alone = facts_of("generate", model, PROMPT, *WORDS)
    how = ("--speculate", "twin:int8", "--drafts-go", "rounds:4")
    with brought_up(model, "--stations", "2", "--context", "128", *how) as up:
        asked: list[Any] = []
        for _ in range(2):
            told = trisplit("generate", "--mesh", up.address, "--json", *WORDS[:3], PROMPT)
            asked.append(json.loads(told.stdout))
    for facts in asked:
        assert facts["token_ids"] == alone["token_ids"]
        assert facts["drafts"]["draft"] == "twin:int8"
        assert facts["drafts"]["right"] > 0


@pytest.mark.parametrize(
    ("words", "kind", "what", "fix"),
    [
        (("--speculate", "twins:int8"), UnknownName, "twins", "did you mean 'twin'"),
        (("--speculate", "twin:int7", "--stations", "2"), UnknownName, "int7", "int8"),
        (("--speculate", "ngram"), RequestProblem, "this is one process", "--stations"),
        (("--drafts-go", "backwards"), RequestProblem, "backwards", "stream"),
        (("--drafts-go", "rounds:0"), RequestProblem, "rounds:0", "rounds:8"),
        (("--drafts-go", "stream:3"), RequestProblem, "stream:3", "rounds:8"),
        (
            ("--speculate", "ngram", "--stations", "3", "--cut", "thirds", "--overlap", "1"),
            RequestProblem,
            "do not go together",
            "--overlap",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    words: tuple[str, ...], kind: type[Exception], what: str, fix: str, tiny: Tiny
) -> None:
    problem = problem_of("generate", tiny("llama"), PROMPT, *words)
    assert isinstance(problem, kind)
    assert what in problem.what
    assert fix in problem.fix
