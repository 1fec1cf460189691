"""What hits and runs take: rows that all printed the same, engines that are there or not, energy."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import facts_of, problem_of, run
from tests.scripts.worlds import NODE, needs_node
from trisplit.bench import cache as ruler
from trisplit.bench import ways
from trisplit.bench.cache import COMMANDS, CacheRow, placed, spreads
from trisplit.bench.residing import Residence
from trisplit.bench.script_peers import LeftOut, Peer, find_peers
from trisplit.cache.store import open_store
from trisplit.errors import RequestProblem, UnknownName
from trisplit.scripts.asking import Line, Resident

CACHE_COLUMNS = "command path engine_version warm min_ms median_ms cpu_ms ratio_to_bun ratio_to_node runs"


@pytest.fixture
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bun of a kind, a deno that is none, and no third; benches that run each way but once."""
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ruler, "LEAST_RUNS", 1)
    folder = tmp_path / "node_modules" / ".bin"
    folder.mkdir(parents=True)
    says = 'if [ "$1" = --version ]; then echo 9.8.7; else echo "${SAYS:-hello}"; fi'
    for name, text in (("bun", says), ("deno", "echo none")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return tmp_path


@needs_node
def test_rows_of_every_way(peers: Path) -> None:
    said = facts_of(
        *("bench", "cache", "--commands", "hello.js", "--peers", "bun,deno", "--peers-folder", peers),
        *("--runs", "3", "--most-s", "0"),
    )
    assert list(said) == ["rows", "spread", "left_out", "machine", "command"]
    rows: Sequence[dict[str, Any]] = said["rows"]
    assert {" ".join(row) for row in rows} == {CACHE_COLUMNS}
    by_way = {(row["path"], row["warm"]): row for row in rows}
    ours = (("python", False), ("python", True), ("resident", False), ("resident", True))
    for way in (*ours, ("in-process", True), ("bun", False)):
        assert by_way[way]["median_ms"] >= by_way[way]["min_ms"] > 0
    bun, inside = by_way["bun", False], by_way["in-process", True]
    assert (bun["engine_version"], bun["ratio_to_bun"]) == ("9.8.7", 1)
    assert inside["ratio_to_bun"] == pytest.approx(bun["median_ms"] / inside["median_ms"])
    assert inside["ratio_to_node"] is None
    assert said["spread"] == []
    assert [one["what"] for one in said["left_out"]] == ["deno"]
    assert not list((peers / "cache").iterdir())


@pytest.fixture
def nobody_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    """One takes a while to start, and one test that has it is enough."""
    monkeypatch.setattr(ways, "living_in", lambda *_: nullcontext(None))


@needs_node
@pytest.mark.usefixtures("nobody_resident")
def test_energy_follows_from_processor_time(peers: Path) -> None:
    asked = ("--samples", "1", "--operations", "1000", "--watts", "20", "--ops-per-day", "1e9")
    said = facts_of("bench", "energy", "--peers", "bun", "--peers-folder", peers, *asked)
    rows = {row["path"]: row for row in said["rows"]}
    assert rows.keys() >= {"python", "in-process", "bun", "origin"}
    bun, origin = rows["bun"], rows["origin"]
    assert bun["cpu_s"] == pytest.approx(bun["cpu_ms"])
    assert bun["joules"] == pytest.approx(20 * bun["cpu_s"])
    assert bun["year_kwh"] == pytest.approx(bun["kwh"] * 1e6 * 365)
    assert (origin["samples"], origin["joules"]) == (0, pytest.approx(45 * 112))
    assert said["assumptions"][0]["source"] == "stated"
    told = {one["what"]: one["why"] for one in said["left_out"]}
    assert ("rapl_joules" in told) == (bun["rapl_joules"] is None)


@needs_node
@pytest.mark.usefixtures("nobody_resident")
def test_a_way_that_prints_other_things_is_no_row(peers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYS", "goodbye")
    monkeypatch.setenv("TRISPLIT_CACHE", str(peers / "cache"))
    asked = ("--commands", "hello.js", "--peers-folder", peers, "--own-environment")
    problem = problem_of("bench", "cache", *asked, "--peers", "bun")
    assert "hello.js by" in problem.what
    assert "printed other things" in problem.what


def test_a_resident_that_goes_is_told_of(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with Resident(Line(ours)) as resident, open_store(tmp_path / "results") as store:
        gone = Residence(resident=resident, store=store, pid=os.getpid())
        with pytest.raises(RequestProblem, match="is gone"):
            gone.asked(tmp_path / "a.js")


def test_engines_that_are_there(peers: Path) -> None:
    found, missing = find_peers(["bun", "deno"], peers)
    assert found == [Peer(name="bun", version="9.8.7", words=(str(peers / "node_modules" / ".bin" / "bun"),))]
    assert missing == [LeftOut(what="deno", why=f"neither on PATH nor in {peers}: make peers-scripts")]
    with pytest.raises(UnknownName):
        find_peers(["bum"], peers)
    old = Peer(name="node", version="20.20.2", words=("node",))
    assert [old.runs(name) for name in ("a.js", "a.ts")] == [True, False]
    assert replace(old, version="22.18.0").runs("a.ts")
    assert not replace(old, version="22.6.0").runs("a.ts")
    if NODE is not None:
        assert find_peers(["node"], peers)[0][0].program == str(Path(NODE).resolve())


def test_scripts_of_both_kinds_are_there_and_say_nothing_that_is_impure(tmp_path: Path) -> None:
    for command in COMMANDS:
        text = placed(command, tmp_path).read_text()
        assert "import" not in text
    assert len((tmp_path / "typed.ts").read_text().splitlines()) == 200


def test_how_far_hits_lie_apart() -> None:
    row = CacheRow(
        command="fib20.js",
        path="launcher",
        engine_version="20",
        warm=True,
        min_ms=1.0,
        median_ms=2.0,
        cpu_ms=1.0,
        ratio_to_bun=None,
        ratio_to_node=None,
        runs=3,
    )
    rows = [
        row,
        replace(row, command="fib40.js", median_ms=2.5),
        replace(row, command="hello.js", median_ms=9),
    ]
    rows += [replace(row, command="fib40.js", warm=False, median_ms=99), replace(row, command="fib20.ts")]
    (spread,) = spreads(rows)
    assert (spread.path, spread.kind, spread.apart_percent) == ("launcher", "js", pytest.approx(25))


def test_refused() -> None:
    assert isinstance(problem_of("bench", "cache", "--commands", "hi.js"), UnknownName)
    assert isinstance(problem_of("bench", "energy", "--command", "hi.js"), UnknownName)
    assert "--pue" in problem_of("bench", "energy", "--pue", "-1").what
    assert run("bench", "cache", "--runs", "0").exit_code == 2
