"""An answer feeds, holds back, stops and ends as it was asked to, however its text is cut into tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trisplit.errors import OwnProblem, RequestProblem
from trisplit.models.generation import Generation, Piece, Request, StopScreen
from trisplit.models.sampling import Sampling, choose

EOS = 0
GREEDY = Sampling()


@dataclass
class Pieces:
    """A detokenizer that knows the text of each id, and a rest that only comes at the end."""

    texts: Sequence[str]
    rest: str = ""

    def push(self, id_: int, /) -> str:
        return self.texts[id_]

    def flush(self) -> str:
        return self.rest


def likes(token_id: int, n: int = 40) -> NDArray[np.float32]:
    logits = np.zeros(n, dtype=np.float32)
    logits[token_id] = 1.0
    return logits


def asked(*, stop: tuple[str, ...] = (), max_tokens: int = 100, eos: Iterable[int] = (EOS,)) -> Request:
    return Request(
        prompt_ids=(5, 6, 7), sampling=GREEDY, max_tokens=max_tokens, stop=stop, eos_ids=frozenset(eos)
    )


def run(
    texts: Sequence[str], request: Request, *, rest: str = "", context: int = 1000
) -> tuple[Generation, list[Piece]]:
    """An answer whose tokens 1, 2, … have these texts and are followed by EOS, and all its pieces."""
    generation = Generation(request, Pieces(["", *texts], rest), context)
    token_ids = iter([*range(1, len(texts) + 1), EOS])
    pieces = []
    while not generation.finished:
        pieces.append(generation.take(likes(next(token_ids))))
    assert "".join(piece.text for piece in pieces) == generation.text
    assert [piece.token_id for piece in pieces] == generation.token_ids
    return generation, pieces


def answer(texts: Sequence[str], request: Request, *, rest: str = "", context: int = 1000) -> Generation:
    return run(texts, request, rest=rest, context=context)[0]


def test_the_prompt_is_fed_first_then_each_token_where_it_stands() -> None:
    generation = Generation(asked(), Pieces(["", "a", "b"]), 100)
    assert (generation.pending, generation.position, generation.length) == ((5, 6, 7), 0, 3)
    assert generation.take(likes(1)) == Piece(1, "a")
    assert (generation.pending, generation.position, generation.length) == ((1,), 3, 4)
    assert generation.take(likes(2)) == Piece(2, "b")
    assert (generation.pending, generation.position, generation.length) == ((2,), 4, 5)
    assert (generation.token_ids, generation.text, generation.finished) == ([1, 2], "ab", None)


def test_what_is_kept_is_not_fed_again() -> None:
    generation = Generation(asked(), Pieces(["", "a"]), 100, kept=2)
    assert (generation.pending, generation.position, generation.length) == ((7,), 2, 3)
    generation.take(likes(1))
    assert (generation.pending, generation.position) == ((1,), 3)
    for kept in (-1, 3, 4):
        with pytest.raises(OwnProblem, match=f"{kept} of 3 prompt tokens kept"):
            Generation(asked(), Pieces([]), 100, kept=kept)


def test_eos_ends_it_is_counted_and_never_shown() -> None:
    generation = answer(["one", " two"], asked(), rest="\ufffd")
    assert generation.finished == "stop"
    assert generation.token_ids == [1, 2, EOS]
    assert generation.text == "one two\ufffd"
    assert generation.pending == ()


def test_any_of_several_eos_ids_ends_it() -> None:
    generation = answer(["one", "END", "never"], asked(eos=(EOS, 2)))
    assert (generation.text, generation.token_ids) == ("one", [1, 2])


def test_eos_can_be_ignored() -> None:
    request = replace(asked(max_tokens=3), ignore_eos=True)
    generation = Generation(request, Pieces(["", "a"]), 100)
    for token_id in (1, EOS, 1):
        generation.take(likes(token_id))
    assert (generation.finished, generation.token_ids, generation.text) == ("length", [1, EOS, 1], "aa")


def test_max_tokens_end_it() -> None:
    generation = answer(["a", "b", "c"], asked(max_tokens=2), rest="!")
    assert (generation.finished, generation.text, generation.pending) == ("length", "ab!", ())


def test_a_full_context_ends_it_with_both_numbers() -> None:
    generation = answer(["a", "b", "c"], asked(), context=5)
    assert (generation.finished, generation.text) == ("context", "ab")
    assert (generation.length, generation.context) == (5, 5)


def test_reasons_have_an_order() -> None:
    assert answer(["a"], asked(max_tokens=1), context=4).finished == "length"
    assert answer([], asked(max_tokens=1), context=4).finished == "stop"
    assert answer(["x"], asked(max_tokens=1, stop=("x",)), context=4).finished == "stop"
    assert answer(["x"], asked(max_tokens=1, stop=("xy",)), rest="y").finished == "stop"


@pytest.mark.parametrize(
    ("texts", "stop", "rest", "pieces"),
    [
        # in the middle of one token, with text after it
        (["ab", "cSTOPd", "e"], ("STOP",), "", ["ab", "c"]),
        # over three tokens: the start is held back
        (["aS", "TO", "Pb"], ("STOP",), "", ["a", "", ""]),
        # what looked like a start and was none comes with the token that shows it
        (["aS", "T", "x"], ("STOP",), "", ["a", "", "STx", ""]),
        # held to the end, then released
        (["aS", "T"], ("STOP",), "", ["a", "", "ST"]),
        # the end of the text completes it
        (["aS", "T"], ("ST!",), "!", ["a", "", ""]),
        # a start within a start
        (["aa", "ab"], ("aab",), "", ["", "a"]),
        (["\n", "\n", "\nx"], ("\n\nx",), "", ["", "", "\n"]),
        # the one that is complete first
        (["ab", "cd"], ("bcd", "c"), "", ["a", "b"]),
        (["abcd"], ("bcd", "c"), "", ["ab"]),
        # of two complete at the same character the longer
        (["a", "b", "c"], ("c", "abc", "bc"), "", ["", "", ""]),
        # one stop string begins with another
        (["x", "STO", "P"], ("STOP", "STO"), "", ["x", ""]),
        # no text at all
        (["", "a", ""], ("STOP",), "", ["", "a", "", ""]),
        (["STOP"], ("STOP",), "", [""]),
    ],
)
def test_stop_strings(texts: list[str], stop: tuple[str, ...], rest: str, pieces: list[str]) -> None:
    _, came = run(texts, asked(stop=stop), rest=rest)
    assert [piece.text for piece in came] == pieces


def cut(text: str, stop: Iterable[str]) -> str:
    """`text` before the stop string that is complete first, looked for at every place."""
    for end in range(len(text) + 1):
        starts = [end - len(s) for s in stop if text[:end].endswith(s)]
        if starts:
            return text[: min(starts)]
    return text


few = st.text(alphabet="ab\n", max_size=4)


@given(st.lists(few, max_size=10), st.lists(few.filter(bool), max_size=3), few)
@example(["a", "ab"], ["ab", "aa"], "")
def test_all_pieces_joined_are_the_text_before_the_first_stop_string(
    texts: list[str], stop: list[str], rest: str
) -> None:
    generation = answer(texts, asked(stop=tuple(stop)), rest=rest)
    whole = "".join(texts) + rest
    assert generation.text == cut(whole, stop)
    assert generation.finished == "stop"


@given(
    st.text(alphabet="abc", max_size=30), st.lists(st.text(alphabet="abc", min_size=1, max_size=5)), st.data()
)
def test_nothing_is_held_back_without_need(text: str, stop: list[str], data: st.DataObject) -> None:
    screen, came, let_through = StopScreen(tuple(stop)), "", ""
    while came != text and not screen.stopped:
        n = data.draw(st.integers(1, len(text) - len(came)))
        let_through += screen.push(text[len(came) : len(came) + n])
        came = text[: len(came) + n]
        if not screen.stopped:
            held = came.removeprefix(let_through)
            assert held == "" or any(s.startswith(held) and s != held for s in stop)
    assert cut(came, stop) == let_through + screen.release()


def test_sampling_sees_the_ids_before_and_the_position() -> None:
    sampling = Sampling(temperature=1.0, repetition_penalty=1.5, seed=11)
    request = replace(asked(max_tokens=30), sampling=sampling, ignore_eos=True)
    generation = Generation(request, Pieces([""] * 40), 100)
    logits = [np.random.default_rng(i).standard_normal(40).astype(np.float32) * 2 for i in range(30)]
    ids = [5, 6, 7]
    for row in logits:
        expected = choose(row, ids, sampling, len(ids))
        assert generation.take(row).token_id == expected
        ids.append(expected)
    assert generation.finished == "length"


def test_after_the_end_nothing_is_taken() -> None:
    generation = answer([], asked())
    with pytest.raises(OwnProblem, match=r"a token after the end \(stop\)"):
        generation.take(likes(1))


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers() -> None:
    request = replace(asked(), prompt_ids=tuple(range(1200)))
    with pytest.raises(
        RequestProblem, match=r"1,200 tokens and the context is 1,024.*shorten it by 177 tokens"
    ):
        Generation(request, Pieces([]), 1024)
    assert Generation(request, Pieces([]), 1201).length == 1200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt_ids": ()}, "the prompt has no tokens"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": -5}, "max_tokens is -5"),
        ({"stop": ("a", "")}, "a stop string is empty"),
    ],
)
def test_requests_that_ask_nothing_are_refused(changes: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(RequestProblem, match=said):
        replace(asked(), **changes)  # type: ignore[arg-type]
