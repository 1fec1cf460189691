"""`trisplit bench …`: measures, and says beside what."""

from __future__ import annotations

import typer

app = typer.Typer(help="Measure: every figure beside what it is compared with.", no_args_is_help=True)
