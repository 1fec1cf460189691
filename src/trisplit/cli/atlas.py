"""`trisplit atlas`: spectra of every matrix and head of a model, layer by layer."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.options import AsJson
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from trisplit.compress.anatomy import Anatomy
    from trisplit.compress.atlas import Atlas, Layer, Row
    from trisplit.compress.given import Calibration
    from trisplit.compress.spectra import Spectrum
    from trisplit.table import Table


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("atlas")(atlas)


def atlas(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A decoder; or a BERT or ViT encoder: a folder, or .onnx."),
    ],
    cliff_threshold: Annotated[
        str, typer.Option(metavar="NUMBER|pNN", help="From which σ1/σ2 on it is a cliff; or a percentile.")
    ] = "8",
    calibrate: Annotated[
        str | None,
        typer.Option(metavar="wiki|brown|FILE", help="Also as this text sees it; of wiki and brown, half."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Of that text, to read.")] = 16_384,
    threads: Annotated[int, typer.Option(min=1, help="Threads to read with.")] = 1,
    heads: Annotated[
        int | None, typer.Option(min=1, help="Of attention, where the file does not say (ONNX).")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Show every matrix and head too.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a map, .svg or .png.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep it as a table of words.")] = None,
    embed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the model's file again, with the table in it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the spectrum of every matrix and attention head, and which of them could be made smaller."""
    from trisplit.machine import free_cores

    # Read once, when numpy is first imported. More threads than free cores took four times as long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(free_cores()))
    from trisplit.bench.plot import refuse_picture
    from trisplit.cli.progress import bars
    from trisplit.compress.anatomy import dissect
    from trisplit.compress.atlas import survey

    if plot is not None:
        refuse_picture(plot)
    path = _found(model)
    anatomy = dissect(path, heads=heads)
    with ExitStack() as ending:
        show = ending.enter_context(bars())
        reading, read = None, 0
        if calibrate is not None:
            reading, read = _calibration(anatomy, calibrate, tokens, threads, ending)
        made = survey(anatomy, reading, cliff=cliff_threshold, report=show.advance)
    written = _write(made, model, path, plot=plot, save=save, embed=embed)
    notes = [*_few(made, read), *(f"written: {file}" for file in written)]
    facts = {"model": model, "calibrated_on": calibrate, "tokens": read, "written": written}
    _show(facts, made, notes, rows=rows, as_json=as_json)


def _calibration(
    anatomy: Anatomy, text: str, tokens: int, threads: int, ending: ExitStack
) -> tuple[Calibration, int]:
    """What the model is given by a text, and how many tokens of it there are; RequestProblem for encoders."""
    from trisplit.cli.texts import calibration_of
    from trisplit.compress.given import calibrated

    if anatomy.model is None:
        raise RequestProblem("only decoders can read a text here", fix="leave --calibrate out")
    passages = calibration_of(anatomy.model.tokenizer(), [text], tokens)
    reading = ending.enter_context(calibrated(anatomy.model, passages, threads=threads))
    return reading, sum(map(len, passages))


def _few(made: Atlas, read: int) -> list[str]:
    """A note when the text has not filled the space that it is judged in."""
    widest = max(row.columns for row in made.rows)
    if not 0 < read < widest:
        return []
    return [f"{read:,} tokens for {widest:,} columns: whitened ranks and tails say less than they seem to"]


def _found(model: str) -> Path:
    """A model of any kind: of what can be fetched also encoders."""
    from trisplit.assets.catalogue import ENCODERS
    from trisplit.cli.names import fetched, find_model

    return fetched(model) if model in ENCODERS and not Path(model).exists() else find_model(model)


def _write(
    made: Atlas, model: str, path: Path, *, plot: Path | None, save: Path | None, embed: Path | None
) -> list[str]:
    """What was asked for in files; says what was written."""
    from trisplit.bench.atlas_plot import draw_atlas
    from trisplit.compress.atlas_table import pack, save_table
    from trisplit.compress.embedding import embed as embedded

    table = pack(made)
    if plot is not None:
        draw_atlas(made, plot, Path(model).name)
    if save is not None:
        save_table(table, save)
    if embed is not None:
        embedded(table, path, embed)
    return [str(file) for file in (plot, save, embed) if file is not None]


# --- what it shows --------------------------------------------------------------------------------


def _show(facts: dict[str, Any], made: Atlas, notes: list[str], *, rows: bool, as_json: bool) -> None:
    from trisplit.cli.printing import print_result
    from trisplit.machine import this_machine

    if as_json:
        facts |= _facts(made) | {"machine": asdict(this_machine())}
        print(json.dumps(facts | {"command": shlex.join(["trisplit", *sys.argv[1:]])}))
        return
    lines = [
        f"{k} of {n} {what} pass (σ1/σ2 of {made.threshold:.3g} or more)"
        for what, (k, n) in _passing(made).items()
        if n
    ]
    print_result(None, list(_tables(made, rows=rows)), [*lines, *notes])


def _passing(made: Atlas) -> dict[str, tuple[int, int]]:
    layers = sum(made.passes(layer.cliff) for layer in made.layers)
    return {
        "matrices": made.passing(heads=False),
        "heads": made.passing(heads=True),
        "layers": (layers, len(made.layers)),
    }


def _facts(made: Atlas) -> dict[str, Any]:
    return {
        "kind": made.kind,
        "threshold": _number(made.threshold),
        "passing": {what: {"k": k, "n": n} for what, (k, n) in _passing(made).items()},
        "rows": [_row_facts(made, row) for row in made.rows],
        "layers": [_layer_facts(made, layer) | _shares(layer) for layer in made.layers],
    }


def _number(value: float) -> float | None:
    """JSON has no word for infinity, nor for what is no number: a cliff at rank one, or of zeros."""
    return value if math.isfinite(value) else None


def _class(made: Atlas, cliff: float) -> str:
    return "compressible" if made.passes(cliff) else "fragile"


def _row_facts(made: Atlas, row: Row) -> dict[str, Any]:
    facts: dict[str, Any] = {"layer": row.layer, "matrix": row.matrix, "head": row.head}
    facts |= {"rows": row.rows, "columns": row.columns, "class": _class(made, row.plain.cliff)}
    facts |= _spectrum_facts("", row.plain)
    return facts | (_spectrum_facts("white_", row.white) if row.white else {})


def _spectrum_facts(prefix: str, of: Spectrum) -> dict[str, float | None]:
    from trisplit.compress.spectra import RANKS

    named = {"cliff": of.cliff, "stable_rank": of.stable_rank, "effective_rank": of.effective_rank}
    for share, tail, bound in zip(RANKS, of.tail, of.bound):
        named |= {f"tail_{share * 100:.0f}": tail, f"bound_{share * 100:.0f}": bound}
    return {f"{prefix}{name}": _number(value) for name, value in named.items()}


def _layer_facts(made: Atlas, layer: Layer) -> dict[str, Any]:
    of_heads = made.of(layer.layer, heads=True)
    facts: dict[str, Any] = {"layer": layer.layer, "cliff": _number(layer.cliff)}
    facts |= {"class": _class(made, layer.cliff), "zone": layer.zone, "heads": len(of_heads)}
    facts["heads_passing"] = sum(made.passes(row.plain.cliff) for row in of_heads)
    if layer.neurons:
        facts |= {"neurons": len(layer.neurons.shares)}
        facts |= {f"carry_{share}": layer.neurons.carrying(share / 100) for share in (90, 99)}
    return facts


def _shares(layer: Layer) -> dict[str, Any]:
    """Of every neuron, to four digits; nothing without calibration."""
    return {"shares": [float(f"{share:.4g}") for share in layer.neurons.shares]} if layer.neurons else {}


def _tables(made: Atlas, *, rows: bool) -> Iterator[Table]:
    every = [_row_facts(made, row) for row in made.rows]
    if rows:
        yield _table([{**facts, "head": facts["head"]} for facts in every])
    layers = []
    for layer in made.layers:
        facts = _layer_facts(made, layer)
        for row in made.of(layer.layer):
            facts[row.matrix] = (row.white or row.plain).tail[1]
        layers.append(facts)
    yield _table(layers, title="each layer; last, of each matrix the energy beyond half the rank")


def _table(facts: list[dict[str, Any]], title: str = "") -> Table:
    from trisplit.table import Table

    columns = list(dict.fromkeys(name for row in facts for name in row))
    return Table(tuple(columns), tuple(tuple(row.get(name) for name in columns) for row in facts), title)
