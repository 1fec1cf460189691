"""The store: what is read is what was written, whatever happens to its files and its writers."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trisplit.cache import store as room
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.key import Key
from trisplit.cache.store import Store, open_store
from trisplit.errors import RequestProblem

GENERAL = Entry(frames=(Frame(1, b"out\xff\0"), Frame(2, b"err"), Frame(1, b"more")), exit_code=3, label="g")
PLAIN = Entry(frames=(Frame(1, b"h\xc3\xa9llo\n\0\xff"),), label="p", cpu_us=5, wall_us=9)
EMPTY = Entry(label="nothing printed")
NEGATIVE = Entry(impure="reads the clock")


def key(n: int) -> Key:
    return Key(hashlib.sha256(str(n).encode()).hexdigest())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


def names(store: Store) -> set[str]:
    return set(os.listdir(store.folder))


@pytest.mark.parametrize("entry", [GENERAL, PLAIN, EMPTY, NEGATIVE], ids=lambda e: e.label or e.impure)
def test_what_is_put_is_got(entry: Entry, store: Store) -> None:
    assert store.get(key(1)) is None
    assert store.put(key(1), entry)
    assert store.get(key(1)) == entry
    assert store.get(key(2)) is None


def test_a_shell_can_check_a_plain_entry(store: Store) -> None:
    store.put(key(1), PLAIN)
    check = f"head -n 1 {key(1)}.d | sha256sum --check --quiet && cat {key(1)}.0"
    ran = subprocess.run(check, shell=True, cwd=store.folder, capture_output=True, check=True)
    assert ran.stdout == PLAIN.output()


@pytest.mark.parametrize(("first", "then"), [(GENERAL, PLAIN), (PLAIN, GENERAL), (PLAIN, NEGATIVE)])
def test_a_later_entry_replaces_one_of_the_other_form(first: Entry, then: Entry, store: Store) -> None:
    store.put(key(1), first)
    store.put(key(1), then)
    assert store.get(key(1)) == then
    assert len(store.entries()) == 1


@pytest.mark.parametrize(
    ("entry", "suffix"), [(GENERAL, ""), (PLAIN, ".0"), (PLAIN, ".d"), (EMPTY, ".d"), (NEGATIVE, "")]
)
@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "empty", "gone"])
def test_damage_is_a_miss_and_is_removed(entry: Entry, suffix: str, damage: str, store: Store) -> None:
    store.put(key(1), entry)
    path = store.folder / f"{key(1)}{suffix}"
    content = path.read_bytes()
    match damage:
        case "flip":
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "grow":
            path.write_bytes(content[:20] + b"?" + content[20:])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
    assert store.get(key(1)) is None
    assert store.get(key(1)) is None
    assert not {f"{key(1)}", f"{key(1)}.0"} & names(store)


def test_an_entry_under_another_name_is_a_miss(store: Store) -> None:
    store.put(key(1), GENERAL)
    store.put(key(2), PLAIN)
    (store.folder / key(1)).rename(store.folder / key(3))
    for suffix in (".0", ".d"):
        (store.folder / f"{key(2)}{suffix}").rename(store.folder / f"{key(4)}{suffix}")
    assert store.get(key(3)) is None
    assert store.get(key(4)) is None


@pytest.mark.parametrize("what", ["symlink", "folder", "fifo"])
def test_only_files_are_read(what: str, store: Store, tmp_path: Path) -> None:
    store.put(key(1), GENERAL)
    content = (store.folder / key(1)).read_bytes()
    (tmp_path / "elsewhere").write_bytes(content)
    (store.folder / key(1)).unlink()
    match what:
        case "symlink":
            (store.folder / key(1)).symlink_to(tmp_path / "elsewhere")
        case "folder":
            (store.folder / key(1)).mkdir()
        case "fifo":
            os.mkfifo(store.folder / key(1))
    assert store.get(key(1)) is None


def test_a_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir(mode=0o755)
    (tmp_path / "results").chmod(0o755)
    with pytest.raises(RequestProblem, match="open to other users"):
        open_store(tmp_path / "results")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir(mode=0o700)
    os.chown(tmp_path / "results", 12345, 12345)
    with pytest.raises(RequestProblem, match="another user's"):
        open_store(tmp_path / "results")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_entry_of_another_user_is_a_miss(store: Store) -> None:
    store.put(key(1), PLAIN)
    os.chown(store.folder / f"{key(1)}.0", 12345, 12345)
    assert store.get(key(1)) is None


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "results").symlink_to(tmp_path / "real")
    with pytest.raises(RequestProblem, match="cannot be written"):
        open_store(tmp_path / "results")


def test_what_is_made_is_for_its_owner_alone(store: Store) -> None:
    before = os.umask(0)
    try:
        store.put(key(1), GENERAL)
        store.put(key(2), PLAIN)
        store.get(key(2))
    finally:
        os.umask(before)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in store.folder.iterdir()} == {0o600}


def test_entries_over_the_limit_are_not_kept(tmp_path: Path) -> None:
    with open_store(tmp_path / "results", max_entry_bytes=10) as store:
        assert store.put(key(1), Entry(frames=(Frame(1, b"x" * 10),)))
        assert not store.put(key(2), Entry(frames=(Frame(1, b"x" * 11),)))
        assert store.get(key(2)) is None


def test_the_least_used_go_first(tmp_path: Path) -> None:
    with open_store(tmp_path / "results", max_bytes=20_000) as store:
        for n in range(5):
            store.put(key(n), Entry(frames=(Frame(1, b"x" * 3000),)))
        for n in (0, 2, 2, 4):
            store.get(key(n))
        for n in range(5, 9):
            store.put(key(n), Entry(frames=(Frame(1, b"x" * 3000),)))
        left = {n for n in range(9) if store.read(key(n)) is not None}
        assert {0, 2, 4} <= left
        assert len(left) < 9
        assert sum(one.n_bytes for one in store.entries()) <= 20_000
        assert [one.uses for one in store.entries()][-3:] == [1, 1, 2]
        assert [one.key for one in store.entries()][-1] == key(2)


def test_clocks_that_jump_change_only_who_is_evicted(store: Store) -> None:
    for n, stamp in enumerate((0, 2**33, -(2**30))):
        store.put(key(n), GENERAL)
        os.utime(store.folder / key(n), (stamp, stamp))
    assert all(store.read(key(n)) == GENERAL for n in range(3))
    assert len(store.prune(0)) == 3
    assert store.entries() == []


def test_strays_are_swept_when_nobody_can_be_writing_them(store: Store) -> None:
    store.put(key(1), PLAIN)
    old, future = time.time() - 7200, time.time() + 7200
    strays = {".tmp.1.old": old, ".tmp.1.future": future, f"{key(7)}.d": old, f"{key(8)}.u": old}
    young = {".tmp.1.young": time.time(), f"{key(9)}.d": time.time(), f"{key(1)}.d": old}
    for name, stamp in {**strays, **young}.items():
        (store.folder / name).touch()
        os.utime(store.folder / name, (stamp, stamp))
    assert store.sweep() == len(strays)
    assert names(store) == {*young, f"{key(1)}.0"}
    assert store.get(key(1)) == PLAIN


def test_verify_and_clear(store: Store) -> None:
    for n in range(4):
        store.put(key(n), GENERAL if n % 2 else PLAIN)
    (store.folder / key(1)).write_bytes(b"?")
    assert store.verify() == (3, [key(1)])
    assert store.verify() == (3, [])
    assert store.clear() == 3
    assert names(store) == set()


def test_a_full_disk_keeps_nothing_and_breaks_nothing(store: Store) -> None:
    """A limit on file sizes stands for it: a write fails half way."""
    store.put(key(1), PLAIN)
    code = f"""
import resource, signal, sys
from pathlib import Path
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.store import open_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
store = open_store(Path({str(store.folder)!r}))
sys.exit(store.put({key(1)!r}, Entry(frames=(Frame(1, b"x" * 5000),))))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
    assert store.read(key(1)) in (None, PLAIN)
    assert not [name for name in names(store) if name.startswith(".tmp.")]


WRITER = """
import hashlib, itertools, sys
from pathlib import Path
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.store import open_store
store, who = open_store(Path(sys.argv[1])), int(sys.argv[2])
print("ready", flush=True)
for n in itertools.count():
    key = hashlib.sha256(str(n % 20).encode()).hexdigest()
    body = (b"%d %d " % (n % 20, who)) * (1 + n % 300)
    store.put(key, Entry(frames=(Frame(1 + n % 2, body),), exit_code=n % 2, label=str(who)))
    if n % 7 == 0:
        store.prune(20000)
"""


def test_writers_that_are_killed_leave_nothing_false(store: Store) -> None:
    """Two writers of the same keys with different contents, one killed at any moment and started again."""
    command = (sys.executable, "-c", WRITER, str(store.folder))
    seen = 0
    for _ in range(4):
        writers = [subprocess.Popen([*command, str(who)], stdout=subprocess.PIPE) for who in (1, 2)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        for n in range(600):
            entry = store.get(key(n % 20))
            if entry is not None:
                seen += 1
                body = b"".join(frame.data for frame in entry.frames)
                word = b"%d %s " % (n % 20, entry.label.encode())
                assert body == word * (len(body) // len(word))
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
    assert seen
    whole, _ = store.verify()
    assert whole == len(store.entries())
    assert store.verify() == (whole, [])


def test_the_store_lies_beside_what_was_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    with open_store() as store:
        assert store.folder == tmp_path / room.FOLDER
