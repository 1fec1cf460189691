"""The launcher beside writers, also killed ones: what it prints is whole and true, or Python's to print."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.scripts.launching import ASKED, ROOT, entry_of, install, keep, said
from tests.scripts.worlds import needs_node
from trisplit.cache import ledger
from trisplit.cache.entry import Entry
from trisplit.cache.store import open_store
from trisplit.scripts.script import read_script

pytestmark = needs_node

# Keeps, loses and spoils one entry, as quickly as it can, until it is killed.
_WRITER = """
import sys
sys.path.insert(0, {source!r})
from pathlib import Path
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.key import Key
from trisplit.cache.store import open_store
store = open_store(Path({folder!r}))
texts = (b"one " * 20000, b"two " * 20000)
entries = [Entry(frames=(Frame(1, text),), surface="script", label="a.js") for text in texts]
print("ready", flush=True)
while True:
    for entry in entries:
        store.put(Key({key!r}), entry)
    store.remove(Key({key!r}))
"""


@pytest.fixture
def program(tmp_path: Path, launcher: bytes) -> Path:
    return install(tmp_path / "bin", launcher)


def test_writers_that_are_killed_leave_nothing_that_is_printed(tmp_path: Path, program: Path) -> None:
    path, cache = tmp_path / "a.js", tmp_path / "cache"
    path.write_text("1")
    cache.mkdir()
    with open_store(cache / "results") as store:
        key = keep(store, path, "first", program=program)
        words = _WRITER.format(source=str(ROOT / "src"), folder=str(store.folder), key=str(key))
        seen = set[bytes]()
        for _ in range(2):
            writers = [
                subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) for _ in range(2)
            ]
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"ready\n"
            seen |= {said(program, path, cache=cache) for _ in range(40)}
            for writer in writers:
                with writer:
                    writer.send_signal(signal.SIGKILL)
            seen |= {said(program, path, cache=cache) for _ in range(2)}
        assert seen <= {ASKED, b"one " * 20000, b"two " * 20000}
        store.verify()
        assert key
        store.put(key, entry_of(read_script(str(path)), "last"))
        assert said(program, path, cache=cache) == b"last"
        assert ledger.read(store.folder / ledger.FILE)[1] == 0


def test_launchers_at_once_lose_no_line_while_the_ledger_is_made_shorter(
    tmp_path: Path, program: Path
) -> None:
    path, cache = tmp_path / "a.js", tmp_path / "cache"
    path.write_text("1")
    cache.mkdir()
    with open_store(cache / "results") as store:
        key = keep(store, path, "kept", program=program)
        file, printed = store.folder / ledger.FILE, list[bytes]()

        def many() -> None:
            printed.extend(said(program, path, cache=cache) for _ in range(25))

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if file.exists():
                ledger.compact(file)
        assert set(printed) <= {b"kept", ASKED}
        *_, everything = ledger.sums(ledger.read(file)[0])
        assert everything.hits == printed.count(b"kept") > 0
        assert ledger.read(file)[1] == 0
        assert key
        assert isinstance(store.read(key), Entry)


def test_two_versions_share_a_store_and_no_seal(tmp_path: Path, program: Path) -> None:
    path, cache = tmp_path / "a.js", tmp_path / "cache"
    path.write_text("1")
    cache.mkdir()
    shutil.copytree(program.parent, tmp_path / "other")
    other = tmp_path / "other" / "trisplit"
    with open_store(cache / "results") as store:
        for first, second in ((program, other), (other, program)):
            keep(store, path, "kept", program=first)
            assert said(first, path, cache=cache) == b"kept"
            assert said(second, path, cache=cache) == (ASKED if second is other else b"kept")
