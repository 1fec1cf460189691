"""`trisplit claims`: what the origin states, and what our commands say to it."""

from __future__ import annotations

from typing import Annotated

import typer

from trisplit.cli.options import AsJson
from trisplit.cli.printing import print_result


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("claims")(claims)


def claims(
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="As docs/claims.md has them.")] = False,
) -> None:
    """Show what the origin states, our command, our figure and the verdict; nothing is run."""
    from msgspec import structs

    from trisplit.bench import claims as bench

    if markdown and not as_json:
        print(bench.claims_page(), end="")
        return
    facts = {"rows": [structs.asdict(claim) for claim in bench.claims()]}
    print_result(facts if as_json else None, [bench.claims_table()])
