"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {
    "one_process.py": ("hello",),
    "split_over_stations.py": ("hello",),
    "plan_by_memory.py": ("10kB", "1MB", "1MB"),
}
SAID = {
    "one_process.py": "tokens, ended by",
    "split_over_stations.py": "cut recut, chain: 10 legs per token",
    "plan_by_memory.py": "int8 cut layers, chain",
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(ARGUMENTS) == set(SAID)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_example_runs_and_is_short(name: str, tiny: Callable[[str], Path]) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= 40
    command = [sys.executable, str(EXAMPLES / name), str(tiny("llama")), *ARGUMENTS[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert SAID[name] in done.stdout
