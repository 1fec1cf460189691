"""Hits inside a process: as those of the store, until a script, a node or the store says otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts.worlds import NODE, needs_node
from trisplit.cache import ledger
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.key import Key
from trisplit.cache.store import Store, open_store
from trisplit.scripts.held import SURE_FOR_NS, Held
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import name_of
from trisplit.scripts.script import read_script

pytestmark = needs_node
BARE = Surroundings(environment={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


def keep(store: Store, path: Path, text: str, *arguments: str) -> Key:
    assert NODE is not None
    found = name_of(read_script(str(path)), arguments, NODE, store, BARE)
    assert not isinstance(found, str)
    entry = Entry(frames=(Frame(1, text.encode()),), surface="script", cpu_us=50_000, wall_us=60_000)
    store.put(found[0], entry)
    return found[0]


def printed(held: Held, path: Path, *arguments: str) -> str | None:
    answer = held.recall(read_script(str(path)), arguments)
    return None if answer is None else b"".join(frame.data for frame in answer.frames).decode()


def later() -> None:
    time.sleep(1.5 * SURE_FOR_NS / 1e9)


def test_hits_are_those_of_the_store(tmp_path: Path, store: Store) -> None:
    assert NODE is not None
    path, held = tmp_path / "a.js", Held(store, NODE, BARE)
    path.write_text("1")
    assert printed(held, path) is None
    keep(store, path, "one")
    keep(store, path, "two", "x")
    for _ in range(3):
        assert printed(held, path) == "one"
        assert printed(held, path, "x") == "two"
    assert printed(held, path, "y") is None
    path.write_text("2")
    assert printed(held, path) is None
    path.write_text("1")
    later()
    assert printed(held, path) == "one"


def test_what_is_no_longer_kept_is_no_longer_a_hit(tmp_path: Path, store: Store) -> None:
    assert NODE is not None
    path, held = tmp_path / "a.js", Held(store, NODE, BARE)
    path.write_text("1")
    key = keep(store, path, "one")
    assert printed(held, path) == "one"
    store.put(key, Entry(surface="script", impure="what was kept and what a run printed differ"))
    later()
    assert printed(held, path) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.js", "require('./b.js')"), ("a.mjs", "import './b.js'"), ("a.mjs", "export * from './b.js'")],
)
def test_another_file_of_a_script_is_seen_at_once(name: str, text: str, tmp_path: Path, store: Store) -> None:
    assert NODE is not None
    path, other, held = tmp_path / name, tmp_path / "b.js", Held(store, NODE, BARE)
    (tmp_path / "package.json").write_text('{"type": "module"}' if name == "a.mjs" else "{}")
    path.write_text(text)
    other.write_text("1")
    keep(store, path, "one")
    assert printed(held, path) == "one"
    other.write_text("2")
    assert printed(held, path) is None


def test_surroundings_and_engines_decide(tmp_path: Path, store: Store) -> None:
    assert NODE is not None
    path = tmp_path / "a.js"
    path.write_text("1")
    keep(store, path, "one")
    assert printed(Held(store, NODE, Surroundings(environment={"NODE_OPTIONS": ""})), path) is None
    assert printed(Held(store, "/bin/true", BARE), path) is None


def test_the_ledger_is_told_in_sums(tmp_path: Path, store: Store) -> None:
    assert NODE is not None
    path, held = tmp_path / "a.js", Held(store, NODE, BARE)
    path.write_text("1")
    keep(store, path, "one")
    for _ in range(10):
        printed(held, path)
    held.put_down()
    held.put_down()
    *_, everything = ledger.sums(ledger.read(store.folder / ledger.FILE)[0])
    assert everything.hits == 10
    assert everything.spent_cpu_us + everything.skipped_cpu_us == 500_000
    assert everything.spent_wall_us + everything.skipped_wall_us == 600_000
