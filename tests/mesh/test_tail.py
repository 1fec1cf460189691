"""Where a stream is sampled: what stands, what is fed, and what is void."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from trisplit.errors import PeerProblem
from trisplit.mesh.tail import Chosen, Tail
from trisplit.models.sampling import Sampling, choose
from trisplit.wire.choosing import Drafts
from trisplit.wire.frame import EPOCHS_OF_A_TAIL

VOCAB = 7
PROMPT = (3, 1, 4)
END = 24
HOW = Sampling(temperature=0.9, repetition_penalty=1.3, seed=3)


def logits_after(ids: Sequence[int]) -> np.ndarray:
    """[VOCAB], as a model would: a function of all ids before."""
    return np.random.default_rng([len(ids), *ids]).standard_normal(VOCAB).astype(np.float32)


def truth(how: Sampling = HOW, end: int = END) -> list[int]:
    ids = list(PROMPT)
    while len(ids) < end:
        ids.append(choose(logits_after(ids), np.array(ids), how, len(ids)))
    return ids


def tail(drafts: Drafts = "stream", *, stop_ids: frozenset[int] = frozenset(), end: int = END) -> Tail:
    return Tail(PROMPT, HOW, epoch=EPOCHS_OF_A_TAIL, end=end, stop_ids=stop_ids, drafts=drafts)


FIRST, SECOND, THIRD, FOURTH = truth()[3:7]
E0 = EPOCHS_OF_A_TAIL


def after(here: Tail, epoch: int, ids: Sequence[int]) -> Chosen | None:
    """What stands after these ids, all of which have passed."""
    return here.after(epoch, len(ids), logits_after(ids)[None])


def test_without_drafts_what_is_chosen_is_fed_in_the_same_epoch() -> None:
    here = tail("none")
    assert after(here, E0, PROMPT) == Chosen(3, (FIRST,), E0, feeds=True)
    assert after(here, E0, truth()[:4]) == Chosen(4, (SECOND,), E0, feeds=True)


def test_a_right_draft_goes_on_and_a_wrong_one_ends_the_epoch() -> None:
    here = tail()
    here.draft(E0, 3, (FIRST, SECOND, (THIRD + 1) % VOCAB, FOURTH))
    assert after(here, E0, PROMPT) == Chosen(3, (FIRST,), E0)
    assert after(here, E0, truth()[:4]) == Chosen(4, (SECOND,), E0)
    assert after(here, E0, truth()[:5]) == Chosen(5, (THIRD,), E0 + 1, feeds=True, voids=True)
    assert after(here, E0, [*truth()[:5], 0]) is None, "a row behind the wrong draft"
    assert after(here, E0 + 1, truth()[:6]) == Chosen(6, (FOURTH,), E0 + 2, feeds=True), "not told again"


def test_what_was_not_drafted_or_not_told_in_time_begins_an_epoch() -> None:
    here = tail()
    assert after(here, E0, PROMPT) == Chosen(3, (FIRST,), E0 + 1, feeds=True)
    here.draft(E0, 3, (FIRST, SECOND))  # too late, and of an epoch that is over
    assert after(here, E0 + 1, truth()[:4]) == Chosen(4, (SECOND,), E0 + 2, feeds=True)
    here.draft(E0 + 2, 5, (THIRD,))
    assert after(here, E0 + 2, truth()[:5]) == Chosen(5, (THIRD,), E0 + 2)


@pytest.mark.parametrize("drafted", [True, False])
def test_the_end_and_a_stop_end_the_epoch_and_feed_nothing(drafted: bool) -> None:
    for here in (tail(end=4), tail(stop_ids=frozenset({FIRST}))):
        if drafted:
            here.draft(E0, 3, (FIRST,))
        assert after(here, E0, PROMPT) == Chosen(3, (FIRST,), E0 + 1, voids=drafted)
        assert after(here, E0, truth()[:4]) is None


def test_a_round_is_chosen_up_to_the_first_that_was_not_drafted() -> None:
    here = tail("rounds")
    assert after(here, E0, PROMPT) == Chosen(3, (FIRST,), E0)
    here.draft(E0, 4, (SECOND, (THIRD + 1) % VOCAB, FOURTH))
    fed = [*truth()[:5], (THIRD + 1) % VOCAB, FOURTH]
    rows = np.stack([logits_after(fed[:n]) for n in range(4, 8)])
    assert here.after(E0, 4, rows) == Chosen(4, (SECOND, THIRD), E0)
    here.draft(E0, 6, truth()[6:8])
    rows = np.stack([logits_after(truth()[:n]) for n in range(6, 9)])
    assert here.after(E0, 6, rows) == Chosen(6, tuple(truth()[6:9]), E0), "all of them, and one more"
    assert here.known == 9


def test_what_is_known_is_said_again_and_a_leap_is_refused() -> None:
    here = tail()
    assert here.after(E0, 2, logits_after(PROMPT[:2])[None]) == Chosen(2, (4,), E0)
    with pytest.raises(PeerProblem, match="logits for position 5 after 3 ids"):
        here.after(E0, 5, logits_after(PROMPT)[None])


def test_drafts_that_can_never_be_judged_are_not_kept() -> None:
    here = tail()
    for _ in range(3):
        here.draft(E0, 0, range(3))
        here.draft(E0, END, range(60))
    assert not here._drafts
