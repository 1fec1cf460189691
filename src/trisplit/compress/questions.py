"""Questions with four options, asked as MMLU asks them: how they are written, and which option is likeliest.

Two ways of scoring. `letter` shows the options and compares the four letters (Hendrycks et al. 2021).
`answer` does not show them, and compares what the options themselves are worth, in nats a byte, the
space before them counted: the `acc_bytes` of lm-evaluation-harness, where that space is part of a choice.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from trisplit.assets.questions import Question
from trisplit.compress.passages import beginning
from trisplit.compress.reading import Body, Head
from trisplit.errors import RequestProblem
from trisplit.models.predictions import log_softmax
from trisplit.models.session import Floats
from trisplit.models.tokenizer import Tokenizer

Scoring = Literal["letter", "answer"]
SCORINGS: Final[tuple[Scoring, ...]] = ("letter", "answer")

_LETTERS: Final = "ABCD"
_HEADING: Final = "The following are multiple choice questions (with answers).\n\n"


def read_questions(path: Path) -> list[Question]:
    """The questions in a file; RequestProblem for a line that is none.

    JSON lines with `question`, `options` or `choices`, and `answer` (0-3 or A-D), as `trisplit fetch` and the
    hub have them; or comma-separated without a heading, question, four options, letter, as MMLU comes.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestProblem(f"questions cannot be read from {path}: {error}", fix="check the path") from None
    rows = _csv_rows(text) if path.suffix == ".csv" else _json_rows(text)
    questions = []
    for number, row in enumerate(rows, 1):
        question = _question(row, number)
        if question is None:
            what = f"number {number} in {path} is no question with four options and an answer"
            raise RequestProblem(what, fix='write {"question": …, "options": [4 texts], "answer": 0 to 3}')
        questions.append(question)
    return questions


def _json_rows(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            yield None


def _csv_rows(text: str) -> Iterator[Any]:
    for row in csv.reader(io.StringIO(text)):
        yield {"question": row[0], "options": row[1:5], "answer": row[5]} if len(row) == 6 else None


def _question(row: Any, number: int) -> Question | None:
    if not isinstance(row, Mapping):
        return None
    options, answer = row.get("options", row.get("choices")), row.get("answer")
    right = _LETTERS.find(answer) if isinstance(answer, str) and len(answer) == 1 else answer
    match row.get("question"), options, right:
        case str(asked), [str(a), str(b), str(c), str(d)], int(right) if 0 <= right < len(_LETTERS):
            return Question(str(row.get("id", number)), asked, (a, b, c, d), right)
    return None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in ids: what is shown, and the four ways to go on.

    `shared`: ids at the start of `shown` that are those of the examples, as of any other question; 0 where
    they differ. `n_bytes` of each way, by which its worth is divided: 1 for letters.
    """

    shown: list[int]
    ways: tuple[list[int], ...]
    n_bytes: tuple[int, ...]
    shared: int

    @property
    def length(self) -> int:
        """The most ids that are read to answer it."""
        return len(self.shown) + max(map(len, self.ways)) - 1


def ask(
    tokenizer: Tokenizer, questions: Sequence[Question], scoring: Scoring, *, shots: Sequence[Question] = ()
) -> list[Asked]:
    """The questions in ids, each after the heading and the `shots`, which are shown with their answers."""
    example = _HEADING if scoring == "letter" else ""
    example += "".join(_text(shot, scoring) + _way(shot, scoring, shot.answer) + "\n\n" for shot in shots)
    begun = beginning(tokenizer)
    start = [*begun, *tokenizer.encode(example, special=False)] if example else begun
    return [_ids(tokenizer, example, start, question, scoring) for question in questions]


def _text(question: Question, scoring: Scoring) -> str:
    if scoring == "answer":
        return f"Question: {question.question}\nAnswer:"
    options = "".join(f"{letter}. {option}\n" for letter, option in zip(_LETTERS, question.options))
    return f"{question.question}\n{options}Answer:"


def _way(question: Question, scoring: Scoring, option: int) -> str:
    return f" {_LETTERS[option] if scoring == 'letter' else question.options[option]}"


def _ids(
    tokenizer: Tokenizer, example: str, start: Sequence[int], question: Question, scoring: Scoring
) -> Asked:
    """Whole texts are encoded, not their parts: a token may reach over the end of the question.

    So what is shown are the ids that all four have in common with the question alone, and at least one of
    each is left to be predicted.
    """
    text = example + _text(question, scoring)
    begun = beginning(tokenizer)
    alone = [*begun, *tokenizer.encode(text, special=False)]
    said = [_way(question, scoring, option) for option in range(len(_LETTERS))]
    whole = [[*begun, *tokenizer.encode(text + way, special=False)] for way in said]
    n_shown = min(_in_common(alone, ids[:-1]) for ids in whole)
    # The last id of the examples may be another one when a question follows.
    shared = max(len(start) - 1, 0)
    shared = shared if shared < n_shown and alone[:shared] == start[:shared] else 0
    n_bytes = tuple(1 if scoring == "letter" else len(way.encode()) for way in said)
    return Asked(whole[0][:n_shown], tuple(ids[n_shown:] for ids in whole), n_bytes, shared)


def _in_common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def choices(body: Body, head: Head, asked: Sequence[Asked]) -> Iterator[int]:
    """The likeliest option of each question, 0 to 3; the first of equals."""
    for worth in worths(body, head, asked):
        yield int(np.argmax(worth))


def worths(body: Body, head: Head, asked: Sequence[Asked]) -> Iterator[list[float]]:
    """What the four options of each question are worth, in nats, or nats a byte.

    What the questions share is read once, and each is read on from there in the same pieces whatever was
    read before it: a question is answered with the same bits alone and among others.
    """
    lying = 0  # ids of the examples that the body has read and not forgotten
    for question in asked:
        if lying < question.shared:
            body.read(question.shown[: question.shared])
        lying = question.shared
        x = body.read(question.shown[lying:], lying)[-1:]
        yield [
            _worth(body, head, question, way, x) / n_bytes
            for way, n_bytes in zip(question.ways, question.n_bytes)
        ]


def _worth(body: Body, head: Head, question: Asked, way: Sequence[int], x: Floats) -> float:
    """The log-likelihood of one way to go on, in nats; `x` is the residual of the last id shown."""
    rows = x
    if len(way) > 1:
        rows = np.concatenate([x, body.read(way[:-1], len(question.shown))])
    certain = np.concatenate([log_softmax(logits) for logits in head.logits(rows)])
    return float(certain[np.arange(len(way)), way].sum())
