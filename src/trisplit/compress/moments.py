"""Second moments of what every FFN's down is given, on calibration text, kept between runs: a file a layer.

They are found by the digests of model and text. A run that was ended goes on where the last whole layer
ended; a file that is torn counts as not there.
"""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from trisplit.compress.calibrate import RESIDUALS, Moments, Stream, about, drafted
from trisplit.compress.reading import Report, silent, told
from trisplit.compress.spectra import Doubles
from trisplit.models.config import layer_stages
from trisplit.models.model import Model
from trisplit.paths import cache_dir, unwritable

_FORMAT: Final = 1
_HELD_OUT: Final = 10  # every so many passages one is kept for choosing λ
UNREADABLE: Final = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
"""What reading a file of arrays that is gone, torn or of another kind may raise."""


@dataclass(frozen=True, slots=True)
class FfnGiven:
    """E[hhᵀ] [n, n] of most passages, and of those held out (of all where none are); E[h] [n] of most.

    `took_s`: how long it took to find them.
    """

    train: Doubles
    held: Doubles
    mean: Doubles
    took_s: float


@dataclass(frozen=True, slots=True)
class FfnMoments:
    """Where they lie, for every layer."""

    folder: Path

    def of(self, layer: int) -> FfnGiven:
        """The moments of one layer."""
        given = _read(self._at(layer))
        if given is None:
            raise unwritable(self.folder, EOFError(f"the moments of layer {layer} are gone"))
        return given

    def whole(self, layers: int) -> int:
        """How many layers, from the first on, have theirs."""
        return next((layer for layer in range(layers) if _read(self._at(layer)) is None), layers)

    def write(self, layer: int, given: FfnGiven) -> None:
        """Keeps the moments of a layer, n² + n numbers of four bytes for both grams."""
        upper = np.triu_indices(len(given.mean))
        with drafted(self._at(layer)) as stream:
            np.savez(
                stream,
                train=given.train[upper].astype(np.float32),
                held=given.held[upper].astype(np.float32),
                mean=given.mean,
                took_s=given.took_s,
            )

    def _at(self, layer: int) -> Path:
        return self.folder / f"{layer}.npz"


def ffn_moments(
    model: Model, passages: Sequence[Sequence[int]], *, threads: int, report: Report = silent
) -> FfnMoments:
    """The moments of these passages: those that were kept, the others made now, a layer in memory at a time.

    Problems as of `Stream`.
    """
    kept = FfnMoments(_folder(model, passages))
    layers = model.config.layers
    done = kept.whole(layers)
    if done == layers:
        return kept
    apart = held_out(len(passages))
    _forget_drafts(kept.folder)
    with Stream(model, passages, threads=threads, keep=kept.folder, before=done) as stream:
        rest = range(stream.layer, layers)
        for layer in told(rest, "calibrating", len(rest), report):
            kept.write(layer, _given(model, stream, layer, apart))
    for layer in (layers - 1, layers):
        (kept.folder / f"{RESIDUALS}{layer}").unlink(missing_ok=True)
    return kept


def _forget_drafts(folder: Path) -> None:
    """Takes away what processes that were killed had begun to write: hundreds of megabytes may lie there."""
    for draft in folder.glob(".*"):
        pid = draft.suffix[1:]
        if not pid.isdigit():
            continue
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            draft.unlink(missing_ok=True)
        except PermissionError:
            continue  # somebody else's, and alive


def held_out(passages: int) -> set[int]:
    """Which of so many passages are not fitted to: of several every tenth, at least one."""
    tenth = set(range(_HELD_OUT - 1, passages, _HELD_OUT))
    return tenth or ({passages - 1} if passages > 1 else set())


def _given(model: Model, stream: Stream, layer: int, apart: set[int]) -> FfnGiven:
    began_s, n = time.perf_counter(), model.config.ffn[layer]
    train, held, total = Moments(n), Moments(n), np.zeros(n)
    files = list(model.files(layer_stages(range(layer, layer + 1)), "f32"))
    for number, shown in enumerate(stream.through(layer, files)):
        rows = next(values for name, values in shown.items() if name.endswith(".down"))
        if number in apart:
            held.add(rows)
        else:
            train.add(rows)
            total += rows.sum(axis=0, dtype=np.float64)
    train_mean, mean = train.mean(), total / max(train.rows, 1)
    held_mean = held.mean() if apart else train_mean
    return FfnGiven(train_mean, held_mean, mean, time.perf_counter() - began_s)


def _folder(model: Model, passages: Sequence[Sequence[int]]) -> Path:
    whose = about(model, passages)
    name = hashlib.sha256(f"{_FORMAT} {_HELD_OUT} {whose.model} {whose.text}".encode()).hexdigest()[:32]
    folder = cache_dir() / "statistics" / f"ffn-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    return folder


def _read(path: Path) -> FfnGiven | None:
    """None for what is not there, or not whole: every array in the file has its own checksum."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
            grams = _square(kept["train"]), _square(kept["held"])
            return FfnGiven(*grams, kept["mean"], float(kept["took_s"]))
    except UNREADABLE:
        return None


def _square(upper: Doubles) -> Doubles:
    n = round(((8 * len(upper) + 1) ** 0.5 - 1) / 2)
    gram = np.zeros((n, n))
    gram[np.triu_indices(n)] = upper
    return gram + np.triu(gram, 1).T
