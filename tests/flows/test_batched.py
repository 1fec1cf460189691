"""`up --batch` and `gate batch --mesh`, by real processes: measured there, and set by what was measured."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.cli.running import facts_of, problem_of, run
from tests.flows.test_endings import children
from tests.flows.test_up import Up, brought_up
from trisplit.mesh.client import client
from trisplit.mesh.trust import NOBODY
from trisplit.wire.questions import Judge, Judged, Judging

Tiny = Callable[[str], Path]
TIDE = ("the tide", "--max-tokens", "9", "--ignore-eos")
TINY = ("--stations", "2", "--sessions", "2", "--context", "64")


def answer(up: Up) -> list[int]:
    ids: list[int] = facts_of("generate", "--mesh", up.address, *TIDE)["token_ids"]
    return ids


def test_a_mesh_is_measured_when_it_comes_up_and_again_when_asked(tiny: Tiny) -> None:
    with brought_up(tiny("llama"), *TINY, "--batch", "auto") as up:
        first = up.said["batch"]
        assert (first["sessions"], first["stations"], first["tokens_equal"]) == (2, 2, True)
        assert up.said["batched"] == first["on"] == (first["ratio"] <= 0.965)
        before = answer(up)
        words = ("--sessions", "1", "--tokens", "4", "--rounds", "2")
        (verdict,) = facts_of("gate", "batch", "--mesh", up.address, *words)["rows"]
        assert (verdict["sessions"], verdict["tokens"], verdict["rounds"]) == (1, 4, 2)
        now = facts_of("status", up.address)
        assert (now["batched"], now["batch"]) == (verdict["on"], verdict)
        shown = run("status", up.address).stdout
        assert f"sends {'batched' if verdict['on'] else 'unbatched'}; measured with 1 sessions: " in shown
        assert answer(up) == before
        many = problem_of("gate", "batch", "--mesh", up.address, "--sessions", "3")
        assert many.what == "3 sessions at once, and the mesh has 2"


def test_a_station_that_dies_while_it_is_measured_is_made_good(tiny: Tiny) -> None:
    with brought_up(tiny("llama"), *TINY, "--spares", "1", "--batch", "on") as up:
        assert (up.said["batched"], up.said["batch"]) == (True, None)
        before = answer(up)

        async def story() -> Judged:
            async with client(up.address, NOBODY) as judge, client(up.address, NOBODY) as asking:
                steps = judge.judge(Judge(2, 20, 20))
                assert isinstance(await anext(steps), Judging)
                os.kill(min(children(up.process.pid)), signal.SIGKILL)
                async for said in steps:
                    last = said
                assert (await asking.report()).recovered == 1
                assert isinstance(last, Judged)
                return last

        last = asyncio.run(story())
        now = facts_of("status", up.address)
        assert last.batch.tokens_equal
        assert now["batched"] == now["batch"]["on"] == last.batch.on
        assert answer(up) == before


def test_what_makes_no_sense_is_refused(tiny: Tiny) -> None:
    model = tiny("llama")
    assert "'perhaps'" in problem_of("up", model, "--stations", "1", "--batch", "perhaps").what
    assert "neither a model nor a mesh" in problem_of("gate", "batch").what
    refused = problem_of("gate", "batch", model, "--mesh", "127.0.0.1:1", "--stations", "2")
    assert refused.what.endswith("--stations cannot be chosen with --mesh: it was brought up with its own")
