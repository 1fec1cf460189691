"""Runs a command in this process, and reads what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from trisplit.cli.app import app
from trisplit.errors import Problem


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def facts_of(*arguments: str | Path, exit_code: int = 0) -> Any:
    """What a command prints with --json; nothing may stand beside it."""
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (exit_code, ""), result.exception
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def problem_of(*arguments: str | Path) -> Problem:
    result = run(*arguments)
    assert result.stdout == ""
    assert isinstance(result.exception, Problem), result.exception
    return result.exception
