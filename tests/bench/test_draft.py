"""Rows of `bench draft`: a draft that is the target agrees with it, the others as counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.bench.draft import AcceptanceRow, Exam, accepted, examine, medians
from trisplit.bench.prompts import Prompt
from trisplit.errors import RequestProblem
from trisplit.mesh.drafts import Target, source_named
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model
from trisplit.models.predictions import scores
from trisplit.models.sampling import Sampling, choose

Tiny = Callable[[str], Path]

TEXTS = [f"Text {n}: {'the tide goes out and comes in again; ' * n}" for n in range(1, 6)]
PROMPTS = [
    Prompt(name="go on", kind="novel", text="The tide", as_chat=False, greedy_penalty=1.2),
    Prompt(name="again", kind="draftable", text="The tide goes out and in.", as_chat=True),
    Prompt(name="and again", kind="draftable", text="It comes in.", as_chat=True),
]
TOKENS = 24
EVERY = ("none", "ngram", "twin:int8", "twin:int4")


def exam_for(path: Path, prompts: list[Prompt], temperatures: tuple[float, ...] = (0.0, 0.8)) -> Exam:
    return Exam.of(
        open_model(path).tokenizer(),
        TEXTS,
        prompts,
        windows=2,
        window_tokens=30,
        tokens=TOKENS,
        temperatures=temperatures,
        seed=4,
    )


@pytest.fixture
def target(tiny: Tiny) -> Target:
    exam = exam_for(tiny("qwen2"), PROMPTS)
    return Target(model=open_model(tiny("qwen2")), dtype="int8", context=exam.context)


def test_on_text(target: Target) -> None:
    """The twin at the target's dtype is the target; another is what two decoders say, id by id."""
    path = target.model.checkpoint.path
    exam = exam_for(path, [])
    found = examine(target, [source_named(name, target) for name in EVERY], exam)
    assert found.acceptance == []
    silent, ngram, same, other = found.rows
    assert [row.draft for row in found.rows] == list(EVERY)
    assert {row.tokens for row in found.rows} == {60}
    assert (silent.greedy_agreement, silent.guessed, silent.kl) == (0, 0, None)
    assert (ngram.kl, ngram.weight_bytes) == (None, 0)
    assert (same.greedy_agreement, same.coupled_agreement, same.kl) == (1, 1, 0)
    exact, twin = (Decoder.load(path, dtype, context=64) for dtype in ("int8", "int4"))
    warm = Sampling(temperature=0.8, seed=4)
    seen = []
    for passage in exam.passages:
        for at, id_ in enumerate(passage[:-1]):
            p, q = exact.forward([id_], at).copy(), twin.forward([id_], at).copy()
            before = passage[: at + 1]
            coupled = choose(p, before, warm, at + 1) == choose(q, before, warm, at + 1)
            seen.append((p.argmax() == q.argmax(), coupled, scores(p[None], q[None], np.zeros(1, int))[0, 0]))
    expected = np.mean(seen, axis=0)
    measured = other.greedy_agreement, other.coupled_agreement, other.kl
    np.testing.assert_allclose(np.array(measured, dtype=float), expected, rtol=1e-6)
    assert other.weight_bytes < same.weight_bytes


def test_along_answers(target: Target) -> None:
    found = examine(
        target,
        [source_named(name, target) for name in EVERY],
        exam_for(target.model.checkpoint.path, PROMPTS),
    )
    singles = [row for row in found.acceptance if row.prompt != "median"]
    assert len(singles) == len(EVERY) * len(PROMPTS) * 2
    assert {row.tokens for row in singles} == {TOKENS}
    by_draft = {name: [row for row in singles if row.draft == name] for name in EVERY}
    assert {row.acceptance for row in by_draft["twin:int8"]} == {1}
    assert {row.in_a_row for row in by_draft["twin:int8"]} == {TOKENS}
    assert {(row.acceptance, row.in_a_row, row.guessed) for row in by_draft["none"]} == {(0, 1, 0)}
    for row in singles:
        assert row.in_a_row == pytest.approx(TOKENS / max(1, round(TOKENS * (1 - row.acceptance))))
        assert row.counts == (row.prompts == "draftable" or row.distinct_4gram_share >= 0.8)


def test_kinds_are_never_blended(target: Target) -> None:
    found = examine(
        target, [source_named("ngram", target)], exam_for(target.model.checkpoint.path, PROMPTS, (0.0,))
    )
    medians = {row.prompts: row for row in found.acceptance if row.prompt == "median"}
    assert set(medians) == {"novel", "draftable"}

    def of(kind: str) -> list[AcceptanceRow]:
        return [row for row in found.acceptance if row.prompts == kind and row.prompt != "median"]

    assert medians["novel"].acceptance == of("novel")[0].acceptance
    assert medians["draftable"].acceptance == np.median([row.acceptance for row in of("draftable")])


def test_guesses_are_counted_by_position() -> None:
    row = accepted("d", PROMPTS[1], 0.0, [5, 6, 7, 8], [5, None, 8, 8])
    assert (row.acceptance, row.guessed, row.in_a_row, row.tokens) == (0.5, 0.75, 2, 4)
    assert accepted("d", PROMPTS[1], 0.0, [5, 6], [5, 6]).in_a_row == 2


def test_a_novel_answer_that_is_a_loop_does_not_count() -> None:
    loop, fresh = [1, 2, 3, 4] * 6, [*range(24)]
    novel = [accepted("d", PROMPTS[0], 0.0, answer, [*range(24)]) for answer in (loop, fresh)]
    assert [row.counts for row in novel] == [False, True]
    (counted,) = medians(novel)
    assert (counted.acceptance, counted.tokens, counted.counts) == (1, 24, True)
    (nothing,) = medians(novel[:1])
    assert not nothing.counts
    assert accepted("d", PROMPTS[1], 0.0, loop, loop).counts


def test_too_little_text(tiny: Tiny) -> None:
    with pytest.raises(RequestProblem, match="there are 5"):
        Exam.of(
            open_model(tiny("llama")).tokenizer(),
            TEXTS,
            [],
            windows=6,
            window_tokens=3,
            tokens=1,
            temperatures=[0.0],
        )
