"""Where a stream is sampled: the ids so far, those that were drafted, and how to choose the next; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trisplit.errors import PeerProblem
from trisplit.models.sampling import Sampling, choose
from trisplit.models.session import Floats
from trisplit.wire.choosing import Drafts, Sample
from trisplit.wire.frame import EPOCHS_OF_A_TAIL, SAME_VERSION


@dataclass(frozen=True, slots=True)
class Chosen:
    """The ids that stand from `position` on, and the epoch that what follows them is of.

    With `feeds` the last of them goes to the first group. With `voids` rows of earlier epochs are on their
    way, which nobody wants any more.
    """

    position: int
    token_ids: tuple[int, ...]
    epoch: int
    feeds: bool = False
    voids: bool = False


class Tail:
    """The end of one stream, from one order to sample to the next.

    `epoch` is that whose rows are meant. Whoever samples decides what becomes of drafts, and nobody else: a
    draft that was not told in time is none, and what was fed for it is void like one that was wrong.
    """

    def __init__(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        epoch: int,
        end: int,
        stop_ids: frozenset[int],
        drafts: Drafts = "none",
    ) -> None:
        """`end` is the position at and after which none is chosen."""
        self.epoch = epoch
        self._ids = np.empty(max(end, len(ids)), dtype=np.int64)
        self._ids[: len(ids)] = ids
        self._sampling, self._end, self._stop_ids = sampling, end, stop_ids
        self._known = len(ids)
        self._mode: Drafts = drafts
        self._drafts: dict[int, int] = {}  # by position, of `_drafted_in`
        self._drafted_in = epoch

    @property
    def known(self) -> int:
        """How many ids stand."""
        return self._known

    def draft(self, epoch: int, position: int, ids: Sequence[int]) -> None:
        """Ids that are fed from `position` on in this epoch; of an epoch that is over they are nothing."""
        if epoch < self.epoch:
            return
        if epoch != self._drafted_in or self._mode == "rounds":
            self._drafts.clear()
            self._drafted_in = epoch
        meant = range(self._known, len(self._ids))
        self._drafts.update((at, token_id) for at, token_id in enumerate(ids, position) if at in meant)

    def after(self, epoch: int, position: int, logits: Floats) -> Chosen | None:
        """What stands from `position` on, by `logits` [rows, vocabulary] of the row before it and others.

        What is known already, the ids of a prompt or those of a run that is repeated, is not chosen again,
        nor fed. None for rows of an epoch that is over. PeerProblem for a position nobody has led to.
        """
        if epoch < self.epoch:
            return None
        self.epoch = epoch
        if position < self._known:
            return Chosen(position, (int(self._ids[position]),), epoch)
        if position > self._known or position >= len(self._ids):
            raise PeerProblem(f"logits for position {position} after {self._known} ids", fix=SAME_VERSION)
        if self._mode == "rounds":
            return Chosen(position, self._round(epoch, logits), epoch)
        chosen, goes_on = self._choose(logits[-1])
        if self._mode == "none":
            return Chosen(position, (chosen,), epoch, feeds=goes_on)
        return self._judged(position, chosen, goes_on=goes_on)

    def _choose(self, logits: Floats) -> tuple[int, bool]:
        """The next id, and whether others may follow it."""
        chosen = choose(logits, self._ids[: self._known], self._sampling, self._known)
        self._ids[self._known] = chosen
        self._known += 1
        return chosen, self._known < self._end and chosen not in self._stop_ids

    def _judged(self, position: int, chosen: int, *, goes_on: bool) -> Chosen:
        """In a stream: the epoch goes on if this was drafted, else a new one begins with it."""
        drafted = self._drafts.pop(position, None) if self._drafted_in == self.epoch else None
        if drafted == chosen and goes_on:
            return Chosen(position, (chosen,), self.epoch)
        voids = drafted is not None
        self.epoch += 1
        self._drafts.clear()
        return Chosen(position, (chosen,), self.epoch, feeds=goes_on, voids=voids)

    def _round(self, epoch: int, logits: Floats) -> tuple[int, ...]:
        """All that is chosen up to the first that was not drafted."""
        drafts = self._drafts if self._drafted_in == epoch else {}
        ids: list[int] = []
        for row in logits:
            drafted = drafts.get(self._known)
            chosen, goes_on = self._choose(row)
            ids.append(chosen)
            if chosen != drafted or not goes_on:
                break
        return tuple(ids)


def told_to_sample(said: Sample, *, context: int, vocab: int) -> Tail:
    """The end of a stream as ordered. PeerProblem when there is no room for it, or no such tokens."""
    longest, greatest = max(said.end, len(said.ids)), max(said.ids, default=0)
    if longest > context or greatest >= vocab:
        what = f"{longest:,} ids up to {greatest:,}, with room for {context:,} below {vocab:,}"
        raise PeerProblem(what, fix=SAME_VERSION)
    if said.drafts == "stream" and longest >= EPOCHS_OF_A_TAIL:  # it may need as many epochs
        raise PeerProblem(f"{longest:,} ids of which some are drafted", fix=SAME_VERSION)
    return tail_of(said)


def tail_of(said: Sample) -> Tail:
    """The end of a stream as ordered by ourselves."""
    how = Sampling(
        temperature=said.temperature,
        top_k=said.top_k,
        top_p=said.top_p,
        min_p=said.min_p,
        repetition_penalty=said.repetition_penalty,
        seed=said.seed,
    )
    stop_ids = frozenset(said.stop_ids)
    return Tail(said.ids, how, epoch=said.epoch, end=said.end, stop_ids=stop_ids, drafts=said.drafts)
