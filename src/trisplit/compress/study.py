"""What pruning the FFNs of a model would cost: a path for each layer, and what an error there is worth.

One pass of calibration text through the dense model. The moments of a layer lie in a file, not in memory,
and are kept between runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path as File
from typing import Final, Literal

import msgspec
import numpy as np

from trisplit.compress.allocate import UNIT, Curve
from trisplit.compress.anatomy import Anatomy
from trisplit.compress.calibrate import drafted
from trisplit.compress.methods.ffn import Fit, Path, Refit, best_refit, path, protected, same_stream
from trisplit.compress.moments import UNREADABLE, FfnMoments, ffn_moments, held_out
from trisplit.compress.reading import HEAD_ROWS, Head, Report, silent, told
from trisplit.compress.spectra import Doubles
from trisplit.errors import RequestProblem
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model
from trisplit.models.predictions import scores
from trisplit.models.session import Floats, StageSession, Tracks

_VERSION: Final = 1  # raise it when paths or prices are found another way: kept ones are then made again
_RIDGE: Final = 1e-4  # while neurons go; the last refit chooses its own
_LEAST_SHARE: Final = 0.25  # of a layer's neurons: beyond that errors of a layer alone say too little

_PROBED: Final = 4  # passages, and tokens of each, that tell what an error costs
_PROBED_TOKENS: Final = 256


@dataclass(frozen=True, slots=True)
class Study:
    """The paths of all layers, and the moments that they were found with."""

    anatomy: Anatomy
    moments: FfnMoments
    paths: tuple[Path, ...]
    unit: int

    def fit(self, layer: int, part: Literal["train", "held"] = "train") -> Fit:
        """The problem of one layer, on the text its path was found with or on what was held out of it."""
        given = self.moments.of(layer)
        return same_stream(down_of(self.anatomy, layer), given.train if part == "train" else given.held)

    def refit(self, layer: int, width: int) -> Refit:
        """The best down of this width."""
        kept = self.paths[layer].kept(width)
        return best_refit(self.fit(layer), self.fit(layer, "held"), kept)

    def curves(self, weights: Sequence[float]) -> list[Curve]:
        """The errors of each layer over its widths, widest first."""
        return [
            Curve(found.widths.tolist(), found.errors.tolist(), weight)
            for found, weight in zip(self.paths, weights)
        ]


def down_of(anatomy: Anatomy, layer: int) -> Doubles:
    """The down matrix of a layer, [hidden, neurons]."""
    part = next(part for part in anatomy.of(layer) if part.role == "down")
    return part.read().astype(np.float64)


def study(
    anatomy: Anatomy, passages: Sequence[Sequence[int]], *, threads: int, report: Report = silent
) -> Study:
    """Reads the passages, unless they were read before, and finds all paths; Problems as of `Stream`."""
    model = anatomy.decoder()
    unit = math.gcd(UNIT, *model.config.ffn)
    moments = ffn_moments(model, passages, threads=threads, report=report)
    layers = range(model.config.layers)
    paths = []
    for layer in told(layers, "studying layers", len(layers), report):
        kept = moments.folder / f"path-{_VERSION}-{unit}-{layer}.npz"
        found = _read_path(kept)
        if found is None:
            found = _path(down_of(anatomy, layer), moments.of(layer).train, unit)
            with drafted(kept) as stream:
                np.savez(stream, **asdict(found))
        paths.append(found)
    return Study(anatomy, moments, tuple(paths), unit)


def _read_path(kept: File) -> Path | None:
    """None for what is not there, or not whole."""
    try:
        with kept.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return Path(**{field.name: arrays[field.name] for field in fields(Path)})
    except UNREADABLE:
        return None


def _path(down: Doubles, gram: Doubles, unit: int) -> Path:
    fit = same_stream(down, gram)
    least = -(-round(_LEAST_SHARE * fit.neurons) // unit) * unit
    return path(fit, ridge=_RIDGE, block=unit, least=least, keep=protected(fit, down))


# --- what an error costs --------------------------------------------------------------------------


def probed(passages: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """What errors are priced on: beginnings of some of the passages that nothing was fitted to."""
    apart = sorted(held_out(len(passages))) or [0]
    step = -(-len(apart) // _PROBED)
    return [passages[n][: _PROBED_TOKENS + 1] for n in apart[::step]]


def weights(
    found: Study,
    passages: Sequence[Sequence[int]],
    *,
    share: float = 0.5,
    threads: int,
    report: Report = silent,
) -> list[float]:
    """Mean KL to the dense model, in nats, of one unit of each layer's error.

    Measured by pruning each layer alone to `share` of its neurons: over shares KL grows as the error does.
    RequestProblem for families with a norm after the FFN: what they add to the residual is not what down
    gives.
    """
    model = found.anatomy.decoder()
    if FAMILIES[model.config.family].sandwich:
        what = f"a {model.config.family} has a norm after its FFN, which the probe does not know"
        raise RequestProblem(what, fix="prune all layers alike")
    whose = hashlib.sha256(f"{_VERSION} {found.unit} {share} {list(map(list, passages))}".encode())
    kept = found.moments.folder / f"prices-{whose.hexdigest()[:16]}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(kept.read_bytes(), type=list[float])
    prices = _measured(found, passages, share, threads, report)
    with drafted(kept) as stream:
        stream.write(msgspec.json.encode(prices))
    return prices


def _measured(
    found: Study, passages: Sequence[Sequence[int]], share: float, threads: int, report: Report
) -> list[float]:
    model = found.anatomy.decoder()
    probe, layers = _Probe(model, passages, threads), model.config.layers
    left, errors = list[Floats](), list[float]()
    for layer in told(range(layers), "probing layers", layers, report):
        widths = found.paths[layer].widths
        narrow = found.refit(layer, int(widths[np.argmin(np.abs(widths - share * widths[0]))]))
        left.append(probe.left(layer, narrow.change_of(down_of(found.anatomy, layer))))
        errors.append(found.fit(layer).error(narrow.down, narrow.kept))
    tiny = float(np.finfo(float).tiny)
    return [kl / max(error, tiny) for kl, error in zip(probe.divergences(left), errors)]


class _Probe:
    """The dense model as layers of their own, with what each left of the passages, [tokens, hidden]."""

    def __init__(self, model: Model, passages: Sequence[Sequence[int]], threads: int) -> None:
        self._model, self._passages, self._threads = model, passages, threads
        self._longest = max(max(map(len, passages)) - 1, 1)
        layers = model.config.layers
        self._layers = [self._tracks(1 + 3 * layer, 4 + 3 * layer) for layer in range(layers)]
        self._head = Head(model, "f32", threads=threads)
        embed = self._tracks(0, 1)
        self._before = [[embed.run({"ids": np.array(ids[:-1] or ids)}, 0).copy() for ids in passages]]
        for layer in self._layers:
            self._before.append([_through(layer, rows) for rows in self._before[-1]])

    def _tracks(self, first: int, past: int) -> Tracks:
        stages = self._model.stages[first:past]
        files = list(self._model.files(stages, "f32"))
        how = {"context": self._longest, "threads": self._threads, "spin": False}
        return Tracks(StageSession(self._model.config, files, **how))  # type: ignore[arg-type]

    def left(self, layer: int, changes: Doubles) -> Floats:
        """What the last layer leaves of all passages, [tokens, hidden], with this added to a layer's down."""
        wide, residuals = self._tracks(1 + 3 * layer, 3 + 3 * layer), []
        for before, after in zip(self._before[layer], self._before[layer + 1]):
            x: Floats = (after + _through(wide, before).astype(np.float64) @ changes.T).astype(np.float32)
            for later in self._layers[layer + 1 :]:
                x = _through(later, x)
            residuals.append(x)
        return np.concatenate(residuals)

    def divergences(self, left: Sequence[Floats]) -> list[float]:
        """Mean KL of the dense predictions to those from each of these, whose logits come some at a time."""
        dense, total = np.concatenate(self._before[-1]), np.zeros(len(left))
        for at in range(0, len(dense), HEAD_ROWS):
            rows = slice(at, at + HEAD_ROWS)
            (exact,) = self._head.logits(dense[rows])
            for n, residuals in enumerate(left):
                (other,) = self._head.logits(residuals[rows])
                total[n] += scores(exact, other, np.zeros(len(exact), np.int64))[:, 0].sum()
        return (total / len(dense)).tolist()  # type: ignore[no-any-return]


def _through(track: Tracks, rows: Floats) -> Floats:
    return track.run({"x": rows}, 0).copy()
