"""The draft `twin`: the target's own checkpoint with fewer bits, or a smaller copy of it in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from trisplit.errors import RequestProblem, UnknownName
from trisplit.mesh.drafts.draft import Asked, Source
from trisplit.mesh.drafts.reading import Reading, model_beside, place_and_dtype
from trisplit.models.convert import DTYPES


def open_twin(asked: Asked) -> Source:
    """`twin:int8`, `twin:int4`: the same checkpoint; `twin:PATH`, `twin:PATH@int8`: a copy, checked."""
    if not asked.argument:
        raise RequestProblem("which twin is meant?", fix="write twin:int8, twin:int4, or twin:FOLDER")
    for dtype in DTYPES:
        if asked.argument == dtype:
            return Reading(asked.text, asked.target.model, dtype, asked.target)
    place, dtype = place_and_dtype(asked)
    if not os.path.exists(place):
        raise UnknownName("twin", place, DTYPES)
    return model_beside(asked, Path(place), dtype)
