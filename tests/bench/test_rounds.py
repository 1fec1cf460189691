"""Turns are taken in order, one at a time; what goes wrong is said; and no process outlives us."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from trisplit.bench import rounds
from trisplit.bench.posts import Post, Settings, reference
from trisplit.bench.rounds import alternate, spread, started
from trisplit.errors import PeerProblem

# A worker that writes down when it begins and ends its work, and what its environment says.
WORKER = """
import asyncio, os, sys, time
from trisplit.bench.peers import Line
name, log = sys.argv[1:]
def note(what):
    with open(log, "a") as file:
        file.write(f"{what} {name}\\n")
async def answer(order):
    note("begins")
    await asyncio.sleep(0.01)
    note("ends")
    return {"ms": [order["ms"]], "limit": os.environ["OPENBLAS_NUM_THREADS"]}
line = Line()
note("loads")
asyncio.run(line.serve({"pid": os.getpid()}, answer))
"""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)


def post(name: str, *command: str | Path, threads: int = 1) -> Post:
    return Post(name=name, command=(sys.executable, "-c", *map(str, command)), threads=threads)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pids: Sequence[int], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_alive, pids))


def test_turns_alternate_and_never_overlap(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def run() -> list[list[dict[str, object]]]:
        posts = [post(name, WORKER, name, log) for name in "abc"]
        async with started(posts) as (a, b, c):
            return await alternate([(a, {"ms": 1.0}), (b, {"ms": 2.0}), (c, {"ms": 3.0})], rounds=3)

    answers = asyncio.run(run())
    turns = [f"{what} {name}" for name in "abc" * 3 for what in ("begins", "ends")]
    assert log.read_text().splitlines() == ["loads a", "loads b", "loads c", *turns]
    assert [[a["ms"] for a in taken] for taken in answers] == [
        [[1.0]] * 3,
        [[2.0]] * 3,
        [[3.0]] * 3,
    ]


def test_one_worker_can_take_several_turns_of_a_round(tmp_path: Path) -> None:
    async def run() -> list[list[dict[str, object]]]:
        async with started([post("a", WORKER, "a", tmp_path / "log")]) as (a,):
            return await alternate([(a, {"ms": 1.0}), (a, {"ms": 2.0})], rounds=2)

    assert [[answer["ms"] for answer in taken] for taken in asyncio.run(run())] == [[[1.0]] * 2, [[2.0]] * 2]


def test_libraries_are_told_their_threads_before_they_load(tmp_path: Path) -> None:
    async def run() -> list[str]:
        posts = [post(str(n), WORKER, str(n), tmp_path / "log", threads=n) for n in (1, 3)]
        async with started(posts) as workers:
            return [(await worker.ask({"ms": 0.0}))["limit"] for worker in workers]

    assert asyncio.run(run()) == ["1", "3"]


def test_the_spread_is_that_of_all_rounds() -> None:
    assert spread([{"ms": [1.0, 2.0]}, {"ms": [3.0]}]).p50_ms == 2.0
    assert spread([{"ms": [1.0, 2.0]}, {"ms": [3.0]}]).n == 3


# --- what goes wrong ------------------------------------------------------------------------------

ENDS = "raise SystemExit(3)"
REFUSES = "from trisplit.bench.peers import Line; Line().refuse('no such kernel', fix='use another')"
SILENT = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (ENDS, "the process of bad ended"),
        (REFUSES, "bad: no such kernel"),
        (SILENT, "bad said nothing for 1 s"),
        ("print('not json', flush=True)", "the process of bad ended"),
    ],
)
def test_a_worker_that_fails_is_named_and_the_others_end(
    code: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LOAD_DEADLINE_S", 1.0)
    monkeypatch.setattr(rounds, "END_DEADLINE_S", 0.2)
    pids: list[int] = []

    async def run() -> None:
        async with started([post("good", WORKER, "good", tmp_path / "log")]) as (good,):
            pids.append(good.ready["pid"])
            async with started([post("bad", code)]):
                pytest.fail("it started")

    with pytest.raises(PeerProblem) as caught:
        asyncio.run(run())
    assert caught.value.what == what
    assert gone(pids)


def test_a_worker_that_dies_between_orders_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        async with started([post("a", WORKER, "a", tmp_path / "log")]) as (a,):
            os.kill(a.ready["pid"], signal.SIGKILL)
            assert gone([a.ready["pid"]])
            await a.ask({"ms": 1.0})

    with pytest.raises(PeerProblem, match="the process of a ended"):
        asyncio.run(run())


def test_a_problem_of_our_own_worker_is_raised_here(tmp_path: Path) -> None:
    nothing = Settings(model=tmp_path / "nothing.gguf", dtype="f32", threads=1, context=32)

    async def run() -> None:
        async with started([nothing.decoder()]):
            pytest.fail("it loaded")

    with pytest.raises(PeerProblem, match=r"one process, f32, --threads 1: .*nothing\.gguf"):
        asyncio.run(run())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_workers_end_with_the_process_that_started_them(how: signal.Signals) -> None:
    """Whatever they are doing: one waits for orders, one is at work for a minute."""
    code = """
import asyncio, json, sys
from trisplit.bench.posts import Post, reference
from trisplit.bench.rounds import started
busy = "import time; from trisplit.bench.peers import Line; Line().say({}); time.sleep(60)"
async def run():
    posts = [Post(name="busy", command=(sys.executable, "-c", busy), threads=1), reference("read", 4096, 1)]
    async with started(posts) as workers:
        pids = [worker._process.pid for worker in workers]
        print(json.dumps(pids), flush=True)
        await asyncio.sleep(60)
asyncio.run(run())
"""
    parent = subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pids = json.loads(parent.stdout.readline())
    assert all(map(is_alive, pids))
    parent.send_signal(how)
    parent.wait(10)
    parent.stdout.close()
    assert gone(pids)


def test_the_references_have_names_of_their_own() -> None:
    assert reference("sgemv", 8, 1).name != reference("read", 8, 1).name != reference("read", 8, 2).name
