"""Whether two models answer the same questions equally well: accuracies, their errors, a paired test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trisplit.errors import RequestProblem


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Right answers of `n`, as a share, and the standard error of that share."""

    right: int
    n: int

    @property
    def share(self) -> float:
        return self.right / self.n

    @property
    def standard_error(self) -> float:
        return math.sqrt(self.share * (1 - self.share) / self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two models on the same questions: how many only one of them answers right.

    `p_value`: how likely so uneven a split is if both are equally good, two-sided; the exact form of
    McNemar's test (1947), which looks at nothing but the questions on which they differ.
    """

    n: int
    gained: int
    lost: int

    @property
    def difference(self) -> float:
        """Share of right answers gained; negative when more are lost."""
        return (self.gained - self.lost) / self.n

    @property
    def standard_error(self) -> float:
        return math.sqrt(max(self.gained + self.lost - self.n * self.difference**2, 0)) / self.n

    @property
    def p_value(self) -> float:
        differ = self.gained + self.lost
        ways, tail = 1, 1  # to choose none of them, and to choose no more than so many
        for k in range(min(self.gained, self.lost)):
            ways = ways * (differ - k) // (k + 1)
            tail += ways
        return float(min(1.0, 2 * tail / 2**differ))


def accuracy(chosen: Sequence[int], answers: Sequence[int]) -> Accuracy:
    """RequestProblem when there is no question."""
    if not answers:
        raise RequestProblem("there is no question to be asked", fix="give more questions than --shots")
    return Accuracy(sum(mine == right for mine, right in zip(chosen, answers)), len(answers))


def paired(chosen: Sequence[int], before: Sequence[int], answers: Sequence[int]) -> Paired:
    """What `chosen` gains and loses against `before`."""
    both = [(mine == right, theirs == right) for mine, theirs, right in zip(chosen, before, answers)]
    return Paired(n=len(both), gained=both.count((True, False)), lost=both.count((False, True)))
