"""`trisplit fetch` and `inspect`: what there is, and what a model is."""

from __future__ import annotations

from typing import Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.printing import print_result


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("fetch")(fetch)
    app.command("inspect")(inspect)


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from --list.")] = "",
    list_all: Annotated[bool, typer.Option("--list", help="Show every name instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a model, a text or questions by name, once, checked."""
    from trisplit.errors import RequestProblem

    if list_all:
        _list_assets(as_json)
    elif name:
        _fetch(name, as_json)
    else:
        raise RequestProblem("no name was given to fetch", fix="trisplit fetch --list shows the names")


def inspect(model: ModelArgument, as_json: AsJson = False) -> None:
    """Show what a model is made of, and what of it we cannot run (then the exit code is 1)."""
    from trisplit.cli import inspecting
    from trisplit.cli.names import find_model

    seen = inspecting.inspect(model, find_model(model))
    print_result(seen.as_json() if as_json else None, list(seen.tables()), list(seen.notes()))
    if seen.unsupported:
        raise typer.Exit(1)


# --- fetch ----------------------------------------------------------------------------------------


def _fetch(name: str, as_json: bool) -> None:
    """Fetches, then says where it lies."""
    from trisplit.assets import ASSETS
    from trisplit.assets.store import RECEIPT
    from trisplit.cli.names import fetched

    path = fetched(name)
    files = [path] if path.is_file() else [file for file in path.iterdir() if file.name != RECEIPT]
    asset, n_bytes = ASSETS[name], sum(file.stat().st_size for file in files)
    facts = {"name": name, "path": str(path), "licence": asset.licence, "bytes": n_bytes, "what": asset.what}
    lines = [str(path), f"{n_bytes:,} bytes, licence: {asset.licence}"]
    print_result(facts if as_json else None, (), lines)


def _list_assets(as_json: bool) -> None:
    from trisplit.assets import ASSETS
    from trisplit.assets.store import is_kept
    from trisplit.paths import cache_dir
    from trisplit.table import Table

    columns = ("name", "what", "bytes", "licence", "fetched")
    rows = tuple(
        (name, asset.what, asset.n_bytes, asset.licence, is_kept(asset, cache_dir() / name))
        for name, asset in ASSETS.items()
    )
    facts = {"rows": [dict(zip(columns, row)) for row in rows]}
    print_result(facts if as_json else None, [Table(columns, rows)])
