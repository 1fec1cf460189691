"""SPINE: all stages in order in one process; the truth every comparison is made with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from trisplit.machine import gather_into_huge_pages
from trisplit.models.config import ModelConfig
from trisplit.models.convert import Dtype
from trisplit.models.generation import Generation, Piece
from trisplit.models.model import context_for, open_model
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.models.stage_file import StageFile

# Prompts pass in chunks of this many tokens, here and on the mesh: the same chunks give the same bits.
PREFILL_CHUNK: Final = 64


def chunks(ids: Sequence[int], position: int) -> Iterator[tuple[Sequence[int], int]]:
    """The pieces in which `ids`, standing at `position` …, pass through the stages."""
    for start in range(0, len(ids), PREFILL_CHUNK):
        yield ids[start : start + PREFILL_CHUNK], position + start


class Decoder:
    """A whole model in this process, with room for one sequence."""

    def __init__(
        self, config: ModelConfig, files: Sequence[StageFile], *, context: int, threads: int
    ) -> None:
        """`files` are embed, every third in order, and head.

        All of them are one session: two would each keep a pool of spinning threads, and at two
        threads those took SmolLM2 (int8) from 7 to 16 ms a token.
        """
        self.config, self.context = config, context
        self.session = StageSession(config, files, context=context, threads=threads)
        gather_into_huge_pages()
        self._track = Tracks(self.session)

    @classmethod
    def load(
        cls, path: Path, dtype: Dtype = "f32", *, threads: int = 1, context: int | None = None
    ) -> Decoder:
        """Opens, converts if needed, and loads a model in one call."""
        model = open_model(path)
        room = context_for(model.config, context)
        model.refuse_if_short(model.stages, dtype, room)
        return cls(model.config, list(model.files(model.stages, dtype)), context=room, threads=threads)

    def forward(self, ids: Sequence[int], position: int) -> Floats:
        """Logits [vocab] after the last of `ids`, the first of which stands at `position`.

        Positions from `position` on are forgotten first: earlier is a rewind. The next call
        overwrites what this one returned.
        """
        for piece, start in chunks(ids, position):
            logits = self._track.run({"ids": np.asarray(piece, dtype=np.int64)}, start)
        last: Floats = logits[-1]
        return last

    def generate(self, answer: Generation) -> Iterator[Piece]:
        """Runs an answer to its end, piece by piece."""
        while not answer.finished:
            yield answer.take(self.forward(answer.pending, answer.position))
