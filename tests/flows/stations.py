"""A station process of a test's own, which must say nothing on standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 120.0


@contextmanager
def station(*options: object, **environment: str) -> Iterator[str]:
    """`trisplit station` with these options; yields its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trisplit", "station", "--json", "--until-stdin-closes", *map(str, options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["listening"]
    finally:
        _, error = process.communicate(timeout=PATIENCE_S)
    assert not error, error
    assert process.returncode == 0
