"""What each kind of stage takes alone: a session each, one after the other, as a token would meet them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trisplit.machine import gather_into_huge_pages
from trisplit.models.config import Kind
from trisplit.models.convert import Dtype
from trisplit.models.model import open_model
from trisplit.models.session import StageSession, Tracks


class Alone:
    """All stages of a model in this process, each as a station of thirds would hold it."""

    def __init__(self, path: Path, dtype: Dtype, *, threads: int, context: int) -> None:
        model = open_model(path)
        how = {"context": context, "threads": threads}
        sessions = [
            StageSession(model.config, [f], spin=False, **how) for f in model.files(model.stages, dtype)
        ]
        gather_into_huge_pages()
        self._tracks = [Tracks(session) for session in sessions]

    def stretch(self, warm: int, tokens: int) -> dict[Kind, list[float]]:
        """The milliseconds of every run of `tokens` rows, after `warm` that do not count; from position 0."""
        times: dict[Kind, list[float]] = {}
        for position in range(warm + tokens):
            for kind, ms in self._pass(position):
                if position >= warm:
                    times.setdefault(kind, []).append(ms)
        return times

    def _pass(self, position: int) -> list[tuple[Kind, float]]:
        times: list[tuple[Kind, float]] = []
        there: Mapping[str, NDArray[Any]] = {"ids": np.zeros(1, dtype=np.int64)}
        for track in self._tracks:
            session = track.session
            inputs = {name: there[name] for name in session.takes}
            began_s = time.perf_counter()
            out = track.run(inputs, position)
            times.append((session.stages[0].kind, 1e3 * (time.perf_counter() - began_s)))
            there = {**there, session.leaves[0]: out}
        return times
