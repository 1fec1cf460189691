"""Which drafts a mesh is given: those that were asked for, or some where its legs are long."""

from __future__ import annotations

from typing import Final

from trisplit.cli.names import find_model
from trisplit.cli.progress import bars
from trisplit.cli.settings import Settings
from trisplit.mesh.drafting import Drafting, way_of_drafts
from trisplit.mesh.drafts import Source, Target, source_named
from trisplit.models.model import Model

LONG_LEG_MS: Final = 2.0
"""One way over the wire from which on `auto` drafts: under it a token's time is computing, most of it."""


def source_asked(model: Model, s: Settings, context: int) -> Source | None:
    """The drafts that a person has named; Problems for what cannot be. Nothing is loaded yet."""
    return _source(model, s, context) if s.names_draft else None


def source_of_itself(model: Model, s: Settings, context: int, leg_ms: float) -> Source | None:
    """What `auto` comes to, one way over the wire being so long."""
    return _source(model, s, context) if s.speculate == "auto" and leg_ms > LONG_LEG_MS else None


def drafting_for(source: Source | None, s: Settings) -> Drafting | None:
    """These drafts, loaded, with a progress bar; None for none."""
    if source is None:
        return None
    with bars() as show:
        for _ in show.over(source.load(), f"draft {source.name}", source.steps):
            pass
    mode, k = way_of_drafts(s.drafts_go)
    return Drafting(source=source, mode=mode, k=k)


def _source(model: Model, s: Settings, context: int) -> Source:
    target = Target(model=model, dtype=s.dtype, context=context, threads=s.threads or 1)
    return source_named(s.speculate, target, find=find_model)
