"""Evaluation: against the decoder's own logits; and what is compared with itself has lost nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import VARIANTS, build
from trisplit.assets.questions import Question
from trisplit.compress.evaluate import Evaluation, Exam, compare, see, weigh
from trisplit.compress.passages import Passage, passages
from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.decoder import Decoder
from trisplit.models.model import Model, open_model
from trisplit.models.predictions import log_softmax

Tiny = Callable[[str], Path]
TEXTS = [" ".join(f"Tide {n}.{i}" for i in range(60)) for n in range(6)]
QUESTIONS = [
    Question(f"q{n}", f"What is {n} and {n * 7}?", (f"{n * 8}", f"{n}", f"{n} or so", "nothing"), n % 4)
    for n in range(9)
]


def exam_for(model: Model, **more: object) -> Exam:
    texts = {
        name: passages(model.tokenizer(), TEXTS, count=2, n_tokens=70, seed=s) for s, name in enumerate("ab")
    }
    return Exam(texts=texts, **more)  # type: ignore[arg-type]


def evaluated(model: Model, dense: Model, exam: Exam, without: int | None = None) -> Evaluation:
    before = see(dense, "f32", exam, threads=1)
    return compare(exam, see(model, "f32", exam, threads=1, without=without), before)


@pytest.mark.parametrize("variant", VARIANTS)
def test_perplexity_is_that_of_the_decoders_logits(variant: str, tiny: Tiny) -> None:
    """All families: chunked reading and the head over many rows, against one token after another."""
    model, decoder = open_model(tiny(variant)), Decoder.load(tiny(variant))
    exam = exam_for(model)
    surprises = [
        -log_softmax(decoder.forward([id_], at)[None])[0, passage[at + 1]]
        for passage in exam.texts["a"]
        for at, id_ in enumerate(passage[:-1])
    ]
    score = compare(exam, see(model, "f32", exam, threads=1)).texts[0]
    assert (score.text, score.tokens, score.kl) == ("a", 140, None)
    assert score.ppl == pytest.approx(math.exp(np.mean(surprises)), rel=1e-4)


def test_a_model_beside_itself_has_lost_nothing(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    found = evaluated(model, model, exam_for(model, questions=QUESTIONS, shots=2))
    for score in found.texts:
        assert (score.kl, score.top1, score.ppl_ratio, score.ppl) == (0.0, 1.0, 1.0, score.ppl_dense)
    assert [score.scoring for score in found.questions] == ["letter", "answer"]
    for answers in found.questions:
        assert answers.against is not None
        assert (answers.accuracy, answers.accuracy.n) == (answers.dense, 7)
        assert (answers.against.difference, answers.against.p_value) == (0.0, 1.0)


def test_a_layer_left_out_is_a_layer_of_zeros(tmp_path: Path) -> None:
    """Left out of the graph, or with its last matrices zeroed in the file: the same predictions."""
    from safetensors.numpy import load_file, save_file

    folder = build("llama", tmp_path / "m", layers=4)
    tensors = load_file(folder / "model.safetensors")
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.2.{name}.weight"][:] = 0
    zeroed = build("llama", tmp_path / "z", layers=4)
    save_file(tensors, zeroed / "model.safetensors", metadata={"format": "pt"})
    dense, exam = open_model(folder), exam_for(open_model(folder))
    left_out, zeros = evaluated(dense, dense, exam, without=2), evaluated(open_model(zeroed), dense, exam)
    for one, other in zip(left_out.texts, zeros.texts):
        assert one.kl == pytest.approx(other.kl, rel=1e-5)
        assert one.kl is not None
        assert one.kl > 0.01


def test_another_vocabulary_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    model = open_model(tiny("llama"))
    other = open_model(build("llama", tmp_path / "m", layers=2, vocab_size=352))
    with pytest.raises(RequestProblem, match="vocabularies are of 352 and 320"):
        evaluated(model, other, exam_for(model))


@pytest.mark.parametrize("texts", [{}, {"a": []}])
def test_nothing_to_read_is_refused(texts: Mapping[str, list[Passage]], tiny: Tiny) -> None:
    with pytest.raises(RequestProblem, match="nothing to read"):
        see(open_model(tiny("llama")), "f32", Exam(texts=texts), threads=1)


def test_more_than_the_context_is_refused(tiny: Tiny) -> None:
    with pytest.raises(RequestProblem, match="513"):
        see(open_model(tiny("llama")), "f32", Exam(texts={"a": [[5] * 514]}), threads=1)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = build("llama", tmp_path / "m", layers=2)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = np.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = open_model(folder)
    with pytest.raises(CheckpointProblem, match="no number"):
        see(model, "f32", exam_for(model), threads=1)


def test_what_a_model_weighs(tiny: Tiny) -> None:
    """Parameters are those of the file; a tied head is counted once."""
    for variant in ("llama", "qwen2"):
        model = open_model(tiny(variant))
        in_file = sum(math.prod(info.shape) for info in model.checkpoint.tensors.values())
        weight = weigh(model, "f32", threads=1)
        assert (weight.parameters, weight.weight_bytes) == (in_file, 4 * in_file)
        assert weight.tokens_per_s is not None
        assert weight.tokens_per_s > 0
        assert weigh(model, "int8", threads=1, timed=False).weight_bytes < 4 * in_file
