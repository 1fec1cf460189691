"""The draft `none`: guesses nothing, so that every token is decoded plainly."""

from __future__ import annotations

from collections.abc import Sequence

from trisplit.mesh.drafts.draft import Asked, Source, weightless


class NoDraft:
    """Never guesses."""

    name = "none"

    def guess(self, ids: Sequence[int]) -> None:
        """None, whatever the ids."""

    def close(self) -> None:
        """There is nothing to give back."""


def open_none(asked: Asked) -> Source:
    """The source of `none`."""
    return weightless(NoDraft(), asked)
