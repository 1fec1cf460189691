"""The draft `model`: a smaller model with the same vocabulary."""

from __future__ import annotations

from trisplit.errors import RequestProblem
from trisplit.mesh.drafts.draft import Asked, Source
from trisplit.mesh.drafts.reading import model_beside, place_and_dtype


def open_smaller(asked: Asked) -> Source:
    """`model:NAME-OR-PATH`, with `@int8` or another dtype behind it if it is not to be the target's."""
    if not asked.argument:
        raise RequestProblem("which model drafts?", fix="write model:NAME, or model:PATH@int8")
    place, dtype = place_and_dtype(asked)
    return model_beside(asked, asked.find(place), dtype)
