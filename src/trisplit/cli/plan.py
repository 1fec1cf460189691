"""`trisplit plan`: which stage lies best on which station, and what else there would be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, Context, DtypeOption, Trusting
from trisplit.cli.printing import print_result
from trisplit.cli.typed import one_dtype
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from trisplit.cli.planning import Wish
    from trisplit.mesh.trust import Trust


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
    measure_stages: Annotated[
        bool,
        typer.Option("--measure-stages", help="Also have them load the model, and measure what stages take."),
    ] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Keep what was measured, for --profile.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose cut, topology and order of stations by predicted time; nothing is loaded unless measured."""
    from trisplit.cli import planning

    if measure_stages and (stage_ms is not None or ends_ms is not None):
        raise RequestProblem("stages are measured, and typed as well", fix="leave one of both out")
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
    )
    if measure_stages and not (wish.addresses and model):
        what = "stages are measured with a model that running stations load"
        raise RequestProblem(what, fix="name the model, and the stations by their addresses")
    if wish.addresses:
        planning.understood(wish)  # or refused, before anybody is asked
        wish = _measured(wish, trusting.trust(), rounds, with_stages=measure_stages)
    seen = planning.outlook(wish, explain=explain)
    if save is not None:
        planning.keep(seen.profile, save)
    print_result(seen.as_json() if as_json else None, seen.tables(), seen.lines())


def _measured(wish: Wish, trust: Trust, rounds: int, *, with_stages: bool) -> Wish:
    """The wish, with what its stations have measured."""
    import uvloop

    from trisplit.cli.measuring import measured
    from trisplit.cli.names import find_model
    from trisplit.models.model import open_model

    distances = uvloop.run(measured(wish.addresses, trust, rounds))
    if not with_stages:
        return replace(wish, distances=distances)
    from trisplit.cli.clocking import clocked

    clocking = clocked(open_model(find_model(wish.model)), distances, trust, one_dtype(wish.dtype))
    return replace(wish, distances=distances, times=uvloop.run(clocking))
