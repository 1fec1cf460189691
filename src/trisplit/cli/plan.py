"""`trisplit plan`: which stage lies best on which station, and what else there would be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trisplit.cli.options import AsJson, Context, DtypeOption, Trusting
from trisplit.cli.printing import print_result
from trisplit.cli.typed import addresses_typed
from trisplit.cli.unfold import unfolded


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("plan")(unfolded(plan))


def plan(
    trusting: Trusting,
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="As for `inspect`; not needed with a profile of layers.")
    ] = "",
    stations: Annotated[
        str | None,
        typer.Option(
            metavar="N|[wss://]HOST:PORT,…",
            help="How many, without limits; default 4. Or running ones, whose links and memory are measured.",
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE,…", help="One station for each limit: 200MB,1.5GB")
    ] = None,
    cut: Annotated[str | None, typer.Option(help="Take this one: layers, thirds or recut.")] = None,
    topology: Annotated[str | None, typer.Option(help="Take this one: star, chain or ring.")] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="What was measured of the mesh.")
    ] = None,
    one_way_ms: Annotated[
        str | None,
        typer.Option(metavar="MS|FILE", help="Of every link, or rows of a matrix, the coordinator first."),
    ] = None,
    stage_ms: Annotated[
        str | None, typer.Option(metavar="A,G,D", help="What attention, gate_up and down take.")
    ] = None,
    ends_ms: Annotated[float | None, typer.Option(help="What embed and head take together.")] = None,
    dtype: DtypeOption = "f32",
    context: Context = None,
    overlap: Annotated[
        str,
        typer.Option(metavar="SET|FILE", help="Layers that start ahead, in thirds; as for `generate`."),
    ] = "none",
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show the alternatives, and what each lever would give.")
    ] = False,
    rounds: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Pings that measure each link between stations that run."),
    ] = 20,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Keep what was measured, for --profile.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose cut, topology and order of stations by predicted time; nothing is loaded."""
    from trisplit.cli import planning

    places = addresses_typed(stations or "")
    distances = None
    if places:
        import uvloop

        from trisplit.cli.measuring import measured

        distances = uvloop.run(measured(places, trusting.trust(), rounds))
    wish = planning.Wish(
        model=model,
        stations=stations,
        memory=memory,
        cut=cut,
        topology=topology,
        profile=profile,
        one_way_ms=one_way_ms,
        stage_ms=stage_ms,
        ends_ms=ends_ms,
        dtype=dtype,
        context=context,
        overlap=overlap,
        distances=distances,
    )
    seen = planning.outlook(wish, explain=explain)
    if save is not None:
        planning.keep(seen.profile, save)
    print_result(seen.as_json() if as_json else None, seen.tables(), seen.lines())
