"""Questions with four options and one right answer, from the US radio licence exams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trisplit.assets.rows import read_rows

# `E0A01 (B)` or `7R-16C5 D`, the question, then its options; the programs' own format.
LAYOUT = re.compile(
    r"\s*\S+ \(?(?P<answer>[A-D])\)?(?: [^\n]*)?\n(?P<question>.*?)"
    r"\n\s*A\.(?P<A>.*?)\n\s*B\.(?P<B>.*?)\n\s*C\.(?P<C>.*?)\n\s*D\.(?P<D>.*)",
    re.DOTALL,
)
FIGURE = re.compile(r"\bfig(ure|\.) ?[A-Z]?-?\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its four options, and which of them (0 to 3) is right."""

    id: str
    question: str
    options: tuple[str, str, str, str]
    answer: int


def radio(files: Sequence[tuple[str, bytes]]) -> Iterator[Question]:
    """The questions that stand on their own, in the order of their files' paths.

    Left out: what needs a figure, what was asked before, and what offers the same option twice.
    """
    known = set()
    for path, content in sorted(files):
        question = _parse(path, content)
        if question is None or FIGURE.search(question.question) or len(set(question.options)) < 4:
            continue
        same = (question.question, question.options)
        if same not in known:
            known.add(same)
            yield question


def read_questions(path: Path) -> list[Question]:
    """The questions kept at `path`. FetchProblem: a file or line that cannot be read."""
    return read_rows(path, Question)


def _parse(path: str, content: bytes) -> Question | None:
    """None for the figures and notes that lie among the questions."""
    try:
        found = LAYOUT.fullmatch(content.decode().rstrip())
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    first, second, third, fourth = (" ".join(found[letter].split()) for letter in "ABCD")
    return Question(
        id="/".join(path.split("/")[-2:]),
        question=" ".join(found["question"].split()),
        options=(first, second, third, fourth),
        answer="ABCD".index(found["answer"]),
    )
