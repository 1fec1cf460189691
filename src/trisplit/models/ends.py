"""Embed and head, which a coordinator keeps: from ids to the first residual, from the last to logits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from trisplit.machine import gather_into_huge_pages, return_free_memory
from trisplit.models.config import ModelConfig
from trisplit.models.session import Floats, Row, StageSession, Tracks
from trisplit.models.stage_file import StageFile


class Ends:
    """Embed and head: from token ids to the first residual, from the last residual to logits."""

    def __init__(self, config: ModelConfig, embed: StageFile, head: StageFile, *, threads: int) -> None:
        first = StageSession(config, [embed], context=1, threads=1)
        last = StageSession(config, [head], context=1, threads=threads)
        return_free_memory()  # what loading has used is of no use any more
        gather_into_huge_pages()
        self._embed, self._head = Tracks(first), Tracks(last)
        shared = {(t.file, t.offset): t.n_bytes for f in (embed, head) for t in f.tensors.values()}
        self.weight_bytes = sum(shared.values())

    @cached_property
    def _rows_equal(self) -> bool:
        """Shown when rows first come together: it takes the memory of many logits."""
        return self._head.session.rows_equal()

    def embed(self, ids: Sequence[int]) -> Floats:
        """[rows, hidden]; of a single row a view that the next single row overwrites."""
        return self._embed.run({"ids": np.asarray(ids, dtype=np.int64)}, 0)

    def logits(self, rows: Sequence[Floats]) -> list[Floats]:
        """[vocab] from each last residual [1, hidden]; together where that gives the same bits."""
        given = [Row(0, {"x": x}, 0) for x in rows]
        if len(rows) == 1 or self._rows_equal:
            return [out[0] for out in self._head.together(given)]
        return [self._head.together([row])[0][0].copy() for row in given]
