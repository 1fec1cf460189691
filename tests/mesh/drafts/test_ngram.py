"""The n-gram draft: what the longest match says, held against a search by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.mesh.drafts.ngram import LONGEST, SHORTEST, NgramDraft

FEW_IDS = st.lists(st.integers(0, 3), max_size=60)


def by_hand(ids: Sequence[int]) -> int | None:
    """Ends from long to short, places from late to early; the first that is found."""
    ids = list(ids)
    for length in range(min(LONGEST, len(ids) - 1), SHORTEST - 1, -1):
        for start in range(len(ids) - length - 1, -1, -1):
            if ids[start : start + length] == ids[-length:]:
                return ids[start + length]
    return None


@given(FEW_IDS)
def test_the_latest_of_the_longest_matches(ids: list[int]) -> None:
    assert NgramDraft().guess(ids) == by_hand(ids)


@given(FEW_IDS, FEW_IDS)
def test_a_guess_depends_on_the_ids_alone(before: list[int], ids: list[int]) -> None:
    used = NgramDraft()
    used.guess(before)
    assert used.guess(ids) == NgramDraft().guess(tuple(ids)) == NgramDraft().guess(np.array(ids, dtype=int))


@given(st.permutations(range(40)), st.integers(2, 30))
def test_a_text_that_is_copied_is_followed_to_its_end(text: list[int], begun: int) -> None:
    ids = [*text, *text[:begun]]
    draft = NgramDraft()
    while len(ids) < 2 * len(text):
        guess = draft.guess(ids)
        assert guess == text[len(ids) - len(text)]
        ids.append(guess)


@pytest.mark.parametrize("ids", [[], [1], [1, 1], [1, 2, 3, 4], [5, 1, 2, 3, 1]])
def test_no_guess_without_two_ids_that_match(ids: list[int]) -> None:
    assert NgramDraft().guess(ids) is None


def test_many_ids_are_looked_through_as_few_are() -> None:
    ids = [*range(20_000), 7, 8]
    assert NgramDraft().guess(ids) == 9
    assert NgramDraft().guess([3] * 20_000) == 3
