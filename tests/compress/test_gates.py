"""Gates, tested themselves: the dense model passes beside itself, a broken one fails every one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.assets import held_out, read_articles
from trisplit.assets.questions import Question
from trisplit.assets.store import fetch
from trisplit.compress.comparing import Accuracy, Paired
from trisplit.compress.evaluate import Evaluation, Exam, QuestionScore, TextScore, compare, see
from trisplit.compress.gates import DEFAULT, Gate, Verdict, failed, judge, limits, strain
from trisplit.compress.passages import Passage, passages
from trisplit.errors import Problem, RequestProblem, UnknownName
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
TEXT = TextScore(text="wiki", tokens=9, ppl=11.0, ppl_dense=10.0, ppl_ratio=1.1, kl=0.2, top1=0.8)


# --- the self-test --------------------------------------------------------------------------------


def written_by(path: Path, seed: int) -> Passage:
    """What the model itself writes, sampled: the one text that a random model predicts well."""
    decoder, random, ids = Decoder.load(path), np.random.default_rng(seed), [1]
    for at in range(80):
        logits = decoder.forward(ids[-1:], at).astype(np.float64)
        odds = np.exp(logits - logits.max())
        ids.append(int(random.choice(len(odds), p=odds / odds.sum())))
    return ids


@pytest.mark.parametrize("variant", ["llama", "gemma3", "neox"])
def test_dense_passes_and_every_broken_model_fails_every_gate(variant: str, tiny: Tiny) -> None:
    """Questions are such that the dense model is right in each: its own choices are taken for true."""
    model = open_model(tiny(variant))
    random = np.random.default_rng(0)
    asked = [
        Question(str(n), f"Which is {n}?", tuple(map(str, random.integers(0, 10**6, 4))), 0)  # type: ignore[arg-type]
        for n in range(24)
    ]
    texts = {
        name: [written_by(tiny(variant), seed) for seed in seeds]
        for name, seeds in (("a", (1, 2)), ("b", (3,)))
    }
    exam = Exam(texts=texts, questions=asked, scorings=["answer"])
    dense = see(model, "f32", exam, threads=1)
    true = [replace(question, answer=right) for question, right in zip(asked, dense.chosen["answer"])]
    exam = replace(exam, questions=true)
    whole = judge(compare(exam, see(model, "f32", exam, threads=1), dense))
    assert whole.passed
    assert {gate.metric for gate in whole.gates} == set(DEFAULT)
    assert len(whole.gates) == 3 * 2 + 1
    for layer in range(model.config.layers):
        broken = judge(compare(exam, see(model, "f32", exam, threads=1, without=layer), dense))
        assert [gate for gate in broken.gates if gate.passed] == [], layer
        assert not broken.passed


@pytest.mark.slow
@pytest.mark.real
def test_smollm2_passes_beside_itself_and_no_layer_can_be_missed() -> None:
    """The middle layers are those that cost least; docs/shrink.md has all."""
    model = open_model(fetch("smollm2"))
    texts = {
        name: passages(
            model.tokenizer(), [a.text for a in held_out(read_articles(fetch(name)))], count=6, n_tokens=256
        )
        for name in ("wiki", "brown")
    }
    exam = Exam(texts=texts)
    dense = see(model, "f32", exam, threads=1)
    assert judge(compare(exam, dense, dense)).passed
    for layer in (5, 12, 14, 17):
        broken = judge(compare(exam, see(model, "f32", exam, threads=1, without=layer), dense))
        assert [gate for gate in broken.gates if gate.passed] == [], layer


# --- judging --------------------------------------------------------------------------------------


def test_limits_belong_to_what_passes() -> None:
    at_limit = judge(Evaluation(texts=(TEXT,)), {"ppl": 1.1, "kl": 0.2, "top1": 0.8})
    assert at_limit.passed
    assert [(g.metric, g.on, g.limit, g.measured) for g in at_limit.gates] == [
        ("ppl", "wiki", 1.1, 1.1),
        ("kl", "wiki", 0.2, 0.2),
        ("top1", "wiki", 0.8, 0.8),
    ]
    past = judge(Evaluation(texts=(TEXT,)), {"ppl": 1.09, "kl": 0.19, "top1": 0.81})
    assert not any(gate.passed for gate in past.gates)
    assert failed(past.gates) == [
        "ppl on wiki is 1.1, over 1.09",
        "kl on wiki is 0.2, over 0.19",
        "top1 on wiki is 0.8, under 0.81",
    ]


@given(
    st.floats(0.8, 3), st.floats(0, 2), st.floats(0, 1), st.floats(0.8, 2), st.floats(0, 1), st.floats(0, 1)
)
def test_strain_is_1_at_the_limit(
    ppl: float, kl: float, top1: float, ppl_most: float, kl_most: float, top1_least: float
) -> None:
    measured = Evaluation(texts=(replace(TEXT, ppl_ratio=ppl, kl=kl, top1=top1),))
    verdict = judge(measured, {"ppl": ppl_most, "kl": kl_most, "top1": top1_least})
    assert (strain(verdict.gates) <= 1) == verdict.passed
    at_limit = replace(TEXT, ppl_ratio=ppl_most, kl=kl_most, top1=top1_least)
    exact = judge(Evaluation(texts=(at_limit,)), {"ppl": ppl_most, "kl": kl_most, "top1": top1_least})
    assert strain(exact.gates) == pytest.approx(1 if max(ppl_most - 1, kl_most, 1 - top1_least) > 0 else 0)


def test_strain_is_of_the_gate_that_is_strained_most() -> None:
    verdict = judge(Evaluation(texts=(TEXT,)), {"ppl": 1.21, "kl": 0.8, "top1": 0.2})
    assert strain(verdict.gates) == pytest.approx(0.5)
    assert strain(judge(Evaluation(texts=(TEXT,)), {"kl": 0}).gates) == math.inf
    assert strain(()) == math.inf


def test_what_is_no_number_passes_nothing() -> None:
    nothing = replace(TEXT, ppl_ratio=float("nan"), kl=float("nan"), top1=float("nan"))
    assert not any(gate.passed for gate in judge(Evaluation(texts=(nothing,))).gates)


def test_nothing_judged_is_nothing_passed() -> None:
    assert not Verdict(()).passed
    assert not judge(Evaluation(texts=(TEXT,)), {"accuracy": 0.1}).passed


def test_questions_the_dense_model_guesses_are_no_gate() -> None:
    lost = Paired(n=400, gained=10, lost=30)
    guessed = QuestionScore("letter", Accuracy(80, 400), Accuracy(105, 400), lost)
    known = QuestionScore("answer", Accuracy(180, 400), Accuracy(200, 400), lost)
    verdict = judge(Evaluation(texts=(), questions=(guessed, known)))
    assert verdict.gates == (
        Gate(metric="accuracy", on="answer", limit=DEFAULT["accuracy"], measured=0.05, passed=False),
    )
    assert verdict.notes == (
        "accuracy by letter is no gate: the dense model is right in 26.2% of 400, and guessing gives 25%",
    )


def test_without_the_dense_model_there_is_nothing_to_judge() -> None:
    alone = TextScore(text="wiki", tokens=9, ppl=11.0)
    with pytest.raises(RequestProblem, match="dense"):
        judge(Evaluation(texts=(alone,)))


# --- what a person types --------------------------------------------------------------------------


def test_limits_are_read() -> None:
    assert limits("ppl=1.25, kl=0.1") == {"ppl": 1.25, "kl": 0.1}
    assert limits("default") == DEFAULT
    assert limits("default,kl=3") == {**DEFAULT, "kl": 3.0}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", RequestProblem),
        ("ppl", RequestProblem),
        ("ppl=low", RequestProblem),
        ("ppl=-1", RequestProblem),
        ("kl=nan", RequestProblem),
        ("kl=inf", RequestProblem),
        ("pppl=1", UnknownName),
    ],
)
def test_what_is_no_limit_is_refused(text: str, kind: type[Problem]) -> None:
    with pytest.raises(kind):
        limits(text)
