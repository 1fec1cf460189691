"""Sets of options: typer sees the fields, the command gets the dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from trisplit.cli.unfold import unfolded


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large something is."""

    width: Annotated[int, typer.Option("--width", "-w", help="Across.")]
    height: Annotated[float, typer.Option(help="Upwards.")] = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """What is on it."""

    colour: Annotated[list[str] | None, typer.Option(help="May be given again.")] = None


def box(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    size: Size,
    paint: Paint,
    loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False,
) -> None:
    """Show a box."""
    print(name, size, paint, loud)


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(unfolded(box))
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("tea", "-w", "3"), "tea Size(width=3, height=1.5) Paint(colour=None) False"),
        (
            ("--loud", "--height", "2", "tea", "--width", "4", "--colour", "red", "--colour", "blue"),
            "tea Size(width=4, height=2.0) Paint(colour=['red', 'blue']) True",
        ),
    ],
)
def test_what_is_typed_comes_as_its_set(arguments: tuple[str, ...], shown: str) -> None:
    assert run(*arguments) == (0, f"{shown}\n")


def test_the_fields_are_options_like_any_other() -> None:
    code, said = run("--help")
    assert code == 0
    for told in (
        "Show a box.",
        "--width",
        "-w",
        "Across.",
        "--height",
        "[default: 1.5]",
        "Upwards.",
        "Shout.",
    ):
        assert told in said
    assert "size" not in said
    assert run("tea")[0] == 2, "a field without a default must be given"
    assert run("tea", "-w", "wide")[0] == 2
