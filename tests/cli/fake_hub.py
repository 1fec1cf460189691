"""A model hub on loopback that knows a few models, and a process that looks models up there."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trisplit.cli import names
from trisplit.errors import Problem

ROOT = Path(__file__).parents[2]
COMMIT = "c0ffee" + "0" * 34
GATED, SILENT = "org/gated", "org/silent"
Repos = Mapping[str, Mapping[str, bytes]]
PLAIN = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "chat_template.jinja": b"{{ messages }}",
    "README.md": b"# no use to us",
    "consolidated.safetensors": b"weights",
    "onnx/config.json": b"{}",
}
SPLIT = {"m-00001-of-00002.gguf": b"one", "m-00002-of-00002.gguf": b"two", "other.gguf": b"three"}
REPOS: Repos = {"org/plain": PLAIN, "org/split": SPLIT, GATED: PLAIN, SILENT: {}}


@contextmanager
def fake_hub() -> Iterator[str]:
    """Serves REPOS as the hub does; anybody may list GATED, nobody gets its files, SILENT never answers."""
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if SILENT in self.path:
                closing.wait()
                return
            self._answer(*_answer(self.path))

        do_HEAD = do_GET

        def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(path: str) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and content for the three requests a download is made of."""
    place = path.partition("?")[0].removeprefix("/").removeprefix("api/models/")
    repo = "/".join(place.split("/")[:2])
    files = REPOS.get(repo)
    if files is None:
        return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
    if place.startswith(f"{repo}/resolve/"):
        content = files.get(place.split("/", 4)[4])
        if repo == GATED or content is None:
            return 403, {"X-Error-Code": "GatedRepo" if repo == GATED else "EntryNotFound"}, b"{}"
        etag = hashlib.sha256(content).hexdigest()
        return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, content
    listing: Any = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
    if place.startswith(f"{repo}/tree/"):
        listing = [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in files.items()
        ]
    return 200, {"Content-Type": "application/json"}, json.dumps(listing).encode()


def look_up(models: Sequence[str], *, url: str, home: Path) -> list[dict[str, str]]:
    """What `find_model` says of each model in a process that knows the hub at `url` alone."""
    ours = {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "tests.cli.fake_hub", *models]
    env = {**os.environ, **ours}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=True)
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def main() -> None:
    """`python -m tests.cli.fake_hub NAME…`: one answer for each name, as JSON."""
    names.HUB_WAIT_S = 1.0
    found = []
    for name in sys.argv[1:]:
        try:
            found.append({"path": str(names.find_model(name))})
        except Problem as problem:
            found.append({"problem": type(problem).__name__, "what": problem.what, "fix": problem.fix})
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
