"""`trisplit compress` and `recipes`: a smaller copy of a model, judged before it is kept."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.evaluating import FAILED
from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.unfold import unfolded

if TYPE_CHECKING:
    from trisplit.compress.evaluate import Exam
    from trisplit.compress.pipeline import Outcome
    from trisplit.models.model import Model


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("compress")(unfolded(compress))
    app.command("recipes")(recipes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What is read for pruning, and what for judging."""

    calibrate: Annotated[
        str, typer.Option(metavar="wiki|brown|FILE", help="Calibrate on this; of wiki and brown, half.")
    ] = "wiki"
    tokens: Annotated[int, typer.Option(min=2, help="Of that text, to read.")] = 32_768
    held_out: Annotated[
        list[str] | None,
        typer.Option(metavar="wiki|brown|FILE", help="Judge on these; default: the other half of both."),
    ] = None
    passages: Annotated[int, typer.Option(min=1, help="To judge on, of each text.")] = 16
    passage_tokens: Annotated[int, typer.Option(min=1, help="Of each of those.")] = 512
    seed: Annotated[int, typer.Option(help="Which of those.")] = 0


def compress(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the smaller copy goes.")],
    material: Material,
    recipe: Annotated[str, typer.Option(help="See `trisplit recipes`.")] = "conservative",
    keep: Annotated[float | None, typer.Option(help="Another share of neurons than the recipe's.")] = None,
    gate: Annotated[
        str, typer.Option(metavar="NAME=LIMIT,…", help="ppl, kl, top1; exit 2 if one fails.")
    ] = "default",
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Keep the copy also if it fails.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads to read with.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Prune the FFNs of a model, refit what is left, judge the copy, and keep it if it passes."""
    from trisplit.machine import free_cores

    # Read once, when numpy is first imported. More threads than free cores took four times as long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(free_cores()))
    from trisplit.cli.names import find_model
    from trisplit.cli.progress import bars
    from trisplit.cli.texts import read_texts
    from trisplit.compress import pipeline
    from trisplit.compress.anatomy import dissect
    from trisplit.compress.gates import limits
    from trisplit.compress.passages import passages_of
    from trisplit.compress.recipe import recipe_named

    chosen, wanted = recipe_named(recipe, keep), limits(gate)
    anatomy = dissect(find_model(model))
    if anatomy.model is None:
        from trisplit.errors import RequestProblem

        raise RequestProblem(f"{model} is no decoder", fix="name a decoder")
    texts = read_texts(material.calibrate, "calibration")
    read = passages_of(anatomy.model.tokenizer(), texts, material.tokens)
    exam = _exam(anatomy.model, material)
    with bars() as show:
        outcome = pipeline.compress(
            *(anatomy, chosen, read, exam, out),
            gates=wanted,
            keep_failed=keep_failed,
            threads=threads,
            report=show.advance,
        )
    _show({"model": model, **asdict(material), "held_out": list(exam.texts)}, outcome, out, as_json=as_json)
    if not outcome.verdict.passed:
        raise typer.Exit(FAILED)


def recipes(as_json: AsJson = False) -> None:
    """Show the recipes of `trisplit compress`."""
    from trisplit.cli.printing import print_result
    from trisplit.compress.recipe import ALIASES, RECIPES
    from trisplit.table import Table

    also = {name: ", ".join(alias for alias, to in ALIASES.items() if to == name) for name in RECIPES}
    rows = [asdict(recipe) | {"also": also[name]} for name, recipe in RECIPES.items()]
    table = Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))
    print_result({"rows": rows} if as_json else None, [table])


def _exam(model: Model, material: Material) -> Exam:
    from trisplit.cli.texts import called, read_texts
    from trisplit.cli.typed import TEXTS
    from trisplit.compress.evaluate import Exam
    from trisplit.compress.passages import passages

    tokenizer = model.tokenizer()
    how = {"count": material.passages, "n_tokens": material.passage_tokens, "seed": material.seed}
    names = material.held_out or TEXTS
    return Exam(texts={called(n): passages(tokenizer, read_texts(n, "held-out"), **how) for n in names})


def _show(asked: dict[str, Any], outcome: Outcome, out: Path, *, as_json: bool) -> None:
    from trisplit.cli.evaluating import gates_table, texts_table
    from trisplit.cli.printing import print_result
    from trisplit.machine import this_machine
    from trisplit.table import Table

    parameters = {"parameters": outcome.parameters, "parameters_dense": outcome.parameters_dense}
    if as_json:
        facts = asked | dict(outcome.receipt) | parameters | {"kept": str(out) if outcome.kept else None}
        facts |= {"machine": asdict(this_machine()), "command": shlex.join(["trisplit", *sys.argv[1:]])}
        print(json.dumps(facts))
        return
    edits = Table(("layer", "neurons kept"), tuple(enumerate(outcome.widths)))
    lines = [
        f"{outcome.parameters:,} of {outcome.parameters_dense:,} parameters",
        "passed" if outcome.verdict.passed else "failed",
        f"written: {out}" if outcome.kept else f"not kept; the receipt is in {out}",
    ]
    print_result(None, [edits, texts_table(outcome.measured), gates_table(outcome.verdict)], lines)
