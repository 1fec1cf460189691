"""SPINE: what a model makes of texts and questions, beside what the model it was made from makes of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trisplit.assets.questions import Question
from trisplit.compress.comparing import Accuracy, Paired, accuracy, paired
from trisplit.compress.passages import Passage
from trisplit.compress.questions import SCORINGS, Asked, Scoring, ask, choices
from trisplit.compress.reading import HEAD_ROWS, Body, Head, Report, silent, told
from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.convert import Dtype
from trisplit.models.decoder import Decoder
from trisplit.models.model import Model
from trisplit.models.predictions import Doubles, scores
from trisplit.models.session import Floats

_WARM_TOKENS: Final = 8
_TIMED_TOKENS: Final = 32
_MOST_NATS: Final = 700.0  # whose exponential is still a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """What models are put to: passages by the name of their text, and questions, the first `shots` shown."""

    texts: Mapping[str, Sequence[Passage]]
    questions: Sequence[Question] = ()
    shots: int = 0
    scorings: Sequence[Scoring] = SCORINGS

    def asked(self) -> Sequence[Question]:
        """The questions that count."""
        return self.questions[self.shots :]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one model made of an exam: residuals [tokens, hidden] of each passage, and options chosen."""

    residuals: Mapping[str, Sequence[Floats]]
    chosen: Mapping[Scoring, Sequence[int]]
    head: Head


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScore:
    """One model on one text of `tokens` predictions; the last four only beside another, the dense one.

    `kl`: mean KL(dense ‖ model) in nats a token. `top1`: share of tokens for which both find the same one
    likeliest. `ppl_ratio`: of the two perplexities.
    """

    text: str
    tokens: int
    ppl: float
    ppl_dense: float | None = None
    ppl_ratio: float | None = None
    kl: float | None = None
    top1: float | None = None


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """One model on the questions, scored one way; the last two only beside another."""

    scoring: Scoring
    accuracy: Accuracy
    dense: Accuracy | None = None
    against: Paired | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What a model weighs: numbers in it, bytes at its dtype, and tokens a second of one sequence here."""

    parameters: int
    weight_bytes: int
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All of it."""

    texts: tuple[TextScore, ...]
    questions: tuple[QuestionScore, ...] = ()
    weight: Weight | None = None
    dense: Weight | None = None


def see(
    model: Model,
    dtype: Dtype,
    exam: Exam,
    *,
    threads: int,
    without: int | None = None,
    report: Report = silent,
) -> Seen:
    """Puts a model to an exam; Problems as of loading it. `without`: as of `Body`.

    Of the texts the last residuals are kept, a row of the hidden size for each token: logits would take
    a hundred times as much, and the head makes them again.
    """
    papers = {way: _paper(model, exam, way) for way in exam.scorings} if exam.questions else {}
    longest = max(
        (
            *(len(passage) - 1 for of_text in exam.texts.values() for passage in of_text),
            *(asked.length for paper in papers.values() for asked in paper),
        ),
        default=0,
    )
    if not longest:
        raise RequestProblem("there is nothing to read", fix="give a text, or more questions than --shots")
    body = Body(model, dtype, context=longest, threads=threads, without=without)
    head = Head(model, dtype, threads=threads)
    residuals = {
        name: [
            _finite(body.read(passage[:-1]), name)
            for passage in told(of_text, f"reading {name}", len(of_text), report)
        ]
        for name, of_text in exam.texts.items()
    }
    chosen = {
        way: list(told(choices(body, head, paper), f"questions by {way}", len(paper), report))
        for way, paper in papers.items()
    }
    return Seen(residuals, chosen, head)


def _finite(residuals: Floats, name: str) -> Floats:
    if not np.isfinite(residuals).all():
        what = f"reading {name}, the last layer leaves what is no number"
        raise CheckpointProblem(what, fix="get the model again: a weight of it is damaged")
    return residuals


def _paper(model: Model, exam: Exam, scoring: Scoring) -> list[Asked]:
    return ask(model.tokenizer(), exam.asked(), scoring, shots=exam.questions[: exam.shots])


def compare(exam: Exam, seen: Seen, dense: Seen | None = None, *, report: Report = silent) -> Evaluation:
    """What a model made of an exam, beside what the dense one did.

    RequestProblem when their vocabularies differ: then their predictions are of different things.
    """
    texts = tuple(_text_score(name, of_text, seen, dense, report) for name, of_text in exam.texts.items())
    answers = [question.answer for question in exam.asked()]
    questions = []
    for way, chosen in seen.chosen.items():
        mine = accuracy(chosen, answers)
        before = dense.chosen[way] if dense else None
        questions.append(
            QuestionScore(way, mine)
            if before is None
            else QuestionScore(way, mine, accuracy(before, answers), paired(chosen, before, answers))
        )
    return Evaluation(texts=texts, questions=tuple(questions))


def _text_score(
    name: str, of_text: Sequence[Passage], seen: Seen, dense: Seen | None, report: Report
) -> TextScore:
    exact = dense or seen
    read = zip(exact.residuals[name], seen.residuals[name], of_text)
    measured = [
        part
        for x, y, passage in told(read, f"predicting {name}", len(of_text), report)
        for part in _passage_scores(exact.head, x, seen.head, y, passage)
    ]
    kl, top1, surprise, surprise_dense = np.concatenate(measured).mean(axis=0).tolist()
    tokens, ppl = sum(map(len, measured)), exp_of(surprise)
    if dense is None:
        return TextScore(text=name, tokens=tokens, ppl=ppl)
    return TextScore(
        text=name,
        tokens=tokens,
        ppl=ppl,
        ppl_dense=exp_of(surprise_dense),
        ppl_ratio=exp_of(surprise - surprise_dense),
        kl=kl,
        top1=top1,
    )


def exp_of(nats: float) -> float:
    """The exponential, of what is too much of the most that is a number."""
    return math.exp(min(nats, _MOST_NATS))


def _passage_scores(
    exact_head: Head, x: Floats, head: Head, y: Floats, passage: Passage
) -> Iterator[Doubles]:
    """[rows, 4] as of `scores`, some rows at a time."""
    starts = range(0, len(x), HEAD_ROWS)
    same = exact_head is head and x is y
    pairs = ((rows, rows) for rows in head.logits(y)) if same else zip(exact_head.logits(x), head.logits(y))
    for at, (exact, other) in zip(starts, pairs):
        if exact.shape != other.shape:
            what = f"the vocabularies are of {exact.shape[1]:,} and {other.shape[1]:,} tokens"
            raise RequestProblem(what, fix="compare with the model this one was made from")
        yield scores(exact, other, np.array(passage[at + 1 : at + 1 + len(exact)]))


def weigh(model: Model, dtype: Dtype, *, threads: int, timed: bool = True) -> Weight:
    """What a model weighs; tokens a second as the median of some decoded one by one in this process."""
    embed = 0 if model.config.tied_head else model.weight_bytes(model.stages[0], dtype)
    return Weight(
        parameters=sum(
            model.weight_bytes(stage, "f32") // 4
            for stage in (model.stages[1:] if model.config.tied_head else model.stages)
        ),
        weight_bytes=embed + sum(model.weight_bytes(stage, dtype) for stage in model.stages[1:]),
        tokens_per_s=_tokens_per_s(model, dtype, threads) if timed else None,
    )


def _tokens_per_s(model: Model, dtype: Dtype, threads: int) -> float:
    context = min(_WARM_TOKENS + _TIMED_TOKENS, model.config.context)
    model.refuse_if_short(model.stages, dtype, context)
    files = list(model.files(model.stages, dtype))
    decoder, took_s = Decoder(model.config, files, context=context, threads=threads), list[float]()
    for position in range(context):
        began_s = time.perf_counter()
        decoder.forward([0], position)
        took_s.append(time.perf_counter() - began_s)
    return 1 / float(np.median(took_s[_WARM_TOKENS:] or took_s))
