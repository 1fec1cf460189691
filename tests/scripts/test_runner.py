"""Running: what is pure once, everything else every time, and nothing kept that a run contradicts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.scripts.worlds import NODE, needs_node
from trisplit.cache import ledger
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.key import Key
from trisplit.cache.store import Store, open_store
from trisplit.scripts import runner
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.script import read_script

BARE = Surroundings(environment={})
COUNTING = "require('fs').appendFileSync('{log}', 'x'); console.log('ran')"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


def run(
    path: Path, store: Store, *arguments: str, around: Surroundings = BARE, how: Any = runner.run
) -> runner.Answer:
    answer: runner.Answer = how(read_script(str(path)), arguments, NODE, store, around)
    return answer


def outcomes(store: Store) -> list[str]:
    return [record.outcome for record in ledger.read(store.folder / ledger.FILE)[0]]


@needs_node
def test_a_pure_script_runs_once(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('one'); console.error('two')")
    first, second = run(path, store), run(path, store)
    assert first.frames == second.frames == (Frame(1, b"one\n"), Frame(2, b"two\n"))
    assert [a.said.split(":")[0] for a in (first, second)] == ["miss", "hit"]
    moved = tmp_path / "b.js"
    path.rename(moved)
    assert run(moved, store).said.startswith("hit")
    assert outcomes(store) == ["miss", "hit", "hit"]


@needs_node
def test_whatever_could_matter_makes_another_key(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('one')")
    run(path, store)
    assert run(path, store, "argument").said.startswith("miss")
    assert run(path, store, around=replace(BARE, stdout_is_terminal=True)).said.startswith("miss")
    path.write_text("console.log('two')")
    assert run(path, store).frames == (Frame(1, b"two\n"),)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    assert run(path, store).said.startswith("miss")
    path.write_text("console.log(__filename)")
    (tmp_path / "package.json").unlink()
    run(path, store)
    path.rename(tmp_path / "b.js")
    assert run(tmp_path / "b.js", store).frames == (Frame(1, f"{tmp_path.resolve() / 'b.js'}\n".encode()),)


@needs_node
def test_an_impure_script_runs_every_time_and_is_tried_once(
    tmp_path: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    path, log = tmp_path / "a.js", tmp_path / "log"
    path.write_text(COUNTING.format(log=log))
    first, second = run(path, store), run(path, store)
    assert log.read_text() == "xx"  # and not once more for the try
    assert capfd.readouterr().out == "ran\nran\n"
    assert first.said == "impure: loads fs, at line 1"
    assert second.said == "impure, as is known: loads fs, at line 1"
    assert first.frames == ()
    assert outcomes(store) == ["impure", "impure"]


@needs_node
@pytest.mark.parametrize(
    ("source", "code"),
    [("process.exit(7)", 7), ("throw 1", 1), ("process.kill(process.pid, 'SIGKILL')", -signal.SIGKILL)],
)
def test_exit_codes_and_signals_are_those_of_the_engine(
    source: str, code: int, tmp_path: Path, store: Store
) -> None:
    (tmp_path / "a.js").write_text(source)
    assert run(tmp_path / "a.js", store).exit_code == code


@needs_node
def test_verify_finds_and_removes_what_is_false(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('true')")
    assert run(path, store, how=runner.verify).said.startswith("verified")
    answer = run(path, store)
    key = Key(answer.said.removeprefix("hit: "))
    assert run(path, store, how=runner.verify).said == f"verified: {key}"
    store.put(key, Entry(frames=(Frame(1, b"false\n"),), surface="script"))
    assert run(path, store).frames == (Frame(1, b"false\n"),)  # what nobody verifies
    caught = run(path, store, how=runner.verify)
    assert (caught.exit_code, caught.frames) == (1, (Frame(1, b"true\n"),))
    assert caught.said.startswith("MISMATCH")
    assert run(path, store).said.startswith("impure, as is known: what was kept")


@needs_node
def test_verify_of_what_has_no_name_runs_it(tmp_path: Path, store: Store) -> None:
    path, log = tmp_path / "a.js", tmp_path / "log"
    path.write_text(COUNTING.format(log=log))
    for _ in range(2):
        assert run(path, store, how=runner.verify).said.startswith("impure")
    assert log.read_text() == "xx"


@needs_node
def test_a_damaged_entry_is_made_again(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('one')")
    key = run(path, store).said.removeprefix("miss: now kept as ")
    (store.folder / f"{key}.0").write_bytes(b"two\n")
    again = run(path, store)
    assert (again.frames, again.said[:4]) == ((Frame(1, b"one\n"),), "miss")


@needs_node
def test_variables_that_meddle_are_obeyed(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('one')")
    around = Surroundings(environment={**os.environ, "NODE_OPTIONS": "--no-warnings"})
    assert "NODE_OPTIONS" in run(path, store, around=around).said
