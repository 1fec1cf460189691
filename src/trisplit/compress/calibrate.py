"""Streaming second moments: what a text makes every matrix see, layer by layer, in bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import IO, Final

import numpy as np

from trisplit.compress.reading import Report, silent, told
from trisplit.compress.rows import abreast
from trisplit.errors import CheckpointProblem
from trisplit.models.config import layer_stages
from trisplit.models.model import Model, context_for
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.models.stage_file import StageFile
from trisplit.models.stages import given
from trisplit.models.statistics import About, Doubles, Statistics, open_statistics, writing
from trisplit.models.twins import kept_statistics
from trisplit.models.watching import Watched
from trisplit.paths import scratch, unwritable

RESIDUALS: Final = "residuals-"
"""And a layer's number: the file of what the passages leave before it."""

_ROWS_AT_ONCE: Final = 2048


class Stream:
    """Passages on their way through a model, a layer at a time; their residuals lie in a file.

    Used in a `with`, at whose end the file is gone, unless it is to be kept. `layer`: before which it stands.
    """

    def __init__(
        self,
        model: Model,
        passages: Sequence[Sequence[int]],
        *,
        threads: int,
        keep: Path | None = None,
        before: int = 0,
    ) -> None:
        """Stands before layer 0; with `keep` before the deepest layer that an earlier run came to.

        `keep` is a folder for what these passages leave in this model alone; none of it is taken that lies
        behind layer `before`. Problems as of loading a model, and for a passage past its context.
        """
        self._model, self._threads = model, threads
        self._longest = context_for(model.config, max(map(len, passages)))
        self._first = [0, *accumulate(map(len, passages))]
        self._held = ExitStack()
        self._folder = self._held.enter_context(scratch()) if keep is None else keep
        self.layer = next(filter(self._is_whole, range(before, 0, -1)), 0)
        if self.layer == 0:
            files = list(model.files(model.stages[:1], "f32"))
            embed = Tracks(StageSession(model.config, files, context=1, threads=1))
            with drafted(self._at(0)) as first:
                for passage in passages:
                    first.write(np.ascontiguousarray(embed.run({"ids": np.array(passage)}, 0)).data)
        self._residuals = self._at(self.layer).open("rb")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._residuals.close()
        self._held.close()

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self._first) - 1

    def through(self, layer: int, files: Sequence[StageFile]) -> Iterator[Mapping[str, Floats]]:
        """Takes every passage through a layer made of these files; yields what its matrices were given.

        By the names of `stages.given`, [rows, width], a passage at a time; to be taken to the end, after
        which the stream stands behind the layer. Files of an edited layer make the layers after it see what
        they would see in the edited model. CheckpointProblem when what the layer leaves is no number.
        """
        watched = Watched(self._model.config, files, longest=self._longest, threads=1)
        self._at(layer - 1).unlink(missing_ok=True)  # what was found there is kept by now, if it is at all
        with drafted(self._at(layer + 1)) as after:
            for left, shown in self._abreast(watched):
                if not np.isfinite(left).all():
                    what = f"layer {layer} turns text into what is no number: a weight of it is damaged"
                    raise CheckpointProblem(what, fix="get the model again")
                after.write(np.ascontiguousarray(left).data)
                yield shown
        self._residuals.close()
        self._residuals = self._at(layer + 1).open("rb")
        self.layer = layer + 1

    def _abreast(self, watched: Watched) -> Iterator[tuple[Floats, Mapping[str, Floats]]]:
        """Every passage in order, as many at a time as there are threads: each alone on a thread.

        Passages do not wait for one another as the threads of one product do.
        """
        given = ({"x": self.residual(passage)} for passage in range(len(self)))
        yield from abreast(watched.run, given, self._threads)

    def residual(self, passage: int) -> Floats:
        """The residuals of one passage where the stream stands, [rows, hidden]."""
        first, past = self._first[passage : passage + 2]
        hidden = self._model.config.hidden
        self._residuals.seek(4 * hidden * first)
        raw = self._residuals.read(4 * hidden * (past - first))
        return np.frombuffer(raw, np.float32).reshape(-1, hidden)

    def _at(self, layer: int) -> Path:
        return self._folder / f"{RESIDUALS}{layer}"

    def _is_whole(self, layer: int) -> bool:
        path = self._at(layer)
        return path.exists() and path.stat().st_size == 4 * self._model.config.hidden * self._first[-1]


class Moments:
    """The sum of xxᵀ over rows as they come, in float64."""

    def __init__(self, width: int) -> None:
        self._total: Doubles = np.zeros((width, width))
        self._waiting: list[Floats] = []
        self._waiting_rows = 0
        self.rows = 0

    def add(self, rows: Floats) -> None:
        """Takes rows [rows, width] in; some wait, for a large product is faster than many small ones."""
        self._waiting.append(rows.astype(np.float64))
        self._waiting_rows += len(rows)
        self.rows += len(rows)
        if self._waiting_rows >= _ROWS_AT_ONCE:
            self._take_in()

    def _take_in(self) -> None:
        wide = np.concatenate(self._waiting)
        self._total += wide.T @ wide  # numpy sees that both are one, and makes half of it
        self._waiting, self._waiting_rows = [], 0

    def mean(self) -> Doubles:
        """E[xxᵀ], [width, width]; zeros before the first row."""
        if self._waiting:
            self._take_in()
        return self._total / max(self.rows, 1)


@contextmanager
def drafted(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which appears whole when all is done or not at all; RequestProblem if it cannot be."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as stream:
            yield stream
        draft.replace(path)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    finally:
        draft.unlink(missing_ok=True)


def calibrate(model: Model, passages: Sequence[Sequence[int]], path: Path, *, threads: int) -> Iterator[int]:
    """Writes the statistics of a model that reads these passages; yields each layer that is done.

    One layer's weights and moments are in memory at a time. Problems as of `Stream` and `writing`.
    """
    with (
        Stream(model, passages, threads=threads) as stream,
        writing(path, about(model, passages)) as add,
    ):
        for layer in range(model.config.layers):
            stages = layer_stages(range(layer, layer + 1))
            moments = {name: Moments(width) for name, width in given(model.config, stages).items()}
            for shown in stream.through(layer, list(model.files(stages, "f32"))):
                for name, rows in shown.items():
                    moments[name].add(rows)
            for name, of_matrix in moments.items():
                add(name, of_matrix.mean())
            yield layer


def statistics_of(
    model: Model, passages: Sequence[Sequence[int]], *, threads: int, report: Report = silent
) -> Statistics:
    """The statistics of these passages, which are kept: made now unless they were before."""
    wanted = about(model, passages)
    path = kept_statistics(model).with_suffix(f".{wanted.text[:16]}.npz")
    if path.exists() and (kept := open_statistics(path)).about == wanted:
        return kept
    layers = model.config.layers
    for _ in told(calibrate(model, passages, path, threads=threads), "calibrating", layers, report):
        pass
    return open_statistics(path)


def about(model: Model, passages: Sequence[Sequence[int]]) -> About:
    """Whose statistics these passages give."""
    text = hashlib.sha256()
    for passage in passages:
        text.update(np.array([len(passage), *passage], "<i8").tobytes())
    tokens = sum(map(len, passages))
    return About(model=model.content_digest(), text=text.hexdigest(), tokens=tokens)
