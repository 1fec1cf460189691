"""Hits that are run again: true ones stay, false ones go, and what cannot be told is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.scripts.worlds import NODE, PLAIN, needs_node
from trisplit.cache import ledger
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.key import Key
from trisplit.cache.store import Store, open_store
from trisplit.scripts import recheck as rechecking
from trisplit.scripts import runner
from trisplit.scripts.engines.reference import Ran
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.recheck import Verdict
from trisplit.scripts.script import read_script

AROUND = Surroundings(environment=PLAIN)


@dataclass
class Request:
    path: Path
    store: Store
    key: Key | None = None

    def asked(self, source: str) -> runner.Answer:
        self.path.write_text(source)
        assert NODE is not None
        answer = runner.run(read_script(str(self.path)), ("x",), NODE, self.store, AROUND)
        if answer.said.startswith("miss"):
            self.key = Key(answer.said.removeprefix("miss: now kept as "))
        return answer

    def again(self, around: Surroundings = AROUND) -> Verdict:
        assert NODE is not None
        assert self.key is not None
        script = read_script(str(self.path))
        folder = self.path.parent
        return rechecking.recheck(self.key, script, ("x",), NODE, self.store, around, folder=folder)


@pytest.fixture
def request_of(tmp_path: Path) -> Iterator[Request]:
    with open_store(tmp_path / "results") as store:
        yield Request(tmp_path / "a.js", store)


def everything(store: Store) -> ledger.Sum:
    return ledger.sums(ledger.read(store.folder / ledger.FILE)[0])[-1]


@needs_node
def test_a_true_hit_stays_and_costs_what_it_cost(request_of: Request) -> None:
    request_of.asked("console.log('out'); console.error('err')")
    assert request_of.again() == "verified"
    assert request_of.asked("console.log('out'); console.error('err')").said.startswith("hit")
    total = everything(request_of.store)
    assert (total.requests, total.hits, total.verified, total.mismatches) == (2, 1, 1, 0)
    records, _ = ledger.read(request_of.store.folder / ledger.FILE)
    (extra,) = (one for one in records if one.outcome == "verified")
    assert extra.spent_cpu_us == -extra.skipped_cpu_us > 0  # nobody would have computed it without a cache
    assert total.demand_cpu_us == sum(one.spent_cpu_us + one.skipped_cpu_us for one in records)


@needs_node
def test_a_false_hit_goes_and_is_not_kept_again(
    request_of: Request, capfd: pytest.CaptureFixture[str]
) -> None:
    source = "console.log('true')"
    request_of.asked(source)
    assert request_of.key is not None
    request_of.store.put(request_of.key, Entry(frames=(Frame(1, b"false\n"),), surface="script"))
    assert request_of.again() == "mismatch"
    assert capfd.readouterr() == ("", "")  # nothing of it is seen
    assert request_of.asked(source).said.startswith(
        "impure, as is known: what was kept and what a run printed"
    )
    assert everything(request_of.store).mismatches == 1
    assert request_of.again() == "unknown"


@needs_node
def test_what_changed_meanwhile_is_no_proof(request_of: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    request_of.asked("console.log('one')")
    assert request_of.key is not None
    request_of.path.write_text("console.log('two')")
    assert request_of.again() == "unknown"
    request_of.path.write_text("console.log('one')")
    ran = rechecking._run_apart

    def changed(words: Sequence[str], folder: Path, around: Surroundings) -> Ran | None:
        done = ran(words, folder, around)
        request_of.path.write_text("console.log('three')")
        return done

    monkeypatch.setattr(rechecking, "_run_apart", changed)
    assert request_of.again() == "unknown"
    request_of.path.unlink()
    assert request_of.store.read(request_of.key) is not None


@needs_node
def test_it_runs_where_the_request_was_made_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a script that is impure all the same, the run has what the request had."""
    telling = tmp_path / "telling.js"
    telling.write_text("process.stdin.on('data', String); console.log(process.cwd(), process.env.WHERE)")
    where = replace(AROUND, environment={**PLAIN, "WHERE": "here"})
    ran = rechecking._run_apart([str(NODE), str(telling)], tmp_path, where)
    assert ran is not None
    assert ran.stdout.decode() == f"{os.path.realpath(tmp_path)} here\n"
    assert rechecking._run_apart([str(tmp_path / "none")], tmp_path, where) is None
    monkeypatch.setattr(rechecking, "WITHIN_S", 0.2)
    telling.write_text("for (;;);")
    assert rechecking._run_apart([str(NODE), str(telling)], tmp_path, where) is None
