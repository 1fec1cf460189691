"""SPINE: all stages in order in one process; the truth every comparison is made with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from trisplit.machine import gather_into_huge_pages
from trisplit.models.config import ModelConfig
from trisplit.models.convert import Dtype, StageFile
from trisplit.models.generation import Generation, Piece
from trisplit.models.model import context_for, open_model
from trisplit.models.session import Floats, StageSession, Track

# Prompts pass in chunks of this many tokens, here and on the mesh: the same chunks give the same bits.
PREFILL_CHUNK: Final = 64


def chunks(ids: Sequence[int], position: int) -> Iterator[tuple[Sequence[int], int]]:
    """The pieces in which `ids`, standing at `position` …, pass through the stages."""
    for start in range(0, len(ids), PREFILL_CHUNK):
        yield ids[start : start + PREFILL_CHUNK], position + start


class Ends:
    """Embed and head: from token ids to the first residual, from the last residual to logits."""

    def __init__(self, config: ModelConfig, embed: StageFile, head: StageFile, *, threads: int) -> None:
        sessions = [StageSession(config, [end], context=1, threads=threads) for end in (embed, head)]
        gather_into_huge_pages()
        self._embed, self._head = map(Track, sessions)
        shared = {(t.file, t.offset): t.n_bytes for f in (embed, head) for t in f.tensors.values()}
        self.weight_bytes = sum(shared.values())

    def embed(self, ids: Sequence[int]) -> Floats:
        """[rows, hidden]; of a single row a view that the next single row overwrites."""
        return self._embed.run({"ids": np.asarray(ids, dtype=np.int64)}, 0)

    def logits(self, x: Floats) -> Floats:
        """[vocab] from the last residual [1, hidden]; always one row, so always the same bits."""
        logits: Floats = self._head.run({"x": x}, 0)[0]
        return logits


class Decoder:
    """A whole model in this process, with room for one sequence."""

    def __init__(
        self, config: ModelConfig, files: Sequence[StageFile], *, context: int, threads: int
    ) -> None:
        """`files` are embed, every third in order, and head."""
        self.config, self.context = config, context
        self.ends = Ends(config, files[0], files[-1], threads=threads)
        self.body = StageSession(config, files[1:-1], context=context, threads=threads)
        gather_into_huge_pages()
        self._track = Track(self.body)

    @classmethod
    def load(
        cls, path: Path, dtype: Dtype = "f32", *, threads: int = 1, context: int | None = None
    ) -> Decoder:
        """Opens, converts if needed, and loads a model in one call."""
        model = open_model(path)
        room = context_for(model.config, context)
        model.refuse_if_short(model.stages, dtype, room)
        return cls(model.config, list(model.files(model.stages, dtype)), context=room, threads=threads)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights held, a tied head counted once."""
        return self.ends.weight_bytes + self.body.weight_bytes

    def forward(self, ids: Sequence[int], position: int) -> Floats:
        """Logits [vocab] after the last of `ids`, the first of which stands at `position`.

        Positions from `position` on are forgotten first: earlier is a rewind.
        """
        for piece, start in chunks(ids, position):
            x = self._track.run({"x": self.ends.embed(piece)}, start)
        return self.ends.logits(x[-1:])

    def generate(self, answer: Generation) -> Iterator[Piece]:
        """Runs an answer to its end, piece by piece."""
        while not answer.finished:
            yield answer.take(self.forward(answer.pending, answer.position))
