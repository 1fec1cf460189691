"""Gates as data: what may be lost at most, what was lost, and whether that passes.

The limits in `DEFAULT` are such that SmolLM2 with any one layer left out passes none of them (docs/shrink.md
has the figures): a gate that lets a missing layer pass is no gate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from trisplit.compress.evaluate import Evaluation, QuestionScore, TextScore
from trisplit.errors import RequestProblem, UnknownName

Metric = Literal["ppl", "kl", "top1", "accuracy"]
METRICS: Final[Mapping[Metric, str]] = {
    "ppl": "largest perplexity, over that of the dense model",
    "kl": "largest mean KL(dense ‖ model), in nats a token",
    "top1": "least share of tokens for which both find the same one likeliest",
    "accuracy": "largest share of right answers lost",
}
DEFAULT: Final[Mapping[Metric, float]] = {"ppl": 1.05, "kl": 0.08, "top1": 0.85, "accuracy": 0.02}

# Four options: what knowing nothing gives.
_CHANCE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One metric on one text, or on the questions scored one way (`on`)."""

    metric: Metric
    on: str
    limit: float
    measured: float
    passed: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """All gates, and what could not be judged and why."""

    gates: tuple[Gate, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every one passed; nothing passes that nobody looked at."""
        return bool(self.gates) and all(gate.passed for gate in self.gates)


def limits(text: str) -> dict[Metric, float]:
    """`ppl=1.25,kl=0.1` as limits; `default` is all of DEFAULT. RequestProblem, or UnknownName.

    >>> limits("kl=0.2,top1=0.7")
    {'kl': 0.2, 'top1': 0.7}
    """
    chosen: dict[Metric, float] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word == "default":
            chosen |= DEFAULT
            continue
        name, _, number = word.partition("=")
        metric = next((known for known in METRICS if known == name), None)
        if metric is None:
            raise UnknownName("gate", name, METRICS)
        chosen[metric] = _number(word, number)
    if not chosen:
        raise RequestProblem("no gate was named", fix="write --gate ppl=1.25,kl=0.1, or --gate default")
    return chosen


def _number(word: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise RequestProblem(f"{word!r} names no limit", fix="write a number of 0 or more, such as ppl=1.25")
    return value


def judge(measured: Evaluation, wanted: Mapping[Metric, float] = DEFAULT) -> Verdict:
    """Holds what was measured beside the dense model against limits, a gate for each text and metric.

    RequestProblem when it was not measured beside one. Questions that the dense model answers no better
    than by guessing say nothing: they are no gate, but a note.
    """
    if any(text.kl is None for text in measured.texts) or any(q.dense is None for q in measured.questions):
        raise RequestProblem("gates compare with the dense model", fix="name it with --against")
    gates = [gate for text in measured.texts for gate in _of_text(text, wanted)]
    notes = []
    for score in measured.questions if "accuracy" in wanted else ():
        if _knows(score):
            gates.append(_of_questions(score, wanted["accuracy"]))
        else:
            notes.append(
                f"accuracy by {score.scoring} is no gate: the dense model is right in "
                f"{score.dense.share:.1%} of {score.dense.n:,}, and guessing gives {_CHANCE:.0%}"
                if score.dense
                else ""
            )
    return Verdict(tuple(gates), tuple(notes))


def _of_text(score: TextScore, wanted: Mapping[Metric, float]) -> Iterator[Gate]:
    found: dict[Metric, float | None] = {"ppl": score.ppl_ratio, "kl": score.kl, "top1": score.top1}
    for metric, value in found.items():
        if metric in wanted and value is not None:
            limit = wanted[metric]
            passed = value >= limit if metric == "top1" else value <= limit
            yield Gate(metric=metric, on=score.text, limit=limit, measured=value, passed=passed)


def _knows(score: QuestionScore) -> bool:
    """Whether the dense model is better than chance by two standard errors."""
    return score.dense is not None and score.dense.share - 2 * score.dense.standard_error > _CHANCE


def _of_questions(score: QuestionScore, limit: float) -> Gate:
    lost = -score.against.difference if score.against else math.nan
    return Gate(metric="accuracy", on=score.scoring, limit=limit, measured=lost, passed=lost <= limit)


def lost(metric: Metric, value: float) -> float:
    """A measured value as an amount that is 0 where nothing was lost and adds up.

    Nats of KL, nats of surprise, a share of tokens, a share of answers.
    """
    if metric == "ppl":
        return math.log(value) if value > 0 else -math.inf
    return 1 - value if metric == "top1" else value


def strain(gates: Sequence[Gate]) -> float:
    """How much of what may be lost is lost, of the gate that is strained most: at most 1 if all pass.

    Endless where nothing may be lost and something is, and where there is no gate.
    """
    return max(map(_strain, gates), default=math.inf)


def _strain(gate: Gate) -> float:
    may, is_lost = lost(gate.metric, gate.limit), lost(gate.metric, gate.measured)
    if may <= 0 or not math.isfinite(is_lost):
        return 0.0 if gate.passed else math.inf
    ratio = max(is_lost, 0.0) / may
    # The division may round across the limit; the gate has the last word.
    return min(ratio, 1.0) if gate.passed else max(ratio, math.nextafter(1, 2))


def failed(gates: Sequence[Gate]) -> list[str]:
    """What did not pass, in words."""
    return [
        f"{gate.metric} on {gate.on} is {gate.measured:.3g}, "
        f"{'under' if gate.metric == 'top1' else 'over'} {gate.limit:.3g}"
        for gate in gates
        if not gate.passed
    ]
