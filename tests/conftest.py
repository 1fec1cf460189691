"""What tests share: a cache of their own, tiny models built once, and a pool of station processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.tiny import build_variant
from trisplit.mesh.trust import VARIABLE

POOL = 7

# How long an example takes depends on what else the machine does: a test never fails by the clock.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def test_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory that ends with the tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, test_cache: Path) -> None:
    """Keeps what tests convert out of the user's cache; `real` tests need what was fetched there."""
    if request.node.get_closest_marker("real") is None:
        monkeypatch.setenv("TRISPLIT_CACHE", str(test_cache))


@pytest.fixture(autouse=True, scope="session")
def _no_secret_around() -> None:
    """The secret of the user's own mesh is none of ours."""
    os.environ.pop(VARIABLE, None)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny model of a variant (tests/tiny.py), built once."""
    built: dict[str, Path] = {}

    def model(variant: str) -> Path:
        if variant not in built:
            built[variant] = build_variant(variant, tmp_path_factory.mktemp(variant) / "model")
        return built[variant]

    return model


@pytest.fixture(scope="session")
def stations(test_cache: Path) -> Iterator[dict[str, str]]:
    """Seven running station processes: name → HOST:PORT."""
    command = (sys.executable, "-m", "trisplit", "station", "--json", "--until-stdin-closes", "--name")
    processes = [
        subprocess.Popen(
            [*command, f"s{i + 1}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TRISPLIT_CACHE": str(test_cache)},
        )
        for i in range(POOL)
    ]
    try:
        yield {
            f"s{i + 1}": json.loads(process.stdout.readline())["listening"]
            for i, process in enumerate(processes)
            if process.stdout is not None
        }
    finally:
        for process in processes:
            process.communicate(timeout=120)
