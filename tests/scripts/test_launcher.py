"""The launcher in C: the same keys as Python's, hits byte for byte, and whatever is odd handed over."""

from __future__ import annotations

import hashlib
import os
import pty
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scripts.corpus import IMPURE, PURE
from tests.scripts.evasions import EVASIONS
from tests.scripts.launching import ASKED, PLAIN, ROOT, environment, install, keep, said
from tests.scripts.worlds import needs_node
from trisplit.cache import ledger
from trisplit.cache.store import Store, open_store
from trisplit.scripts.asking import SOCKET, find_resident
from trisplit.scripts.resident import reside

pytestmark = needs_node


@pytest.fixture
def program(tmp_path: Path, launcher: bytes) -> Path:
    return install(tmp_path / "bin", launcher)


@pytest.fixture
def cache(tmp_path: Path, kept: Path) -> Path:
    """A cache in which a node was asked who it is, and has stood its trial."""
    shutil.copytree(kept, tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "a.js").touch()
    with open_store(folder / "results") as store:
        keep(store, folder / "a.js", "")
    return folder


@pytest.fixture
def store(cache: Path) -> Iterator[Store]:
    with open_store(cache / "results") as store:
        yield store


@pytest.fixture
def hello(tmp_path: Path, program: Path, store: Store) -> Path:
    path = tmp_path / "hello.js"
    path.write_text("console.log('hello')\n")
    assert keep(store, path, "kept\n", program=program)
    return path


@pytest.mark.usefixtures("launcher")
def test_digests_are_those_of_the_standard(tmp_path: Path) -> None:
    main = (
        '#include "sha256.h"\n#include <stdio.h>\n'
        + """int main(int argc, char **argv) {
    static char piece[1 << 16]; char hex[65]; struct sha256 one; size_t n, most = argc > 1 ? 7 : sizeof piece;
    sha256_begin(&one); (void)argv;
    while ((n = fread(piece, 1, most, stdin))) sha256_add(&one, piece, n);
    sha256_end(&one, hex); puts(hex); }"""
    )
    (tmp_path / "main.c").write_text(main)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or "musl-gcc"
    words = [compiler, "-I", ROOT / "launcher", tmp_path / "main.c", "-o", tmp_path / "main"]
    subprocess.run(words, check=True, capture_output=True)
    lengths = [0, 1, 3, 55, 56, 63, 64, 65, 119, 120, 127, 128, 1_000_000]
    for n in lengths:
        text = b"abc" if n == 3 else b"a" * n
        for more in ((), ("pieces",)):
            ran = subprocess.run([tmp_path / "main", *more], input=text, capture_output=True, check=True)
            assert ran.stdout.decode().strip() == hashlib.sha256(text).hexdigest()


def test_python_and_the_launcher_agree_on_the_key_of_every_script(
    tmp_path: Path, program: Path, store: Store, cache: Path
) -> None:
    answered = 0
    others = [*IMPURE.items(), *EVASIONS.items()]
    for number, (name, source) in enumerate([*PURE.items(), *others[::4]]):
        path = tmp_path / f"{number}{('.js', '.cjs', '.mjs')[number % 3]}"
        path.write_text(source)
        words = ("x", "", "--flag", "y z")[: number % 5]
        key = keep(store, path, name, *words, program=program if number < 2 else None)
        printed = said(program, path, *words, cache=cache)
        if key is None or "require" in path.read_text():
            assert printed in (ASKED, name.encode())
            assert printed == ASKED or key is not None
        else:
            assert printed == name.encode()
        answered += printed != ASKED
    assert answered > 100


def test_a_hit_is_counted_and_put_down(hello: Path, program: Path, store: Store, cache: Path) -> None:
    before = len(ledger.read(store.folder / ledger.FILE)[0])
    for _ in range(64):
        assert said(program, hello, cache=cache) == b"kept\n"
    records, torn = ledger.read(store.folder / ledger.FILE)
    assert (len(records) - before, torn) == (64, 0)
    for record in records[before:]:
        assert isinstance(record, ledger.Record)
        assert (record.surface, record.outcome, abs(record.at_s - time.time()) < 60) == (
            "script",
            "hit",
            True,
        )
        assert record.spent_cpu_us + record.skipped_cpu_us == 54321
        assert record.spent_wall_us + record.skipped_wall_us == 65432
        assert (store.folder / f"{record.key}.0").exists()
    assert max(one.uses for one in store.entries()) % 8 == 0


def test_a_ledger_that_is_to_be_made_shorter_is_left_to_python(
    hello: Path, program: Path, store: Store, cache: Path
) -> None:
    with (store.folder / ledger.FILE).open("wb") as file:
        file.truncate(ledger.MOST_BYTES + ledger.PIECE_BYTES - 100)
    assert said(program, hello, cache=cache) == ASKED
    with (store.folder / ledger.FILE).open("wb") as file:
        file.truncate(ledger.MOST_BYTES + ledger.PIECE_BYTES + 100)
    assert said(program, hello, cache=cache) == b"kept\n"


def test_what_could_matter_is_handed_over(hello: Path, program: Path, cache: Path, tmp_path: Path) -> None:
    def answers(*words: str | Path, **how: object) -> bool:
        return said(program, *words, cache=cache, **how) == b"kept\n"

    assert answers(hello)
    assert answers("hello.js", cwd=tmp_path)
    assert answers("./bin/../hello.js", cwd=tmp_path)
    for harmless in ("NODE_ENV", "LANG", "PYTHONUNBUFFERED", "PYTHON_VERSION"):
        assert answers(hello, more={harmless: "x"})
    for meddling in ("NODE_OPTIONS", "LD_PRELOADED", "FORCE_COLOR", "UV_X", "PYTHONPATH", "PYTHONHOME"):
        assert not answers(hello, more={meddling: ""})
    for words in (("--explain", hello), (hello, "argument"), (hello, "ä"), ("",), (tmp_path,), ("none.js",)):
        assert not answers(*words)
    for path in ("", "relative", "/nowhere", f"{tmp_path}/other:{os.environ['PATH']}"):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / "node").write_text("#!/bin/sh\n")
        (tmp_path / "other" / "node").chmod(0o755)
        assert not answers(hello, more={"PATH": path})
    for shell in ("ulimit -S -t 1000", "ulimit -S -v 9999999", "ulimit -S -s 512", "exec <&-"):
        ran = subprocess.run(
            ["/bin/sh", "-c", f'{shell}; exec "$@"', "sh", program, "run", hello],
            env=environment(cache),
            capture_output=True,
        )
        assert ran.stdout == ASKED


def test_which_kind_of_script_is_asked_of_the_same_files(
    hello: Path, program: Path, store: Store, cache: Path, tmp_path: Path
) -> None:
    package = tmp_path / "package.json"
    package.write_text('{"type": "module"}')
    assert said(program, hello, cache=cache) == ASKED
    assert keep(store, hello, "module\n", program=program)
    assert said(program, hello, cache=cache) == b"module\n"
    package.write_text("{}")
    assert said(program, hello, cache=cache) == ASKED
    assert keep(store, hello, "kept\n", program=program)
    assert said(program, hello, cache=cache) == b"kept\n"
    package.write_text('{"type": "module", "type": "commonjs"}')  # readers differ in what that means
    assert keep(store, hello, "", program=program) is None
    assert said(program, hello, cache=cache) == ASKED
    package.unlink()
    (tmp_path / "node_modules" / "x").mkdir(parents=True)
    shutil.copy(hello, tmp_path / "node_modules" / "x" / "hello.js")
    assert said(program, tmp_path / "node_modules" / "x" / "hello.js", cache=cache) == ASKED
    for link in ("link.js", "link.cjs", ".js", "js"):
        (tmp_path / link).symlink_to(hello)
        assert said(program, tmp_path / link, cache=cache) == (b"kept\n" if link == "link.js" else ASKED)
    hello.rename(tmp_path / ".js")  # a name without an extension, behind a link that has one
    (tmp_path / "link.js").unlink()
    (tmp_path / "link.js").symlink_to(tmp_path / ".js")
    assert said(program, tmp_path / "link.js", cache=cache) == ASKED


def test_the_terminal_is_part_of_the_key(hello: Path, program: Path, store: Store, cache: Path) -> None:
    ours, theirs = pty.openpty()
    for shown in (ASKED, b"on a terminal\n"):
        subprocess.run(
            [program, "run", hello],
            env=environment(cache),
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        assert os.read(ours, 100).replace(b"\r\n", b"\n") == shown
        keep(store, hello, "on a terminal\n", around=replace(PLAIN, stdout_is_terminal=True))
    os.close(ours)
    os.close(theirs)


def test_a_script_that_sees_its_place_has_it_in_its_key(
    program: Path, store: Store, cache: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log(__filename)")
    assert keep(store, path, "here\n", program=program)
    assert said(program, path, cache=cache) == b"here\n"
    path.rename(tmp_path / "b.js")
    assert said(program, tmp_path / "b.js", cache=cache) == ASKED


def test_what_may_load_another_file_is_handed_over(
    program: Path, store: Store, cache: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.js"
    path.write_text("require ('./b'); console.log(1)")
    (tmp_path / "b.js").touch()
    assert keep(store, path, "two files\n", program=program)
    assert said(program, path, cache=cache) == ASKED
    module = tmp_path / "a.mjs"
    module.write_text("import './b.mjs'\nconsole.log(1)")
    (tmp_path / "b.mjs").touch()
    assert keep(store, module, "two files\n", program=program)
    assert said(program, module, cache=cache) == ASKED
    path.write_text("if (require.main === module) console.log(1)")
    assert keep(store, path, "one file\n")
    assert said(program, path, cache=cache) == b"one file\n"


def test_what_is_not_kept_is_asked_of_a_resident(
    hello: Path, program: Path, store: Store, cache: Path, tmp_path: Path
) -> None:
    assert hello.name == "hello.js"
    texts = {
        "new.js": "console.log('out'); console.error('err'); console.log('\\u{1d11e}'.repeat(40000))",
        "two.mjs": "import { x } from './hello.mjs'\nconsole.log(x)",
        "hello.mjs": "export const x = 'two files'",
        "now.js": "console.log(Date.now())",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    def ran(name: str, *arguments: str) -> tuple[int, str, str]:
        words = [program, "run", name, *arguments]
        how = {"cwd": tmp_path, "env": environment(cache, LONG="x" * 5000), "stdin": subprocess.DEVNULL}
        ended = subprocess.run(words, capture_output=True, timeout=60, **how)
        return ended.returncode, ended.stdout.decode(), ended.stderr.decode()

    asked, wanted = (0, ASKED.decode(), ""), (0, "out\n" + "\U0001d11e" * 40000 + "\n", "err\n")
    assert ran("new.js") == asked
    resident = threading.Thread(target=reside, args=(store,))
    resident.start()
    while not (store.folder / SOCKET).exists():
        time.sleep(0.01)
    assert ran("new.js", "x" * 300) == ran("new.js", "x" * 300) == ran("new.js") == wanted
    assert ran("two.mjs") == (0, "two files\n", "")
    assert ran("now.js") == asked
    assert ran("hello.js") == (0, "kept\n", "")
    found = find_resident(store)
    assert found is not None
    with found:
        assert found.status().misses + found.status().hits == 4
        assert found.status().left_to_others == 1
        found.stop()
    resident.join()
    assert ran("new.js") == asked


def test_a_store_that_others_could_write_is_not_believed(hello: Path, program: Path, cache: Path) -> None:
    results = cache / "results"
    results.chmod(0o750)
    assert said(program, hello, cache=cache) == ASKED
    results.chmod(0o700)
    assert said(program, hello, cache=cache) == b"kept\n"
    results.rename(cache / "real")
    results.symlink_to(cache / "real")
    assert said(program, hello, cache=cache) == ASKED


@pytest.mark.parametrize("suffix", [".0", ".d"])
def test_what_is_damaged_or_a_link_is_not_believed(
    suffix: str, hello: Path, program: Path, store: Store, cache: Path
) -> None:
    for path in store.folder.glob(f"*{suffix}"):
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole + b"\n", whole.replace(b"e", b"f", 1), b""):
            path.write_bytes(damaged)
            assert said(program, hello, cache=cache) in (ASKED, b"kept\n")
        path.write_bytes(whole)
    (kept,) = (path for path in store.folder.glob("*.0") if path.read_bytes() == b"kept\n")
    path = kept.with_suffix(suffix)
    whole = path.read_bytes()
    path.rename(path.with_suffix(".x"))
    path.symlink_to(path.with_suffix(".x"))
    assert said(program, hello, cache=cache) == ASKED
    path.unlink()
    path.write_bytes(whole)
    assert said(program, hello, cache=cache) == b"kept\n"


def test_nothing_holds_after_an_installer_or_a_packager_was_here(
    hello: Path, program: Path, store: Store, cache: Path, launcher: bytes, tmp_path: Path
) -> None:
    assert said(program, hello, cache=cache) == b"kept\n"
    os.utime(program.with_name("trisplit-py"))
    assert said(program, hello, cache=cache) == ASKED
    keep(store, hello, "kept\n", program=program)
    assert said(program, hello, cache=cache) == b"kept\n"
    other = install(tmp_path / "other version", launcher)
    assert said(other, hello, cache=cache) == ASKED  # it has rules of its own
    keep(store, hello, "kept\n", program=other)
    assert said(other, hello, cache=cache) == said(program, hello, cache=cache) == b"kept\n"
    link = tmp_path / "trisplit"
    link.symlink_to(program)
    assert said(link, hello, cache=cache) == b"kept\n"
    program.with_name("trisplit-py").unlink()
    ran = subprocess.run([program, "run", hello], env=environment(cache), capture_output=True)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"cannot be started" in ran.stderr
    assert b"fix: " in ran.stderr


def test_nobody_need_listen(hello: Path, program: Path, cache: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [program, "run", hello], env=environment(cache), stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_with_a_real_python_behind_it(tmp_path: Path, launcher: bytes, kept: Path) -> None:
    shutil.copytree(kept, tmp_path / "cache")
    program = install(tmp_path / "bin", launcher, real=True)
    path = tmp_path / "a.js"
    path.write_text("console.log([1, 2].map(String))")
    words = [program, "run", path, "a b"]
    for _ in range(3):
        ran = subprocess.run(words, env=environment(tmp_path / "cache"), capture_output=True)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"[ '1', '2' ]\n", b"")
    assert (program.parent / "trisplit-py.told").read_text() == "x"
    path.write_text("console.log(2); process.exit(3)")
    ended = subprocess.run(words, env=environment(tmp_path / "cache"), capture_output=True)
    assert (ended.returncode, ended.stdout) == (3, b"2\n")
