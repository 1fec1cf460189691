"""`trisplit resident` as a process: started, asked, stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.scripts.worlds import needs_node


def trisplit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    return subprocess.run(
        [sys.executable, "-m", "trisplit", *words],
        env={**environment, "TRISPLIT_CACHE": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@needs_node
def test_one_is_started_asked_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("console.log('out'); console.error('err')")
    assert json.loads(trisplit(tmp_path, "resident", "status", "--json").stdout) == {"running": False}
    started = trisplit(tmp_path, "resident", "start", "--idle", "60")
    assert (started.returncode, started.stderr) == (0, "")
    ran = trisplit(tmp_path, "run", "--explain", "a.js")
    assert (ran.returncode, ran.stdout) == (0, "out\n")
    assert ran.stderr.startswith("err\ntrisplit: miss")
    status = json.loads(trisplit(tmp_path, "resident", "status", "--json").stdout)
    assert (status["running"], status["misses"], f"process {status['pid']}\n" in started.stdout) == (
        True,
        1,
        True,
    )
    assert trisplit(tmp_path, "resident", "stop").stdout == "the resident stops\n"
    until_s = time.monotonic() + 60
    while (tmp_path / "results" / "resident").exists():
        assert time.monotonic() < until_s
        time.sleep(0.01)
