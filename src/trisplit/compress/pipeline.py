"""SPINE: a recipe's steps, one on what the other left → a copy → put to an exam → judged → kept, or not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from trisplit.compress.anatomy import Anatomy, dissect
from trisplit.compress.describing import config_json
from trisplit.compress.evaluate import Evaluation, Exam, compare, see
from trisplit.compress.export import STOCK, Wanted, export, refuse_impossible
from trisplit.compress.gates import Metric, Verdict, judge
from trisplit.compress.passages import Passage
from trisplit.compress.reading import Report, silent
from trisplit.compress.receipt import receipt_of
from trisplit.compress.recipe import Recipe
from trisplit.compress.reloading import in_fresh_process
from trisplit.compress.rewrite import as_it_was, rewrite
from trisplit.compress.sizes import weigh_shape
from trisplit.compress.steps.step import Made, Means, Shape, Taken
from trisplit.errors import RequestProblem
from trisplit.models.model import Model, open_model

RECEIPT: Final = "receipt.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a recipe: what it made, what that cost, the verdict, and whether the copy was kept.

    `measured` has the weight of the copy and of the dense model, in f32, too.
    """

    recipe: Recipe
    shape: Shape
    taken: tuple[Taken, ...]
    measured: Evaluation
    verdict: Verdict
    kept: bool
    receipt: Mapping[str, Any]

    @property
    def widths(self) -> tuple[int, ...]:
        """Neurons that each layer keeps."""
        return self.shape.widths


def compress(
    anatomy: Anatomy,
    recipe: Recipe,
    calibration: Sequence[Passage],
    exam: Exam,
    out: Path,
    *,
    gates: Mapping[Metric, float],
    keep_failed: bool = False,
    seed: int = 0,
    form: Wanted = STOCK,
    threads: int = 1,
    report: Report = silent,
) -> Outcome:
    """Makes the model smaller by a recipe and judges it beside the dense one, in f32.

    `out` gets the model and a receipt; of one that fails the receipt alone, unless it is to be kept. What is
    judged is what was written, opened anew; `form` says as what. `seed`: of the exam, for the receipt.
    RequestProblem when `out` is not empty, or recipe or form do not fit; Problems as of reading and writing.
    """
    model = refuse_early(anatomy, out, form)
    with _drafted(out) as draft:
        means = Means(passages=calibration, threads=threads, report=report)
        made = apply(anatomy, recipe, means, draft)
        copy = _formed(made, form, draft, report)
        measured = _measured(model, replace(made, folder=copy), exam, threads, report)
        verdict = judge(measured, gates)
        receipt = receipt_of(model, recipe, made, calibration, exam, measured, verdict, seed)
        kept = verdict.passed or keep_failed
        _keep((copy if copy.is_dir() else copy.parent) if kept else None, out, receipt)
    return Outcome(
        recipe=recipe,
        shape=made.shape,
        taken=made.taken,
        measured=measured,
        verdict=verdict,
        kept=kept,
        receipt=receipt,
    )


def apply(anatomy: Anatomy, recipe: Recipe, means: Means, folder: Path) -> Made:
    """Takes the steps of a recipe one after the other; the copy lies in a folder within `folder`.

    A step without edits writes nothing. If none has any, the copy is the model itself, in f32.
    """
    model = anatomy.decoder()
    shape, taken, at = Shape(widths=model.config.ffn), list[Taken](), None
    for number, step in enumerate(recipe.steps, 1):
        plan = step.plan(anatomy, shape, means)
        taken.append(Taken(step, plan.edits, plan.notes, plan.facts))
        if not plan.edits:
            continue
        left = folder / str(number)
        plan.write(left)
        if at is not None:
            shutil.rmtree(at)
        anatomy, shape, at = dissect(left), plan.shape, left
    if at is None:
        at = folder / "0"
        rewrite(model, as_it_was, at)
    return Made(at, shape, tuple(taken))


def _formed(made: Made, form: Wanted, draft: Path, report: Report) -> Path:
    """The copy in the form that was asked for, checked: a folder, or a file in one of its own."""
    if form == STOCK:
        return made.folder
    at = draft / "formed"
    if form.format == "gguf":
        at.mkdir()
        at /= "model.gguf"
    check = in_fresh_process(made.folder, form)
    return export(open_model(made.folder), at, form, check=check, report=report).path


def _measured(model: Model, made: Made, exam: Exam, threads: int, report: Report) -> Evaluation:
    """What the copy makes of the exam beside the dense model, and what both weigh."""
    dense = see(model, "f32", exam, threads=threads, report=report)
    seen = see(open_model(made.folder), "f32", exam, threads=threads, report=report)
    return replace(
        compare(exam, seen, dense, report=report),
        weight=weigh_shape(model, made.shape),
        dense=weigh_shape(model, Shape(widths=model.config.ffn)),
    )


# --- files ----------------------------------------------------------------------------------------


def refuse_early(anatomy: Anatomy, out: Path, form: Wanted) -> Model:
    """The model of an anatomy. Problems before minutes of work: of what could never be written."""
    model = anatomy.decoder()
    config_json(model)
    refuse_impossible(model, form)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RequestProblem(f"{out} is not empty", fix="name a folder that does not exist yet")
    if not out.absolute().parent.is_dir():
        raise RequestProblem(f"{out.absolute().parent} does not exist", fix="make it, or name another folder")
    return model


@contextmanager
def _drafted(out: Path) -> Iterator[Path]:
    """Where copies are written first, beside `out`; gone afterwards, with whatever was not kept."""
    draft = out.with_name(f".{out.name}.part")
    shutil.rmtree(draft, ignore_errors=True)  # of one that was ended
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _keep(made: Path | None, out: Path, receipt: Mapping[str, Any]) -> None:
    """The model, if any, and its receipt, in `out`."""
    try:
        if made is not None:
            if out.exists():
                out.rmdir()
            made.rename(out)
        out.mkdir(exist_ok=True)
        (out / RECEIPT).write_bytes(msgspec.json.format(msgspec.json.encode(receipt)) + b"\n")
    except OSError as error:
        what = f"{out} cannot be written: {error.strerror or error}"
        raise RequestProblem(what, fix="make room there, or name another folder") from error
