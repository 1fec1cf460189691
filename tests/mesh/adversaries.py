"""Drafts that put speculation to the test: right, wrong, now this and now that, at random, silent.

Each is a function of the ids it is given, as a draft must be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np


class Right:
    """Knows the answer: `whole` is the prompt and all that follows; beyond its end it is silent."""

    name = "right"

    def __init__(self, whole: Sequence[int]) -> None:
        self.whole = tuple(whole)

    def guess(self, ids: Sequence[int]) -> int | None:
        return self.whole[len(ids)] if len(ids) < len(self.whole) else None

    def close(self) -> None:
        """Nothing to give back."""


class Wrong(Right):
    """Knows the answer and always says another id, below `vocab`."""

    name = "wrong"

    def __init__(self, whole: Sequence[int], vocab: int) -> None:
        super().__init__(whole)
        self.vocab = vocab

    def guess(self, ids: Sequence[int]) -> int | None:
        right = super().guess(ids)
        return None if right is None else (right + 1 + len(ids) % (self.vocab - 1)) % self.vocab


class Alternating(Wrong):
    """Right `right` times, then wrong `wrong` times, and so on, by position."""

    name = "alternating"

    def __init__(self, whole: Sequence[int], vocab: int, *, right: int = 1, wrong: int = 1) -> None:
        super().__init__(whole, vocab)
        self.right, self.wrong = right, wrong

    def guess(self, ids: Sequence[int]) -> int | None:
        is_right = len(ids) % (self.right + self.wrong) < self.right
        return Right.guess(self, ids) if is_right else super().guess(ids)


class Random:
    """Any id below `vocab`, or now and then none, drawn from the seed, the position and the last id."""

    name = "random"

    def __init__(self, seed: int, vocab: int, *, silent: float = 0.1) -> None:
        self.seed, self.vocab, self.silent = seed, vocab, silent

    def guess(self, ids: Sequence[int]) -> int | None:
        drawn = np.random.default_rng([self.seed, len(ids), int(ids[-1])])
        return None if drawn.random() < self.silent else int(drawn.integers(self.vocab))

    def close(self) -> None:
        """Nothing to give back."""


class Mixed(Alternating):
    """Right with the probability `share`, else wrong or silent, drawn from the seed and the position."""

    name = "mixed"

    def __init__(self, whole: Sequence[int], vocab: int, *, seed: int, share: float = 0.7) -> None:
        super().__init__(whole, vocab)
        self.seed, self.share = seed, share

    def guess(self, ids: Sequence[int]) -> int | None:
        drawn = np.random.default_rng([self.seed, len(ids)]).random(2)
        if drawn[0] < self.share:
            return Right.guess(self, ids)
        return Wrong.guess(self, ids) if drawn[1] < 0.8 else None


class Silent:
    """Never guesses."""

    name = "silent"

    def guess(self, ids: Sequence[int]) -> None:
        """None, whatever the ids."""

    def close(self) -> None:
        """Nothing to give back."""


ADVERSARIES: Mapping[str, Callable[[Sequence[int], int], Right | Random | Silent]] = {
    "right": lambda whole, _: Right(whole),
    "wrong": Wrong,
    "alternating": Alternating,
    "mostly right": lambda whole, vocab: Alternating(whole, vocab, right=5, wrong=1),
    "random": lambda _, vocab: Random(7, vocab),
    "mixed": lambda whole, vocab: Mixed(whole, vocab, seed=11),
    "silent": lambda _, __: Silent(),
}
"""All of them, each made from the whole sequence of ids and the size of the vocabulary."""
