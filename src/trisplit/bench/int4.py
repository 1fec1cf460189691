"""What a rounding to int4 costs: each of them beside f32, on text none of them was fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from trisplit.compress.evaluate import Exam, compare, see
from trisplit.compress.passages import Passage
from trisplit.compress.reading import Report, silent
from trisplit.models.model import Model
from trisplit.models.rounding import NEAREST, SEARCHED, Fitted, Rounding
from trisplit.models.statistics import Statistics

METHODS: Final[Mapping[str, Callable[[Statistics], Rounding]]] = {
    "nearest": lambda _: NEAREST,
    "searched": lambda _: SEARCHED,
    "diagonal": partial(Fitted, keeps="diagonal"),
    "blocks": partial(Fitted, keeps="blocks"),
    "propagated": partial(Fitted, sweeps=0),
    "fitted": Fitted,
}
"""Round-to-nearest; both ends of each block searched; fitted to each input's size alone, to what inputs of a
block have to do with each other, to all of it with errors handed on once (as GPTQ), and then swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Int4Row:
    """One rounding on `tokens` predictions.

    `top1`: share of tokens for which it and f32 find the same one likeliest. `kl`: mean KL(f32 ‖ int4) in
    nats a token. `ppl`, `ppl_f32`: perplexity of the text. `calibration_tokens`: what it was fitted to.
    """

    method: str
    tokens: int
    top1: float
    kl: float
    ppl: float
    ppl_f32: float
    calibration_tokens: int


def int4(
    model: Model,
    statistics: Statistics,
    passages: Sequence[Passage],
    *,
    methods: Sequence[str],
    threads: int,
    report: Report = silent,
) -> Iterator[Int4Row]:
    """A row for each of these METHODS, as it is done; Problems as of loading the model.

    Embedding and head are int8 in all of them, as int4 weights of any model have them.
    """
    exam = Exam(texts={"held out": passages})
    exact = see(model, "f32", exam, threads=threads, report=report)
    for method in methods:
        rounding = METHODS[method](statistics)
        seen = see(model.rounded(rounding), "int4", exam, threads=threads, report=report)
        (score,) = compare(exam, seen, exact, report=report).texts
        yield Int4Row(
            method=method,
            tokens=score.tokens,
            top1=score.top1 or 0.0,
            kl=score.kl or 0.0,
            ppl=score.ppl,
            ppl_f32=score.ppl_dense or 0.0,
            calibration_tokens=statistics.about.tokens if isinstance(rounding, Fitted) else 0,
        )
