"""Questions: read from every format, asked as MMLU asks, answered the same alone and among others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.assets.questions import Question
from trisplit.compress.questions import SCORINGS, Scoring, ask, choices, read_questions, worths
from trisplit.compress.reading import Body, Head
from trisplit.errors import RequestProblem
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model
from trisplit.models.predictions import log_softmax

Tiny = Callable[[str], Path]
QUESTIONS = [
    Question(f"q{n}", f"What is {n} and one?", (f"{n + 1}", f"{n}", f"{n} or so", "nothing"), 0)
    for n in range(7)
]


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ours.jsonl", '{"id": "x", "question": "Q?", "options": ["a", "b", "c", "d"], "answer": 2}'),
        ("hub.jsonl", '{"question": "Q?", "subject": "s", "choices": ["a", "b", "c", "d"], "answer": 2}'),
        ("mmlu.csv", "Q?,a,b,c,d,C\n"),
    ],
)
def test_every_format_is_read(name: str, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(line)
    (question,) = read_questions(tmp_path / name)
    assert (question.question, question.options, question.answer) == ("Q?", ("a", "b", "c", "d"), 2)


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"question": "Q?", "options": ["a", "b", "c"], "answer": 2}',
        '{"question": "Q?", "options": ["a", "b", "c", "d"], "answer": 4}',
        '{"question": "Q?", "options": ["a", "b", "c", "d"], "answer": "E"}',
        '{"question": "Q?", "options": ["a", "b", "c", "d"], "answer": ""}',
        '{"question": "Q?", "options": ["a", "b", "c", 4], "answer": 1}',
    ],
)
def test_what_is_no_question_is_refused(line: str, tmp_path: Path) -> None:
    good = json.dumps({"question": "Q?", "options": ["a", "b", "c", "d"], "answer": 2})
    (tmp_path / "q.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(RequestProblem, match="number 2"):
        read_questions(tmp_path / "q.jsonl")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match="cannot be read"):
        read_questions(tmp_path / "none.jsonl")


# --- asking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["llama", "qwen2"])
def test_the_prompt_is_that_of_mmlu(variant: str, tiny: Tiny) -> None:
    tokenizer = open_model(tiny(variant)).tokenizer()
    (asked,) = ask(tokenizer, QUESTIONS[1:2], "letter", shots=QUESTIONS[:1])
    for letter, way in zip("ABCD", asked.ways):
        assert tokenizer.decode([*asked.shown, *way]) == (
            "The following are multiple choice questions (with answers).\n\n"
            "What is 0 and one?\nA. 1\nB. 0\nC. 0 or so\nD. nothing\nAnswer: A\n\n"
            f"What is 1 and one?\nA. 2\nB. 1\nC. 1 or so\nD. nothing\nAnswer: {letter}"
        )
    assert (asked.shown.count(tokenizer.bos_id or -1), asked.n_bytes) == (variant == "llama", (1, 1, 1, 1))
    assert 0 < asked.shared < len(asked.shown)


def test_answers_stand_alone_and_are_weighed_by_their_bytes(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("llama")).tokenizer()
    (asked,) = ask(tokenizer, QUESTIONS[:1], "answer")
    whole = tokenizer.decode([*asked.shown, *asked.ways[2]])
    assert whole == "Question: What is 0 and one?\nAnswer: 0 or so"
    assert asked.n_bytes == (2, 2, 8, 8)
    assert asked.shared == 0


# --- answering ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("variant", ["llama", "gemma3"])
def test_options_are_worth_what_the_decoder_says(variant: str, scoring: Scoring, tiny: Tiny) -> None:
    """Every option is read by the decoder as one text, token by token after the question."""
    model = open_model(tiny(variant))
    asked = ask(model.tokenizer(), QUESTIONS[2:], scoring, shots=QUESTIONS[:2])
    decoder = Decoder.load(tiny(variant), context=512)

    def worth(shown: list[int], way: list[int]) -> float:
        logits, nats = decoder.forward(shown, 0), 0.0
        for at, id_ in enumerate(way):
            nats += log_softmax(logits[None])[0, id_]
            logits = decoder.forward([id_], len(shown) + at)
        return nats

    body, head = Body(model, "f32", context=512, threads=1), Head(model, "f32", threads=1)
    found = list(worths(body, head, asked))
    for question, values in zip(asked, found):
        expected = [worth(question.shown, way) / n for way, n in zip(question.ways, question.n_bytes)]
        assert values == pytest.approx(expected, abs=1e-4)
    assert list(choices(body, head, asked)) == [int(np.argmax(values)) for values in found]


def test_alone_and_among_others_it_is_the_same(tiny: Tiny) -> None:
    """Also where an odd one in between shares nothing with the examples."""
    model = open_model(tiny("llama"))
    tokenizer = model.tokenizer()
    asked = ask(tokenizer, QUESTIONS[2:], "answer", shots=QUESTIONS[:2])
    odd = ask(tokenizer, QUESTIONS[:1], "answer")

    def residuals(given: list) -> list[bytes]:
        body, head = Body(model, "f32", context=512, threads=1), Head(model, "f32", threads=1)
        seen, read = [], body.read
        body.read = lambda ids, position=0: seen.append(read(ids, position)) or seen[-1]  # type: ignore[method-assign]
        list(choices(body, head, given))
        return [rows.tobytes() for rows in seen]

    together = residuals([*asked[:2], *odd, *asked[2:]])
    for question in (*asked, *odd):
        assert set(residuals([question])) <= set(together)
