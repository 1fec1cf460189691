"""Stages that show what their matrices are given: whole passages pass, and nothing of them is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trisplit.models.config import ModelConfig
from trisplit.models.session import Floats, StageSession
from trisplit.models.stage_file import StageFile
from trisplit.models.stages import build, given


class _Showing(StageSession):
    """A session whose graph also gives out what its matrices multiply."""

    def _graph(self, files: Sequence[StageFile]) -> bytes:
        return build(self.config, files, self.room, shows_given=True)


class Watched:
    """Neighbouring stages of layers, for passages of up to `longest` tokens that pass in one piece."""

    def __init__(
        self, config: ModelConfig, files: Sequence[StageFile], *, longest: int, threads: int
    ) -> None:
        session = _Showing(config, files, context=longest, threads=threads, spin=False)
        self._session, self._shown = session, list(given(config, session.stages))
        shape = (1, config.kv_heads, session.room, config.head_dim)
        self._always: dict[str, NDArray[Any]] = {**session.rotary}
        for layer in session.attentions:  # nothing lies before a passage
            self._always |= {f"past_{part}_{layer}": np.zeros(shape, np.float32) for part in "kv"}

    def run(self, inputs: Mapping[str, Floats]) -> tuple[Floats, dict[str, Floats]]:
        """Rows [rows, width] from position 0 on; what the stages leave, and what each matrix was given.

        The latter by the names of `stages.given`, [rows, width of the matrix].
        """
        rows = len(next(iter(inputs.values())))
        feeds = {name: values[None] for name, values in inputs.items()}
        places = {"last": np.array([rows - 1], np.int32), "total": np.array([rows], np.int32)}
        wanted = self._session.inputs
        feeds |= {name: value for name, value in (places | self._always).items() if name in wanted}
        left, *shown = self._session.ort.run([f"{self._session.leaves[0]}_out", *self._shown], feeds)
        return left[0], {name: values[0] for name, values in zip(self._shown, shown)}
