"""`trisplit compress` and `recipes`: a smaller copy of a model, judged before it is kept."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trisplit.cli.evaluating import FAILED, Questioning
from trisplit.cli.exporting import Form
from trisplit.cli.fitting import Fitting, fit_and_show
from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.unfold import unfolded

if TYPE_CHECKING:
    from trisplit.compress.evaluate import Exam
    from trisplit.compress.pipeline import Outcome
    from trisplit.compress.steps.step import Taken
    from trisplit.models.model import Model
    from trisplit.table import Table

_DEFAULT: Final = "conservative"


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
    questioning: Questioning,
    form: Form,
    fitting: Fitting,
    recipe: Annotated[
        str, typer.Option(metavar="NAME|FILE.toml", help="See `trisplit recipes`; or a file of steps.")
    ] = _DEFAULT,
    keep: Annotated[float | None, typer.Option(help="Another share of neurons than the recipe's.")] = None,
    gate: Annotated[
        str, typer.Option(metavar="NAME=LIMIT,…", help="ppl, kl, top1, accuracy; exit 2 if one fails.")
    ] = "default",
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Keep the copy also if it fails.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads to read with.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make a model smaller by a recipe, judge the copy beside the model, and keep it if it passes."""
    from trisplit.machine import free_cores

    # Read once, when numpy is first imported. More threads than free cores took four times as long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(free_cores()))
    from trisplit.cli.names import find_model
    from trisplit.cli.progress import bars
    from trisplit.cli.texts import calibration_of
    from trisplit.compress import pipeline
    from trisplit.compress.anatomy import dissect
    from trisplit.compress.gates import limits
    from trisplit.compress.stacks import open_recipe

    given = {"--recipe": recipe != _DEFAULT, "--keep": keep is not None, "--keep-failed": keep_failed}
    fitting.refuse_odd(others=[name for name, there in given.items() if there])
    chosen, wanted = open_recipe(recipe, keep), limits(gate)
    anatomy = dissect(find_model(model))
    decoder = anatomy.decoder()
    read = calibration_of(decoder.tokenizer(), [material.calibrate], material.tokens)
    exam = _exam(decoder, material, questioning)
    asked = {"model": model, **asdict(material), "held_out": list(exam.texts)}
    asked |= asdict(questioning) | asdict(form)
    if fitting.fit:
        parts = (anatomy, read, exam, out, fitting, form)
        passed = fit_and_show(*parts, gates=wanted, asked=asked, threads=threads, as_json=as_json)
        raise typer.Exit(0 if passed else FAILED)
    with bars() as show:
        outcome = pipeline.compress(
            *(anatomy, chosen, read, exam, out),
            gates=wanted,
            keep_failed=keep_failed,
            seed=material.seed,
            form=form.wanted(),
            threads=threads,
            report=show.advance,
        )
    _show(asked, outcome, out, as_json=as_json)
    if not outcome.verdict.passed:
        raise typer.Exit(FAILED)


def recipes(as_json: AsJson = False) -> None:
    """Show the recipes of `trisplit compress`, and the kinds of step that a file of them can have."""
    from trisplit.cli.printing import print_result
    from trisplit.compress.recipe import ALIASES, RECIPES, STEPS
    from trisplit.table import Table

    also = {name: ", ".join(alias for alias, to in ALIASES.items() if to == name) for name in RECIPES}
    rows = [recipe.facts() | {"also": also[name]} for name, recipe in RECIPES.items()]
    kinds = {
        method: {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
        for method, kind in STEPS.items()
    }
    if as_json:
        steps = [{"method": name, "what": STEPS[name].what, "parameters": kinds[name]} for name in kinds]
        print_result({"rows": rows, "steps": steps}, [])
        return
    named = Table(
        ("recipe", "what", "also"), tuple((row["name"], row["what"], row["also"]) for row in rows), "recipes"
    )
    steps_of = tuple((name, STEPS[name].what, _spelled(kinds[name])) for name in kinds)
    print_result(None, [named, Table(("method", "what", "parameters"), steps_of, "steps of a file")])


def _spelled(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {json.dumps(value)}" for name, value in parameters.items())


def _exam(model: Model, material: Material, questioning: Questioning) -> Exam:
    from trisplit.cli.evaluating import questions_of, scorings_of
    from trisplit.cli.texts import exam_texts
    from trisplit.cli.typed import TEXTS
    from trisplit.compress.evaluate import Exam

    return Exam(
        texts=exam_texts(
            *(model.tokenizer(), material.held_out or TEXTS),
            count=material.passages,
            n_tokens=material.passage_tokens,
            seed=material.seed,
        ),
        questions=questions_of(questioning),
        shots=questioning.shots,
        scorings=scorings_of(questioning.scoring),
    )


def _show(asked: dict[str, Any], outcome: Outcome, out: Path, *, as_json: bool) -> None:
    from trisplit.cli.evaluating import gates_table, scores_table, texts_table
    from trisplit.cli.printing import print_result
    from trisplit.machine import this_machine

    if as_json:
        facts = asked | dict(outcome.receipt) | {"kept": str(out) if outcome.kept else None}
        facts |= {"machine": asdict(this_machine()), "command": shlex.join(["trisplit", *sys.argv[1:]])}
        print(json.dumps(facts))
        return
    measured, verdict = outcome.measured, outcome.verdict
    lines = [
        *(f"{taken.step.method}: {note}" for taken in outcome.taken for note in taken.notes),
        *verdict.notes,
        *_weights(outcome),
        "passed" if verdict.passed else "failed",
        f"written: {out}" if outcome.kept else f"not kept; the receipt is in {out}",
    ]
    tables = [*edits_tables(outcome.taken), texts_table(measured)]
    tables += [scores_table(measured)] if measured.questions else []
    print_result(None, [*tables, gates_table(verdict)], lines)


def edits_tables(taken: Sequence[Taken]) -> Iterator[Table]:
    """What each step that changes something changes, and what that saves."""
    from trisplit.table import Table, size

    for number, step in enumerate(taken, 1):
        columns = ("layer", "what", "before", "after", "parameters saved", "bytes saved")
        rows = tuple(
            (edit.layer, edit.what, edit.before, edit.after, edit.parameters, size(edit.n_bytes))
            for edit in step.edits
        )
        if rows:
            yield Table(columns, rows, f"step {number}: {step.step.method}")


def _weights(outcome: Outcome) -> Iterator[str]:
    from trisplit.table import size

    now, before = outcome.measured.weight, outcome.measured.dense
    if now and before:
        yield f"{now.parameters:,} of {before.parameters:,} parameters"
        yield f"{size(now.weight_bytes)} as {outcome.shape.dtype}, of {size(before.weight_bytes)} as f32"
