"""`trisplit fetch`, `inspect` and `plan`: what there is, what a model is, and where it would lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.answer import AsJson, Context, Cut, DtypeOption, ModelArgument
from trisplit.cli.printing import print_result

if TYPE_CHECKING:
    from trisplit.mesh.plan import Plan
    from trisplit.mesh.room import Room

MOST_STATIONS = 1000


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("fetch")(fetch)
    app.command("inspect")(inspect)
    app.command("plan")(plan)


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


def plan(
    model: ModelArgument,
    stations: Annotated[int | None, typer.Option(help="How many, without a limit; default 4.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE,…", help="One station for each limit: 200MB,1.5GB")
    ] = None,
    cut: Cut = "layers",
    dtype: DtypeOption = "f32",
    context: Context = None,
    as_json: AsJson = False,
) -> None:
    """Show which stage would lie on which station; nothing is loaded."""
    from trisplit.cli.engines import settings
    from trisplit.cli.names import find_model
    from trisplit.mesh.costs import plan_model
    from trisplit.models.model import context_for, open_model

    rooms = _rooms(stations, memory)
    asked = settings(stations="0", cut=cut, dtype=dtype, threads=None, context=context)
    opened = open_model(find_model(model))
    tokens = context_for(opened.config, context)
    drawn = plan_model(opened, rooms, cut=cut, dtype=asked.dtype, context=tokens)
    facts = {"model": model, "dtype": dtype, "context": tokens} | _plan_facts(drawn, rooms)
    print_result(facts if as_json else None, [drawn.table()])


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


# --- plan -----------------------------------------------------------------------------------------


def _rooms(stations: int | None, memory: str | None) -> list[Room]:
    """The stations asked for, named s1, s2, …"""
    from trisplit.errors import RequestProblem
    from trisplit.mesh.room import Room, parse_size

    if stations is not None and memory is not None:
        raise RequestProblem(
            "--stations and --memory both say how many stations there are", fix="give one of them"
        )
    if memory is not None:
        return [Room(f"s{i}", parse_size(limit)) for i, limit in enumerate(memory.split(","), 1)]
    count = 4 if stations is None else stations
    if not 1 <= count <= MOST_STATIONS:
        raise RequestProblem(f"--stations {count} makes no sense", fix=f"use 1 to {MOST_STATIONS}")
    return [Room(f"s{i}", None) for i in range(1, count + 1)]


def _plan_facts(drawn: Plan, rooms: Iterable[Room]) -> dict[str, Any]:
    """A plan for machines: the facts of its table, and the groups in the order of their visits."""
    limits = {room.name: room.memory_bytes for room in rooms}
    return {
        "cut": drawn.cut,
        "topology": drawn.topology,
        "legs_per_token": drawn.legs_per_token,
        "ends_bytes": drawn.ends_bytes,
        "stations": [
            {
                "name": share.station,
                "stages": share.label,
                "groups": [group.label for group in share.groups],
                "weight_bytes": share.weight_bytes,
                "kv_bytes": share.kv_bytes,
                "memory_bytes": limits[share.station],
            }
            for share in drawn.shares
        ],
        "spares": list(drawn.spares),
    }
