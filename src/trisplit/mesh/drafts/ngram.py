"""The draft `ngram`: what followed the last time the sequence read as it ends now; costs no weights.

Prompt lookup (Saxena, "Prompt Lookup Decoding", 2023). There an end of fixed length is looked up and the
first match taken; here the longest match counts, and of equally long ones the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.mesh.drafts.draft import Asked, Source, weightless

SHORTEST: Final = 2
"""Ids that must match: on new text of SmolLM2, 3 of 10 guesses after one id are right, 5 of 10 after two."""
LONGEST: Final = 32
"""Ids after which matches count as equally long."""


class NgramDraft:
    """Looks the end of the sequence up in the sequence; keeps nothing."""

    name = "ngram"

    def guess(self, ids: Sequence[int]) -> int | None:
        """The id after the latest of the longest matches; None where fewer than SHORTEST ids match."""
        return following(np.asarray(ids, dtype=np.int64))

    def close(self) -> None:
        """There is nothing to give back."""


def following(ids: NDArray[np.int64]) -> int | None:
    """The id after the latest of the longest earlier occurrences of an end of `ids` [length].

    >>> following(np.array([5, 6, 7, 8, 5, 6])), following(np.array([5, 6, 7, 5]))
    (7, None)
    """
    if len(ids) <= SHORTEST:
        return None
    after = np.flatnonzero(ids[:-1] == ids[-1:]) + 1  # where what follows a match of one id stands
    best: int | None = None
    for length in range(2, LONGEST + 1):
        after = after[after >= length]
        after = after[ids[after - length] == ids[-length]]
        if not len(after):
            break
        best = int(ids[after[-1]]) if length >= SHORTEST else None
    return best


def open_ngram(asked: Asked) -> Source:
    """The source of `ngram`."""
    return weightless(NgramDraft(), asked)
