"""`trisplit station` starts nothing that strangers could use, and takes no secret where others can see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.mesh.certificates import issue
from trisplit.cli.app import app
from trisplit.errors import RequestProblem


def problem_of(*options: object) -> RequestProblem:
    result = CliRunner().invoke(app, ["station", *map(str, options)])
    assert result.stdout == ""
    assert isinstance(result.exception, RequestProblem)
    return result.exception


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.1", "example.com"])
def test_without_a_secret_a_station_is_for_this_machine_alone(host: str) -> None:
    problem = problem_of("--listen", f"{host}:0")
    where = host.strip("[]")
    assert problem.what == f"{where} can be reached from other machines, and there is no secret"
    assert problem.fix == "give one by --secret-file or TRISPLIT_SECRET, or listen on 127.0.0.1"


def test_a_secret_others_can_read_starts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mesh.secret"
    file.write_text("a secret of the tests")
    file.chmod(0o644)
    assert problem_of("--secret-file", file).fix == f"chmod 600 {file}"


def test_half_a_pair_of_certificate_and_key_starts_nothing(tmp_path: Path) -> None:
    papers = issue(tmp_path, "127.0.0.1")
    for option, file in (("--cert", papers.cert), ("--key", papers.key)):
        assert problem_of(option, file).what == "a certificate and its key come together"


def test_a_folder_of_models_that_is_none_starts_nothing(tmp_path: Path) -> None:
    problem = problem_of("--models", tmp_path / "away")
    assert problem.what == f"--models {tmp_path}/away is no folder"
    (tmp_path / "file").touch()
    assert problem_of("--models", tmp_path / "file").what == f"--models {tmp_path}/file is no folder"


def test_a_secret_is_no_argument() -> None:
    for command in ("station", "generate", "chat"):
        helped = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
        assert "--secret-file" in helped
        assert "--secret " not in helped
