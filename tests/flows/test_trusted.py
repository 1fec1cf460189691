"""A mesh as over two hosts: station processes with a secret and certificates, called by their addresses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.running import problem_of
from tests.flows.stations import PATIENCE_S, station
from tests.mesh.certificates import Papers, issue
from trisplit.mesh.trust import VARIABLE

SECRET = "the secret of this mesh"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return issue(tmp_path_factory.mktemp("papers"), "127.0.0.1")


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "mesh.secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    return file


def trisplit(*options: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trisplit", *map(str, options)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | environment,
    )


def question(model: Path, stations: str, *options: object) -> tuple[object, ...]:
    return ("generate", model, "hello", "--stations", stations, "--max-tokens", "5", "--json", *options)


def test_a_mesh_with_a_secret_and_certificates(
    papers: Papers, secret_file: Path, tiny: Callable[[str], Path]
) -> None:
    """Coordinator to station and station to station: thirds on three need all of those links."""
    trusted = ("--secret-file", secret_file, "--ca", papers.ca)
    shown = ("--cert", papers.cert, "--key", papers.key)
    model = tiny("llama")
    with ExitStack() as stack:
        addresses = [stack.enter_context(station(*trusted, *shown)) for _ in range(3)]
        assert all(address.startswith("wss://127.0.0.1:") for address in addresses)
        ask = question(model, ",".join(addresses), "--cut", "thirds")
        answered = trisplit(*ask, *trusted, "--check")
        assert answered.returncode == 0, answered.stderr
        assert json.loads(answered.stdout)["identical_to_one_machine"] is True

        for options, why in (
            (("--ca", papers.ca), f"the station at {addresses[0]} asks for a secret, and we have none"),
            (("--secret-file", secret_file), "cannot be trusted: unable to get local issuer certificate"),
        ):
            assert why in problem_of(*map(str, (*ask, *options))).what
        wrong = trisplit(*ask, "--ca", papers.ca, **{VARIABLE: SECRET + "?"})
        assert wrong.returncode == 1
        assert "the caller does not know the secret" in wrong.stderr
        assert "fix: " in wrong.stderr
        assert "Traceback" not in wrong.stderr
        again = trisplit(*ask, "--ca", papers.ca, **{VARIABLE: SECRET})
        assert json.loads(again.stdout)["token_ids"] == json.loads(answered.stdout)["token_ids"]


def test_a_station_that_cannot_trust_the_next_says_so(
    papers: Papers, secret_file: Path, tiny: Callable[[str], Path]
) -> None:
    secret = ("--secret-file", secret_file)
    shown = ("--cert", papers.cert, "--key", papers.key)
    with station(*secret, *shown) as first, station(*secret, *shown) as second:
        refused = trisplit(*question(tiny("llama"), f"{first},{second}", "--ca", papers.ca, *secret))
    assert refused.returncode == 1
    next_ones = (first, second)  # in a ring both have one, and either may be the first to say so
    assert any(f"the station at {one} cannot be trusted" in refused.stderr for one in next_ones)


def test_processes_that_a_command_starts_have_its_secret(
    secret_file: Path, tiny: Callable[[str], Path]
) -> None:
    for options, environment in (
        ((), {VARIABLE: SECRET}),
        (("--secret-file", secret_file), {VARIABLE: "another that does not count"}),
    ):
        answered = trisplit(*question(tiny("llama"), "2", *options), **environment)
        assert answered.returncode == 0, answered.stderr
