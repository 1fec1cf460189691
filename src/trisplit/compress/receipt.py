"""The receipt of a copy: all that says how it came to be and what it lost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from trisplit import __version__
from trisplit.compress.calibrate import about
from trisplit.compress.evaluate import Evaluation, Exam
from trisplit.compress.gates import Verdict
from trisplit.compress.passages import Passage
from trisplit.compress.recipe import Recipe
from trisplit.compress.steps.step import Made
from trisplit.models.model import Model


def receipt_of(
    model: Model,
    recipe: Recipe,
    made: Made,
    calibration: Sequence[Passage],
    exam: Exam,
    measured: Evaluation,
    verdict: Verdict,
    seed: int,
) -> dict[str, Any]:
    """The receipt, as JSON has it: the same for the same inputs. `seed` is that of the exam."""
    read = about(model, calibration)
    return {
        "trisplit": __version__,
        "model": read.model,
        "calibration": {"sha256": read.text, "tokens": read.tokens},
        "exam": _exam_facts(exam, seed),
        "recipe": recipe.facts(),
        **made_facts(made),
        "weight": measured.weight and asdict(measured.weight),
        "dense": measured.dense and asdict(measured.dense),
        "texts": [asdict(text) for text in measured.texts],
        "scores": [asdict(score) for score in measured.questions],
        "gates": [asdict(gate) for gate in verdict.gates],
        "notes": list(verdict.notes),
        "passed": verdict.passed,
    }


def made_facts(made: Made) -> dict[str, Any]:
    """What was changed, step by step, and what of the copy counts."""
    steps = [
        {
            "method": taken.step.method,
            "edits": [asdict(edit) for edit in taken.edits],
            "notes": list(taken.notes),
            **taken.facts,
        }
        for taken in made.taken
    ]
    ranks = [
        {"layer": layer, "matrix": role, "rank": rank}
        for (layer, role), rank in sorted(made.shape.ranks.items())
    ]
    return {"steps": steps, "widths": list(made.shape.widths), "ranks": ranks, "dtype": made.shape.dtype}


def _exam_facts(exam: Exam, seed: int) -> dict[str, Any]:
    """What was read and asked, by digest."""
    texts = [
        {"text": name, "sha256": _sha256(passages), "passages": len(passages)}
        for name, passages in exam.texts.items()
    ]
    questions = {"sha256": _sha256(exam.questions), "shots": exam.shots, "asked": len(exam.asked())}
    return {"seed": seed, "texts": texts, "questions": questions if exam.questions else None}


def _sha256(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
