"""The draft `twin`: the target's own checkpoint with fewer bits, or a smaller copy of it in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from trisplit.errors import RequestProblem, UnknownName
from trisplit.mesh.drafts.draft import Asked, Source
from trisplit.mesh.drafts.reading import Reading, model_beside, place_and_dtype
from trisplit.models.convert import DTYPES
from trisplit.models.statistics import open_statistics
from trisplit.models.twins import fitted_twin, kept_statistics


def open_twin(asked: Asked) -> Source:
    """`twin:int8`, `twin:int4`: the same checkpoint; `twin:PATH`, `twin:PATH@int8`: a copy, checked.

    `twin:int4@FILE` is fitted by the statistics in FILE, `twin:int4` by those in the cache if there are any.
    """
    if not asked.argument:
        raise RequestProblem("which twin is meant?", fix="write twin:int8, twin:int4, or twin:FOLDER")
    model, kept = asked.target.model, kept_statistics(asked.target.model)
    kind, _, file = asked.argument.partition("@")
    if kind == "int4" and (file or kept.exists()):
        fitted = fitted_twin(model, open_statistics(Path(file) if file else kept))
        return Reading(asked.text, fitted, "int4", asked.target)
    for dtype in DTYPES:
        if asked.argument == dtype:
            return Reading(asked.text, asked.target.model, dtype, asked.target)
    place, dtype = place_and_dtype(asked)
    if not os.path.exists(place):
        raise UnknownName("twin", place, DTYPES)
    return model_beside(asked, Path(place), dtype)
