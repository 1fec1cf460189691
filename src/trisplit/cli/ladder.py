"""`trisplit bench mesh`, `sessions`, `prefill`: meshes on emulated links, beside their measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, Cut
from trisplit.cli.typed import factors, one_dtype, show_rows, some, span, warn_if_busy, words
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from trisplit.bench.levers import Levers
    from trisplit.bench.mesh import Climbed
    from trisplit.bench.meshes import Ground, Subject
    from trisplit.bench.wires import Wires
    from trisplit.mesh.overlap import Ahead

    Rows = Mapping[str, Sequence[DataclassInstance]]

LeverNames = Annotated[
    str, typer.Option("--levers", metavar="L,…", help="none, batched, routed, overlap; several by +.")
]
OverlapLayers = Annotated[
    str,
    typer.Option(
        "--overlap", metavar="SET|FILE", help="With that lever: all, 3,5-9, or a record of `gate overlap`."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="How often each takes its turn.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounding:
    """What the meshes of a bench run, on which links."""

    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="As for `decode`; none where stages wait.")
    ] = ""
    stations: Annotated[int, typer.Option(min=1, max=1000, help="Station processes of each mesh.")] = 4
    one_way_ms: Annotated[
        str, typer.Option(metavar="MS|FILE", help="Emulated links: one way of each, or rows of a matrix.")
    ] = "0"
    jitter_ms: Annotated[float, typer.Option(min=0, help="Up to so many more, drawn evenly.")] = 0.0
    mbit: Annotated[float | None, typer.Option(help="10^6 bits a second, each way of each link.")] = None
    far: Annotated[
        str,
        typer.Option(metavar="S=N,…", help="Who is N times as far from everybody: a station, coordinator."),
    ] = ""
    slow: Annotated[str, typer.Option(metavar="S=N,…", help="Stations that run each stage N times.")] = ""
    dtype: Annotated[str, typer.Option(metavar="D", help="Weights as f32, int8 or int4.")] = "f32"
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1
    stage_ms: Annotated[
        str | None,
        typer.Option(metavar="A,G,D", help="Run nothing: attention, gate_up and down wait so long."),
    ] = None
    ends_ms: Annotated[float, typer.Option(min=0, help="With --stage-ms: embed and head together.")] = 0.0
    layers: Annotated[int, typer.Option(min=1, max=1000, help="With --stage-ms: how many.")] = 60
    width: Annotated[int, typer.Option(min=64, max=65536, help="With --stage-ms: numbers in a row.")] = 5376

    def ground(self, time_scale: float = 1.0) -> Ground:
        """The same, checked, in time that really passes."""
        from trisplit.bench.meshes import Ground

        found = Ground(
            subject=self._subject(time_scale),
            wires=self._wires(time_scale),
            slow=_times(self.slow),
            dtype=one_dtype(self.dtype),
            threads=self.threads,
        )
        warn_if_busy(self.threads)
        return found

    def _wires(self, time_scale: float) -> Wires:
        from trisplit.bench.wires import names_of, wires_between
        from trisplit.cli.planning import links_typed

        one_way_ms, names = links_typed(self.one_way_ms).one_way_ms, names_of(self.stations)
        wires = wires_between(names, one_way_ms, jitter_ms=self.jitter_ms, mbit=self.mbit)
        return wires.with_far(factors(self.far, "--far")).at_scale(time_scale)

    def _subject(self, time_scale: float) -> Subject:
        """The model that was named, or one that waits. RequestProblem unless it is one of them."""
        from trisplit.bench.meshes import Subject
        from trisplit.bench.waiting import HEAD_DIM, Waits
        from trisplit.cli.names import find_model
        from trisplit.cli.planning import stages_typed

        if bool(self.model) == (self.stage_ms is not None):
            what = "either a model runs, or stages wait"
            raise RequestProblem(what, fix="name a model, or give --stage-ms")
        if self.stage_ms is None:
            if time_scale != 1.0:
                what = "a model takes the time it takes"
                raise RequestProblem(what, fix="leave --time-scale to --stage-ms")
            return Subject(path=str(find_model(self.model)))
        if self.width % HEAD_DIM:
            what = f"--width {self.width} makes no whole heads"
            raise RequestProblem(what, fix=f"use a multiple of {HEAD_DIM}")
        attention_ms, gate_up_ms, down_ms = stages_typed(self.stage_ms).p50_ms
        waits = Waits(
            layers=self.layers,
            attention_ms=attention_ms,
            gate_up_ms=gate_up_ms,
            down_ms=down_ms,
            ends_ms=self.ends_ms,
            width=self.width,
        )
        return Subject(waits=waits.times(time_scale))


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (mesh, sessions, prefill):
        app.command(command.__name__)(unfolded(command))


def mesh(
    on: Grounding,
    cuts: Annotated[str, typer.Option(metavar="C,…", help="thirds, recut, layers.")] = "thirds,recut,layers",
    topologies: Annotated[str, typer.Option(metavar="T,…", help="star, chain, ring.")] = "star,chain,ring",
    levers: LeverNames = "none",
    overlap: OverlapLayers = "all",
    tokens: Annotated[int, typer.Option(min=2, help="Tokens each turn, the first after the prompt.")] = 24,
    warm: Annotated[
        str, typer.Option(metavar="A-B", help="Those that count, 2 or higher; default: all of these.")
    ] = "",
    rounds: Rounds = 5,
    time_scale: Annotated[
        float, typer.Option(min=0.001, max=1, help="With --stage-ms: how much of a millisecond passes here.")
    ] = 1.0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the ladder, and beside it a token's waterfall: .svg or .png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What splitting costs: every rung beside its floor, the decoder in one process, and its prediction."""
    import asyncio

    from trisplit.bench.mesh import Asked
    from trisplit.bench.mesh import mesh as measure
    from trisplit.bench.plot import refuse_picture
    from trisplit.bench.scale import at_scale

    first, last = span(warm, tokens)
    ground, wanted = on.ground(time_scale), _levers(levers)
    asked = Asked(
        ground=ground,
        cuts=some(words(cuts), "cut"),
        topologies=some(words(topologies), "topology"),
        levers=wanted,
        ahead=_ahead(overlap, wanted, ground),
        tokens=tokens,
        first=first,
        last=last,
        rounds=rounds,
    )
    if plot is not None:
        refuse_picture(plot)
    climbed = at_scale(asyncio.run(measure(asked)), 1 / time_scale)
    if plot is not None:
        _draw(climbed, plot, on.model or "a model that waits")
    others: Rows = {"gains": climbed.gains, "relays": climbed.relays, "left_out": climbed.left_out}
    show_rows(climbed.rows, also=others, as_json=as_json)


def sessions(
    on: Grounding,
    sessions: Annotated[int, typer.Option(min=1, help="How many at once, beside one.")] = 8,
    cut: Cut = "layers",
    topology: Annotated[str, typer.Option(help="star, chain or ring.")] = "ring",
    levers: LeverNames = "none",
    overlap: OverlapLayers = "all",
    tokens: Annotated[int, typer.Option(min=2, help="Of each session in each turn.")] = 24,
    rounds: Rounds = 3,
    as_json: AsJson = False,
) -> None:
    """Tokens a second of many sessions at once, beside those of one alone."""
    import asyncio

    from trisplit.bench.sessions import sessions as measure

    ground, wanted = on.ground(), _levers(levers)
    rows = measure(
        ground,
        cut,
        topology,
        sessions=sessions,
        levers=wanted,
        tokens=tokens,
        rounds=rounds,
        ahead=_ahead(overlap, wanted, ground),
    )
    show_rows(asyncio.run(rows), as_json=as_json)


def prefill(
    on: Grounding,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 2000,
    cut: Cut = "layers",
    rounds: Rounds = 3,
    as_json: AsJson = False,
) -> None:
    """Time to the first token of a long prompt: chunks in a stream, beside one after the other."""
    import asyncio

    from trisplit.bench.prefill import prefill as measure

    row = asyncio.run(measure(on.ground(), cut, prompt_tokens=prompt, rounds=rounds))
    show_rows([row], as_json=as_json)


def _levers(text: str) -> list[Levers]:
    from trisplit.bench.levers import levers_named

    return [levers_named(word) for word in some(words(text), "lever")]


def _ahead(overlap: str, levers: list[Levers], ground: Ground) -> Ahead | None:
    """What the lever `overlap` lets start ahead; None where nobody pulls it."""
    from trisplit.cli.overlap import ahead_typed

    if not any(each.overlap for each in levers):
        return None
    model = ground.subject.opened()
    return ahead_typed(overlap, model.config.layers, model, ground.dtype)


def _times(slow: str) -> dict[str, int]:
    found = factors(slow, "--slow")
    for name, times in found.items():
        if times < 1 or times != int(times):
            raise RequestProblem(f"{name} cannot run a stage {times:g} times", fix="write --slow s2=2")
    return {name: int(times) for name, times in found.items()}


def _draw(climbed: Climbed, path: Path, model: str) -> None:
    from trisplit.bench.rungs import Rung, draw_rungs
    from trisplit.bench.waterfall import draw_waterfall

    rows = climbed.rows
    one_way = "links that differ" if rows[0].one_way_ms is None else f"{rows[0].one_way_ms:g} ms one way"
    rungs = [Rung(name=row.name, p50_ms=row.p50_ms, floor_ms=row.floor_ms) for row in rows]
    draw_rungs(rungs, path, title=f"{model} on {rows[0].stations} stations, {one_way}")
    token = path.with_stem(f"{path.stem}-token")
    draw_waterfall(climbed.token, token, title=f"One token of {model}: {climbed.best.name}, {one_way}")
