"""The claims: whole, on the page as in the data, with figures that the commands beside them print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from trisplit.bench.claims import NOT_MEASURED, Claim, Verdict, claims, claims_page, claims_table
from trisplit.cli.app import app

ROOT = Path(__file__).parents[2]


def test_the_page_is_the_data() -> None:
    assert (ROOT / "docs" / "claims.md").read_text() == claims_page(), (
        "trisplit claims --markdown > docs/claims.md"
    )


def test_every_row_of_the_table_is_a_claim() -> None:
    assert [row[1] for row in claims_table().rows] == [claim.statement for claim in claims()]
    assert {claim.area for claim in claims()} == {"wire", "mesh", "shrink", "skip"}


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.statement)
def test_what_has_no_figure_has_no_verdict(claim: Claim) -> None:
    assert (claim.figure == NOT_MEASURED) == (claim.verdict == NOT_MEASURED)
    assert claim.verdict in get_args(Verdict)
    assert "|" not in f"{claim.statement}{claim.figure}{claim.why}"
    assert claim.command.startswith("trisplit ")


def said(command: str) -> str:
    """What a plan prints."""
    options = command.replace("examples/", f"{ROOT}/examples/").split()[1:]
    return CliRunner().invoke(app, options).stdout


@pytest.mark.parametrize(
    ("command", "figures"),
    [
        (
            "trisplit plan --profile examples/origin.toml --explain",
            "35,110 0.0285 27,010 32,950 897 1.208 1.224 1.190 3.69 4.33 1.09 1.05 360 180 120 60",
        ),
        (
            "trisplit plan --profile examples/origin.toml --explain --one-way-ms 20",
            "7,200 35,110 27,490.0 420.0",
        ),
    ],
)
def test_figures_of_plans_are_those_that_plans_print(command: str, figures: str) -> None:
    """The rows of benches are stored with their own files; plans are told anew."""
    printed = said(command)
    for figure in figures.split():
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}", printed), figure
    stated = " ".join(claim.figure for claim in claims() if claim.command == command)
    for figure in figures.split():
        assert figure.removesuffix(".0") in stated, figure
