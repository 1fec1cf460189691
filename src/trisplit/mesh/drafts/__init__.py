"""Drafts: what guesses ahead of the model, by name; the model verifies every guess."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from trisplit.errors import UnknownName
from trisplit.mesh.drafts.auto import open_auto
from trisplit.mesh.drafts.draft import Asked, Draft, Source, Target
from trisplit.mesh.drafts.model import open_smaller
from trisplit.mesh.drafts.ngram import open_ngram
from trisplit.mesh.drafts.none import open_none
from trisplit.mesh.drafts.twin import open_twin
from trisplit.models.sampling import Sampling

__all__ = ["DRAFTS", "Draft", "Source", "Target", "draft_named", "source_named"]

DRAFTS: Final[Mapping[str, Callable[[Asked], Source]]] = {
    "auto": open_auto,
    "none": open_none,
    "ngram": open_ngram,
    "twin": open_twin,
    "model": open_smaller,
}
"""What may stand before the colon, and how a source of such drafts is opened."""


def source_named(text: str, target: Target, *, find: Callable[[str], Path] = Path) -> Source:
    """Where drafts called `text` come from: `ngram`, `twin:int4`, `model:PATH`; nothing is loaded yet.

    `find` turns the name of a model into its path. UnknownName, RequestProblem or CheckpointProblem for a
    draft that cannot be.
    """
    kind, _, argument = text.partition(":")
    if kind not in DRAFTS:
        raise UnknownName("draft", kind, DRAFTS)
    return DRAFTS[kind](Asked(text=text, argument=argument, target=target, find=find))


def draft_named(text: str, target: Target, how: Sampling, *, find: Callable[[str], Path] = Path) -> Draft:
    """A loaded draft for one sequence whose tokens are chosen as `how` says; Problems as of its source."""
    return source_named(text, target, find=find).draft(how)
