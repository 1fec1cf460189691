"""`trisplit diagnose`: which layers of a smaller copy are to blame for what it lost."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from trisplit.compress.anatomy import Anatomy
    from trisplit.compress.diagnose import Blame, Diagnosis
    from trisplit.compress.evaluate import Exam
    from trisplit.compress.reading import Report
    from trisplit.models.model import Model
    from trisplit.table import Table


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("diagnose")(unfolded(diagnose))


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """The copy: made now by a recipe, or one that there is."""

    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE.toml", help="Make the copy by it; see `trisplit recipes`."),
    ] = None
    keep: Annotated[float | None, typer.Option(help="Another share of neurons than the recipe's.")] = None
    calibrate: Annotated[
        str, typer.Option(metavar="wiki|brown|FILE", help="Make it with this; of wiki and brown, half.")
    ] = "wiki"
    tokens: Annotated[int, typer.Option(min=2, help="Of that text, to read.")] = 32_768
    twin: Annotated[
        str | None, typer.Option(metavar="MODEL", help="In place of --recipe: a copy that there is.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """What is read to tell layers apart: some 20 times as long as for a perplexity (of 30 layers)."""

    held_out: Annotated[
        list[str] | None,
        typer.Option(metavar="wiki|brown|FILE", help="Look at these; default: the other half of both."),
    ] = None
    passages: Annotated[int, typer.Option(min=1, help="Of each text.")] = 2
    passage_tokens: Annotated[int, typer.Option(min=1, help="Of each passage.")] = 128
    seed: Annotated[int, typer.Option(help="Which passages.")] = 0


def diagnose(
    model: ModelArgument,
    making: Making,
    looking: Looking,
    gate: Annotated[
        str, typer.Option(metavar="NAME=LIMIT,…", help="ppl, kl, top1: whose failing is looked into.")
    ] = "default",
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it, .svg or .png.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads to read with.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show what each layer of a smaller copy costs, alone and among others, and how that grows in depth."""
    from trisplit.machine import free_cores

    # Read once, when numpy is first imported. More threads than free cores took four times as long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(free_cores()))

    from trisplit.bench.plot import refuse_picture
    from trisplit.cli.names import find_model
    from trisplit.cli.progress import bars
    from trisplit.compress import diagnose as diagnosing
    from trisplit.compress.anatomy import dissect
    from trisplit.compress.gates import limits
    from trisplit.models.model import open_model
    from trisplit.paths import scratch

    if (making.recipe is None) == (making.twin is None):
        raise RequestProblem("one copy is to be looked at", fix="write --recipe NAME, or --twin MODEL")
    if plot is not None:
        refuse_picture(plot)
    wanted, anatomy = limits(gate), dissect(find_model(model))
    dense = anatomy.decoder()
    exam = _exam(dense, looking)
    with bars() as show, scratch() as folder:
        twin = (
            _made(anatomy, dense, making, exam, folder / "twin", threads, show.advance)
            if making.twin is None
            else open_model(find_model(making.twin))
        )
        found = diagnosing.diagnose(
            *(dense, twin, exam.texts), gates=wanted, threads=threads, report=show.advance
        )
    if plot is not None:
        _draw(found, plot, Path(model).name)
    asked = {"model": model, **asdict(making), **asdict(looking), "held_out": list(exam.texts)}
    _show(asked | {"written": plot and str(plot)}, found, as_json=as_json)


def _made(
    anatomy: Anatomy, decoder: Model, making: Making, exam: Exam, out: Path, threads: int, report: Report
) -> Model:
    from trisplit.cli.texts import calibration_of
    from trisplit.compress.pipeline import compress
    from trisplit.compress.stacks import open_recipe
    from trisplit.models.model import open_model

    recipe = open_recipe(making.recipe or "", making.keep)
    read = calibration_of(decoder.tokenizer(), [making.calibrate], making.tokens)
    compress(anatomy, recipe, read, exam, out, gates={}, keep_failed=True, threads=threads, report=report)
    return open_model(out)


def _exam(model: Model, looking: Looking) -> Exam:
    from trisplit.cli.texts import exam_texts
    from trisplit.cli.typed import TEXTS
    from trisplit.compress.evaluate import Exam

    return Exam(
        texts=exam_texts(
            *(model.tokenizer(), looking.held_out or TEXTS),
            count=looking.passages,
            n_tokens=looking.passage_tokens,
            seed=looking.seed,
        )
    )


def _draw(found: Diagnosis, plot: Path, name: str) -> None:
    from trisplit.bench.diagnosis_plot import draw_diagnosis

    draw_diagnosis(found, plot, name)


# --- what it shows --------------------------------------------------------------------------------


def _show(asked: dict[str, Any], found: Diagnosis, *, as_json: bool) -> None:
    from trisplit.cli.evaluating import gates_table
    from trisplit.cli.printing import print_result
    from trisplit.machine import this_machine

    if as_json:
        facts = asked | asdict(found) | {"passed": found.verdict.passed}
        facts |= {"machine": asdict(this_machine()), "command": shlex.join(["trisplit", *sys.argv[1:]])}
        print(json.dumps(facts))
        return
    tables = [_damage(found), _depth(found), gates_table(found.verdict)]
    written = [f"written: {asked['written']}"] if asked["written"] else []
    print_result(None, tables, [*_verdict(found), *written])


def _damage(found: Diagnosis) -> Table:
    """The most to blame first."""
    from trisplit.table import Table

    columns = ("layer", "share of kl", "kl alone", "kl won back", "ppl alone", "top1 alone", "own error")
    rows = [
        (
            str(each.layer),
            f"{each.share:.1%}",
            each.alone.kl,
            found.whole.kl - each.spared.kl,
            each.alone.ppl_ratio,
            each.alone.top1,
            each.own.error,
        )
        for each in found.ranked()
    ]
    return Table(columns, tuple(rows), "What each layer costs")


def _depth(found: Diagnosis) -> Table:
    """In the order of layers."""
    from trisplit.table import Table

    columns = ("after layer", "apart", "1 - cos", "apart, first token", "1 - cos, first token")
    rows = tuple(
        (str(each.layer), depth.apart, depth.turned, depth.apart_first, depth.turned_first)
        for each in found.layers
        for depth in (each.depth,)
    )
    return Table(columns, rows, "How far residuals come apart, all layers edited")


def _verdict(found: Diagnosis) -> list[str]:
    if not found.carriers:
        return ["nothing was lost that a layer is to blame for"]
    whole, mended = f"{found.whole.kl:.3g}", f"{found.mended.kl:.3g}"
    return [
        f"{_layers(found.carriers)} {_carry(found.carriers)} {found.carried:.0%} of the KL: "
        f"it is {whole}, and {mended} with {'it' if len(found.carriers) == 1 else 'them'} left dense",
        *(_blamed(blame) for blame in found.blames),
        f"shares: half of what a layer costs alone and of what is won back without it, together "
        f"{found.explained:.0%} of the KL before they were scaled to all of it",
    ]


def _blamed(blame: Blame) -> str:
    from trisplit.compress.gates import failed

    (said,) = failed([blame.gate])
    whose = (
        f"{_layers(blame.layers)} {_carry(blame.layers)} {blame.share:.0%}"
        if blame.layers
        else "no layer is to blame"
    )
    alone = (
        f"left dense alone, {_layers(blame.rescuers, 'or')} would pass it"
        if blame.rescuers
        else "no layer left dense alone would pass it"
    )
    return f"{said}: {whose}; {alone}"


def _carry(layers: Sequence[int]) -> str:
    return "carries" if len(layers) == 1 else "carry"


def _layers(layers: Sequence[int], word: str = "and") -> str:
    """`layer 3`, `layers 0, 1 and 28`."""
    *most, last = map(str, layers)
    return f"layers {', '.join(most)} {word} {last}" if most else f"layer {last}"
