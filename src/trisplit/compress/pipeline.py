"""SPINE: study a model → choose widths → write it narrower → put it to an exam → judge → keep it, or not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from trisplit import __version__
from trisplit.compress.allocate import Curve, allocate
from trisplit.compress.anatomy import Anatomy
from trisplit.compress.calibrate import about
from trisplit.compress.evaluate import Evaluation, Exam, compare, see
from trisplit.compress.gates import Metric, Verdict, judge
from trisplit.compress.narrow import write_narrow
from trisplit.compress.passages import Passage
from trisplit.compress.reading import Report, silent
from trisplit.compress.recipe import Recipe
from trisplit.compress.study import Study, study, weights
from trisplit.errors import RequestProblem
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model, open_model

RECEIPT: Final = "receipt.json"

_PROBED: Final = 4  # passages, and tokens of each, that tell what an error costs
_PROBED_TOKENS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a recipe: the widths, what they cost, the verdict, and whether the copy was kept."""

    recipe: Recipe
    widths: tuple[int, ...]
    parameters: int
    parameters_dense: int
    measured: Evaluation
    verdict: Verdict
    kept: bool
    receipt: Mapping[str, Any]


def compress(
    anatomy: Anatomy,
    recipe: Recipe,
    calibration: Sequence[Passage],
    exam: Exam,
    out: Path,
    *,
    gates: Mapping[Metric, float],
    keep_failed: bool = False,
    threads: int = 1,
    report: Report = silent,
) -> Outcome:
    """Makes the model smaller by a recipe and judges it beside the dense one, in f32.

    `out` gets the model and a receipt; of one that fails the receipt alone, unless it is to be kept. What is
    judged is what was written, opened anew. RequestProblem when `out` is not empty, or the recipe does not
    fit; Problems as of reading and writing.
    """
    model = _refuse_early(anatomy, out)
    with _drafted(out) as draft:
        found = study(anatomy, calibration, threads=threads, report=report)
        prices = _prices(found, recipe, calibration, threads, report)
        widths = choose(found, recipe, prices)
        refits = (found.refit(layer, width) for layer, width in enumerate(widths))
        write_narrow(anatomy, refits, max(widths), draft)
        twin = open_model(draft)
        dense = see(model, "f32", exam, threads=threads, report=report)
        measured = compare(exam, see(twin, "f32", exam, threads=threads, report=report), dense)
        verdict = judge(measured, gates)
        receipt = _receipt(model, recipe, widths, prices, calibration, measured, verdict)
        kept = verdict.passed or keep_failed
        _keep(draft if kept else None, out, receipt)
    return Outcome(
        recipe=recipe,
        widths=widths,
        parameters=_parameters(model, widths),
        parameters_dense=_parameters(model, model.config.ffn),
        measured=measured,
        verdict=verdict,
        kept=kept,
        receipt=receipt,
    )


def choose(found: Study, recipe: Recipe, prices: Sequence[float]) -> tuple[int, ...]:
    """A width for each layer. RequestProblem when a layer cannot be so narrow."""
    ffn = [int(path.widths[0]) for path in found.paths]
    if recipe.allocated:
        budget = round(recipe.keep * sum(ffn) / found.unit) * found.unit
        return allocate(found.curves(prices), budget, unit=found.unit).widths
    alike = [round(recipe.keep * n / found.unit) * found.unit for n in ffn]
    curves = [Curve(*_within(curve, width)) for curve, width in zip(found.curves(prices), alike)]
    return allocate(curves, sum(alike), unit=found.unit).widths


def _within(curve: Curve, width: int) -> tuple[list[int], list[float]]:
    """The one width there is to choose from."""
    there = [place for place, each in enumerate(curve.widths) if each == width]
    if not there:
        what = f"a layer cannot keep {width} neurons of {curve.widths[0]}"
        raise RequestProblem(what, fix=f"keep {min(curve.widths) / max(curve.widths):.2f} or more")
    return [width], [curve.errors[there[0]]]


def _prices(
    found: Study, recipe: Recipe, calibration: Sequence[Passage], threads: int, report: Report
) -> list[float]:
    """What an error of each layer costs; not measured where every layer keeps the same."""
    if not recipe.allocated:
        return [1.0] * len(found.paths)
    probed = [passage[: _PROBED_TOKENS + 1] for passage in calibration[:_PROBED]]
    return weights(found, probed, threads=threads, report=report)


def _parameters(model: Model, widths: Sequence[int]) -> int:
    """Numbers in the model with FFNs of these widths."""
    stages = model.stages[1:] if model.config.tied_head else model.stages
    whole = sum(model.weight_bytes(stage, "f32") // 4 for stage in stages)
    matrices = 3 if FAMILIES[model.config.family].gated else 2
    biases = (matrices - 1) * model.config.mlp_bias
    of_neuron = matrices * model.config.hidden + biases
    return whole - of_neuron * (sum(model.config.ffn) - sum(widths))


# --- files ----------------------------------------------------------------------------------------


def _refuse_early(anatomy: Anatomy, out: Path) -> Model:
    """Before minutes of work: what could never be written."""
    from trisplit.compress.writing import config_json

    if anatomy.model is None:
        raise RequestProblem("only decoders can be made smaller here", fix="name a decoder")
    config_json(anatomy.model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RequestProblem(f"{out} is not empty", fix="name a folder that does not exist yet")
    if not out.absolute().parent.is_dir():
        raise RequestProblem(f"{out.absolute().parent} does not exist", fix="make it, or name another folder")
    return anatomy.model


@contextmanager
def _drafted(out: Path) -> Iterator[Path]:
    """Where the model is written first, beside `out`; gone afterwards unless it was kept."""
    draft = out.with_name(f".{out.name}.part")
    shutil.rmtree(draft, ignore_errors=True)  # of one that was ended
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _keep(draft: Path | None, out: Path, receipt: Mapping[str, Any]) -> None:
    """The model, if any, and its receipt, in `out`."""
    try:
        if draft is not None:
            if out.exists():
                out.rmdir()
            draft.rename(out)
        out.mkdir(exist_ok=True)
        (out / RECEIPT).write_bytes(msgspec.json.format(msgspec.json.encode(receipt)) + b"\n")
    except OSError as error:
        what = f"{out} cannot be written: {error.strerror or error}"
        raise RequestProblem(what, fix="make room there, or name another folder") from error


def _receipt(
    model: Model,
    recipe: Recipe,
    widths: Sequence[int],
    prices: Sequence[float],
    calibration: Sequence[Passage],
    measured: Evaluation,
    verdict: Verdict,
) -> dict[str, Any]:
    """All that says how the copy came to be and what it lost; the same for the same inputs."""
    read = about(model, calibration)
    return {
        "trisplit": __version__,
        "model": read.model,
        "calibration": {"sha256": read.text, "tokens": read.tokens},
        "recipe": asdict(recipe),
        "widths": list(widths),
        "weights": list(prices),
        "texts": [asdict(text) for text in measured.texts],
        "gates": [asdict(gate) for gate in verdict.gates],
        "passed": verdict.passed,
    }
