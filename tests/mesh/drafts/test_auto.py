"""The draft that chooses between two: whom it asks, and what it has learnt from the ids it is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trisplit.mesh.drafts.auto import GOOD, AutoDraft

VOCAB = 50


class Twin:
    """Always says 49, and counts how often it is asked."""

    name = "twin"
    asked = 0
    is_closed = False

    def guess(self, _: Sequence[int]) -> int:
        self.asked += 1
        return VOCAB - 1

    def close(self) -> None:
        self.is_closed = True


def written(draft: AutoDraft, prompt: Sequence[int], truth: Sequence[int], ahead: int) -> int:
    """How many guesses were right while `truth` is written after a prompt, `ahead` under way at once."""
    ids, known, right = [*prompt], len(prompt), 0
    whole = [*prompt, *truth]
    while known < len(whole):
        while len(ids) - known < ahead:
            guess = draft.guess(ids)
            if guess is None:
                break
            ids.append(guess)
        if known < len(ids) and ids[known] == whole[known]:
            right += 1
        else:
            ids = [*whole[:known], whole[known]]
        known += 1
    return right


def test_a_copy_is_left_to_the_free_draft_and_new_text_to_the_twin() -> None:
    text = np.random.default_rng(0).permutation(400).tolist()
    twin = Twin()
    draft = AutoDraft(twin)
    right = written(draft, text, text[:300], 8)
    assert right > 250
    assert draft.share >= GOOD
    of_the_copy = twin.asked
    assert of_the_copy < 160, "until the free one has shown what it can"
    written(draft, [*text, *text[:300]], (500 + np.arange(100)).tolist(), 8)
    assert twin.asked > of_the_copy + 80


def test_one_that_was_wrong_is_good_no_more() -> None:
    draft = AutoDraft(Twin())
    draft._share = 1.0
    loop = [1, 2, 3, 4] * 3
    assert draft.guess([*loop, 1, 2]) == 3
    assert draft.guess([*loop, 1, 2, 3]) == 4
    assert draft.guess([*loop, 1, 2, 9, 1, 2]) == VOCAB - 1, "3 was wrong, and 4 is not counted"
    assert draft.share == 1 - 1 / 8


def test_without_a_twin_the_free_one_is_all_there_is() -> None:
    draft = AutoDraft(None)
    assert (draft.guess([1, 2, 3, 1, 2]), draft.guess([1, 2, 3])) == (3, None)
    draft.close()


def test_it_closes_its_twin() -> None:
    twin = Twin()
    AutoDraft(twin).close()
    assert twin.is_closed


@given(
    st.lists(st.integers(0, 5), max_size=40), st.lists(st.lists(st.integers(0, 5), max_size=60), max_size=8)
)
def test_whatever_it_is_asked_it_keeps_no_more_than_is_under_way(
    prompt: list[int], those: list[list[int]]
) -> None:
    draft = AutoDraft(Twin())
    for ids in those:
        for n in range(len(ids)):
            draft.guess([*prompt, *ids[:n]])
    assert len(draft._said) <= 64 + 1
    assert 0 <= draft.share <= 1
