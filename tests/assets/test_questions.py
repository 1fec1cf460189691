"""Exam files become questions with one right answer; what cannot be asked as text is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from trisplit.assets import Question, read_questions
from trisplit.assets.questions import radio
from trisplit.assets.rows import to_line
from trisplit.paths import cache_dir

HAM = b"E0A01 (B) [97.3]\nWhat is\n a ground rod for?\nA. Noise\nB. Lightning\nC. RF\nD. RFI\n"
FCC = b"16C5 D\n Which is true? \nA.One thing. \nB.Two\n things.\nC.Three\nD.Four \n\n"


def ask(question: bytes, options: bytes = b"A. 1\nB. 2\nC. 3\nD. 4\n") -> bytes:
    return b"X1 (A)\n" + question + b"\n" + options


def test_both_layouts_are_read_in_the_order_of_their_paths() -> None:
    files = [("usr/share/hamexam/E/E0A01", HAM), ("usr/share/fccexam/E7R/7R-16C5", FCC)]
    assert list(radio(files)) == [
        Question("E7R/7R-16C5", "Which is true?", ("One thing.", "Two things.", "Three", "Four"), 3),
        Question("E/E0A01", "What is a ground rod for?", ("Noise", "Lightning", "RF", "RFI"), 1),
    ]


@pytest.mark.parametrize(
    ("content", "asked"),
    [
        (ask(b"What is component 9 in figure T2?"), False),
        (ask(b"In Fig. 8A4, U5 pin 1 is high"), False),
        (ask(b"On the chart in Figure E9-3, what is it?"), False),
        (ask(b"How is the noise figure of a receiver defined?"), True),
        (ask(b"Same option twice?", b"A. 1\nB. 1\nC. 3\nD. 4\n"), False),
        (ask(b"An option missing?", b"A. 1\nB. 2\nC. 3\n"), False),
        (b"\x89PNG\r\n\x1a\n", False),
        (b"just notes", False),
    ],
)
def test_only_questions_that_stand_alone_are_kept(content: bytes, asked: bool) -> None:
    assert bool(list(radio([("hamexam/T/X", content)]))) is asked


def test_a_question_of_two_exams_is_asked_once() -> None:
    assert [q.id for q in radio([("e/T/b", ask(b"Why?")), ("e/T/a", ask(b"Why?"))])] == ["T/a"]


def test_questions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    question = Question("E/1", "Why?", ("a", "b", "c", "d"), 2)
    path.write_bytes(to_line(question))
    assert path.read_text() == '{"id":"E/1","question":"Why?","options":["a","b","c","d"],"answer":2}\n'
    assert read_questions(path) == [question]


@pytest.mark.real
def test_the_real_questions_have_every_answer_about_equally_often() -> None:
    path = cache_dir() / "radio-questions" / "radio-questions.jsonl"
    if not path.exists():
        pytest.skip("trisplit fetch radio-questions")
    questions = read_questions(path)
    assert len(questions) > 4_000
    assert len({q.id for q in questions}) == len(questions)
    shares = [sum(q.answer == answer for q in questions) / len(questions) for answer in range(4)]
    assert shares == pytest.approx([0.25] * 4, abs=0.05)
