"""What tests of scripts are given: the launcher, compiled once."""

from __future__ import annotations

import pytest

from tests.scripts.launching import COMPILED


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The compiled program; tests that need it are skipped where there is no compiler."""
    path = tmp_path_factory.mktemp("launcher") / "trisplit"
    if not COMPILED["compile_launcher"](path):
        pytest.skip("no C compiler here")
    return path.read_bytes()
