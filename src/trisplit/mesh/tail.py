"""What the tail of a ring knows of a stream: the ids so far and how to choose the next; pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trisplit.errors import PeerProblem
from trisplit.models.sampling import Sampling, choose
from trisplit.models.session import Floats
from trisplit.wire.frame import SAME_VERSION
from trisplit.wire.messages import Sample


class Tail:
    """The end of one stream, from one order to sample to the next.

    `epoch` is the first whose rows are meant; `end` is the position at and after which none is chosen.
    """

    def __init__(
        self, ids: Sequence[int], sampling: Sampling, *, epoch: int, end: int, stop_ids: frozenset[int]
    ) -> None:
        self.epoch = epoch
        self._ids = np.empty(max(end, len(ids)), dtype=np.int64)
        self._ids[: len(ids)] = ids
        self._sampling, self._end, self._stop_ids = sampling, end, stop_ids
        self._known = len(ids)

    def after(self, position: int, logits: Floats) -> tuple[int, bool]:
        """The id at `position`, and whether it is to be fed.

        `logits` [vocabulary] come from the row before it. What is known already, the ids of a prompt or those
        of a run that is repeated, is not chosen again, nor fed. PeerProblem for a position nobody has led to.
        """
        if position < self._known:
            return int(self._ids[position]), False
        if position > self._known or position >= len(self._ids):
            raise PeerProblem(f"logits for position {position} after {self._known} ids", fix=SAME_VERSION)
        chosen = choose(logits, self._ids[:position], self._sampling, position)
        self._ids[position] = chosen
        self._known += 1
        return chosen, self._known < self._end and chosen not in self._stop_ids


def told_to_sample(said: Sample, *, context: int, vocab: int) -> Tail:
    """The end of a stream as ordered. PeerProblem when there is no room for it, or no such tokens."""
    longest, greatest = max(said.end, len(said.ids)), max(said.ids, default=0)
    if longest > context or greatest >= vocab:
        what = f"{longest:,} ids up to {greatest:,}, with room for {context:,} below {vocab:,}"
        raise PeerProblem(what, fix=SAME_VERSION)
    how = Sampling(
        temperature=said.temperature,
        top_k=said.top_k,
        top_p=said.top_p,
        min_p=said.min_p,
        repetition_penalty=said.repetition_penalty,
        seed=said.seed,
    )
    return Tail(said.ids, how, epoch=said.epoch, end=said.end, stop_ids=frozenset(said.stop_ids))
