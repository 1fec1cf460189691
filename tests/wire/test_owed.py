"""Offers and pieces are answers: to what was asked, in that order, of that size, and no more at once."""

from __future__ import annotations

import pytest

from trisplit.wire.messages import FileSpec, Loaded, Need, Offer, Piece, StageSpec, Want
from trisplit.wire.owed import MOST_WANTS, Owed

FIRST, SECOND = StageSpec(0, "attention"), StageSpec(3, "down")
FILES = (FileSpec(bytes(32), 100),)
LOADED = Loaded(1, 1, 1, True)


def test_everything_is_answered_in_the_order_it_was_asked() -> None:
    owed = Owed()
    for said in (
        Need((FIRST, SECOND)),
        Offer(FIRST, FILES),
        Want(bytes(32), 0, 60),
        Want(bytes(32), 60, 40),
        Offer(SECOND, FILES),
        Piece(bytes(60)),
        Piece(bytes(40)),
        Need((FIRST,)),
        Offer(FIRST, FILES),
        LOADED,
        Need((SECOND,)),
    ):
        assert owed.take(said) == ""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Need((SECOND,)), "Need while 2 stages are needed"),
        (Offer(SECOND, FILES), "Offer of down 3, which is not needed next"),
        (Piece(bytes(40)), "Piece of 40 bytes, which is not wanted next"),
        (Piece(bytes(61)), "Piece of 61 bytes, which is not wanted next"),
        (LOADED, "Loaded while 2 stages and 2 pieces are owed"),
    ],
)
def test_what_is_not_due_changes_nothing(said: Need | Offer | Piece | Loaded, why: str) -> None:
    owed = Owed()
    due = (Need((FIRST, SECOND)), Want(bytes(32), 0, 60), Want(bytes(32), 60, 40))
    assert [owed.take(asked) for asked in due] == [""] * 3
    assert owed.take(said) == why
    answers = (Offer(FIRST, FILES), Piece(bytes(60)), Piece(bytes(40)), Offer(SECOND, FILES), LOADED)
    assert [owed.take(answer) for answer in answers] == [""] * 5


def test_only_so_many_pieces_are_wanted_at_once() -> None:
    owed, want = Owed(), Want(bytes(32), 0, 1)
    assert {owed.take(want) for _ in range(MOST_WANTS)} == {""}
    assert owed.take(want) == "Want while 64 pieces are wanted"
    assert owed.take(Piece(b"1")) == ""
    assert owed.take(want) == ""


@pytest.mark.parametrize("said", [Offer(FIRST, FILES), Piece(b"1")])
def test_nothing_comes_unasked(said: Offer | Piece) -> None:
    assert "not " in Owed().take(said)
