"""The resident: hits and tries over its socket, to its owner, as long as its code and node are the same."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripts.worlds import NODE, needs_node
from trisplit.cache import ledger
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.key import Key
from trisplit.cache.store import Store, open_store
from trisplit.errors import RequestProblem
from trisplit.scripts import asking, runner, sealing
from trisplit.scripts.asking import SOCKET, Resident, find_resident
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.resident import reside
from trisplit.scripts.script import read_script

pytestmark = needs_node
BARE = Surroundings(environment={"PATH": os.environ["PATH"]})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


@pytest.fixture
def started(store: Store) -> Iterator[Callable[..., Resident]]:
    """Starts a resident here, in a thread, and gives a connection to it that was greeted."""
    threads = []

    def start(**how: Any) -> Resident:
        thread = threading.Thread(target=reside, args=(store,), kwargs=how)
        thread.start()
        threads.append(thread)
        return greeted(store)

    yield start
    while any(thread.is_alive() for thread in threads):
        if (resident := find_resident(store)) is not None:
            with resident:
                resident.stop()
        time.sleep(0.01)
    assert not (store.folder / SOCKET).exists()


def greeted(store: Store, around: Surroundings = BARE) -> Resident:
    assert NODE is not None
    resident = wait_for(lambda: find_resident(store))
    assert isinstance(resident, Resident)
    resident.greet(NODE, around, store.folder)
    return resident


def wait_for(what: Callable[[], object]) -> object:
    until_s = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    return found


def frames(answer: object) -> object:
    return getattr(answer, "frames", None)


def test_what_it_answers_is_what_node_prints(
    tmp_path: Path, store: Store, started: Callable[..., Resident]
) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('out'); console.error('err')")
    with started() as resident:
        wait_for(lambda: resident.status().waiting_nodes)
        assert resident.ask(str(path), hits_only=True) is None
        first, second = resident.ask(str(path)), resident.ask(str(path))
        assert frames(first) == frames(second) == (Frame(1, b"out\n"), Frame(2, b"err\n"))
        assert [answer.said[:4] for answer in (first, second) if answer] == ["miss", "hit:"]
        path.write_text("console.log(process.argv)")
        assert resident.ask(str(path)) is None  # nobody has seen that it was tried
        assert resident.ask(str(tmp_path / "none.js")) is None
        status = resident.status()
        assert (status.pid, status.hits, status.misses) == (os.getpid(), 1, 1)
        wait_for(lambda: resident.status().waiting_nodes == 2)  # those that were taken are made up for
    outcomes = [
        record.outcome for record in ledger.read(store.folder / ledger.FILE)[0] if hasattr(record, "outcome")
    ]
    assert outcomes == ["miss", "charge"]
    wait_for(lambda: ledger.sums(ledger.read(store.folder / ledger.FILE)[0])[-1].hits)


def test_surroundings_are_those_of_who_asks(
    tmp_path: Path, store: Store, started: Callable[..., Resident]
) -> None:
    (tmp_path / "a.js").write_text("console.log('out')")
    with started() as resident:
        assert resident.ask(str(tmp_path / "a.js"))
        with greeted(store, Surroundings(environment={"NODE_OPTIONS": "--no-warnings"})) as other:
            assert other.ask(str(tmp_path / "a.js")) is None
        with greeted(store, Surroundings(environment={}, stdout_is_terminal=True)) as other:
            assert other.ask(str(tmp_path / "a.js"), hits_only=True) is None
        silent = wait_for(lambda: find_resident(store))
        assert isinstance(silent, Resident)
        with silent:
            assert silent.ask(str(tmp_path / "a.js")) is None  # it was not greeted


def test_hits_are_run_again_out_of_sight(
    tmp_path: Path, store: Store, started: Callable[..., Resident]
) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('true')")
    with started(verify_rate=1.0) as resident:
        kept = resident.ask(str(path))
        assert kept is not None
        assert resident.ask(str(path))
        wait_for(lambda: resident.status().verified)
        false = Entry(frames=(Frame(1, b"false\n"),), surface="script")
        store.put(Key(kept.said.removeprefix("miss: now kept as ")), false)
        wait_for(lambda: resident.ask(str(path)) is None)  # it was caught
        wait_for(lambda: resident.status().mismatches == 1)


def test_hits_that_others_answered_are_run_again_too(
    tmp_path: Path, store: Store, started: Callable[..., Resident]
) -> None:
    assert NODE is not None
    path = tmp_path / "a.js"
    path.write_text("console.log('true')")
    script = read_script(str(path))
    runner.run(script, ("x",), NODE, store, BARE)
    with started(verify_rate=1.0, own=(NODE, BARE)) as resident:
        answer = runner.run(script, ("x",), NODE, store, BARE)
        assert answer.said.startswith("hit")
        wait_for(lambda: resident.status().verified == 1)
        store.put(
            Key(answer.said.removeprefix("hit: ")), Entry(frames=(Frame(1, b"false\n"),), surface="script")
        )
        assert runner.run(script, ("x",), NODE, store, BARE).frames == (Frame(1, b"false\n"),)
        wait_for(lambda: resident.status().mismatches == 1)
        assert "impure" in runner.run(script, ("x",), NODE, store, BARE).said


def test_nonsense_ends_one_connection_and_no_other(store: Store, started: Callable[..., Resident]) -> None:
    with started() as resident:
        for sent in (b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\3\x92\xa1a", b"\0"):
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(str(store.folder / SOCKET))
                other.sendall(sent)
                other.shutdown(socket.SHUT_WR)
                assert other.recv(1) == b""
        assert resident.status().hits == 0


def test_there_is_one_and_it_ends_when_nobody_asks(store: Store) -> None:
    ending = threading.Thread(target=reside, args=(store,), kwargs={"idle_s": 0.5})
    ending.start()
    wait_for((store.folder / SOCKET).exists)
    with pytest.raises(RequestProblem, match="already"):
        reside(store)
    ending.join(60)
    assert not ending.is_alive()
    assert find_resident(store) is None
    (store.folder / SOCKET).touch()  # what one that was killed leaves
    assert find_resident(store) is None
    reside(store, idle_s=0)


def test_a_resident_whose_code_was_changed_answers_nothing_more(
    tmp_path: Path, started: Callable[..., Resident], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('out')")
    with started() as resident:
        assert resident.ask(str(path))
        monkeypatch.setattr(sealing, "code_marks", lambda: ("another",))
        time.sleep(0.2)
        for _ in range(3):
            with contextlib.suppress(ConnectionError):
                assert resident.ask(str(path)) is None


def test_others_are_not_believed(
    store: Store, started: Callable[..., Resident], monkeypatch: pytest.MonkeyPatch
) -> None:
    with started():
        monkeypatch.setattr(asking, "is_ours", lambda _: False)
        assert find_resident(store) is None
        monkeypatch.undo()


def test_a_folder_with_a_long_name(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir(mode=0o700)
    with open_store(folder) as store:
        thread = threading.Thread(target=reside, args=(store,))
        thread.start()
        with greeted(store) as resident:
            assert resident.status().pid == os.getpid()
            resident.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_nodes_that_wait_end_with_it(store: Store, started: Callable[..., Resident]) -> None:
    with started() as resident:
        wait_for(lambda: resident.status().waiting_nodes == 2)
        resident.stop()
    wait_for(lambda: not (store.folder / SOCKET).exists())
    shown = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    assert "closed_world" not in shown.stdout
