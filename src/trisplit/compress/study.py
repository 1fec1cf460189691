"""What pruning the FFNs of a model would cost: a path for each layer, and what an error there is worth.

One pass of calibration text through the dense model. The moments of a layer lie in a file, not in memory,
and are kept between runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from trisplit.compress.allocate import UNIT, Curve
from trisplit.compress.anatomy import Anatomy
from trisplit.compress.methods.ffn import Fit, Path, Refit, best_refit, path, protected, same_stream
from trisplit.compress.moments import FfnMoments, ffn_moments
from trisplit.compress.reading import Head, Report, silent, told
from trisplit.compress.spectra import Doubles
from trisplit.errors import RequestProblem
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model
from trisplit.models.predictions import scores
from trisplit.models.session import Floats, StageSession, Tracks

_RIDGE: Final = 1e-4  # while neurons go; the last refit chooses its own
_LEAST_SHARE: Final = 0.25  # of a layer's neurons: beyond that errors of a layer alone say too little


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
    model = _decoder(anatomy)
    unit = math.gcd(UNIT, *model.config.ffn)
    moments = ffn_moments(model, passages, threads=threads, report=report)
    layers = range(model.config.layers)
    paths = [
        _path(down_of(anatomy, layer), moments.of(layer).train, unit)
        for layer in told(layers, "studying layers", len(layers), report)
    ]
    return Study(anatomy, moments, tuple(paths), unit)


def _path(down: Doubles, gram: Doubles, unit: int) -> Path:
    fit = same_stream(down, gram)
    least = -(-round(_LEAST_SHARE * fit.neurons) // unit) * unit
    return path(fit, ridge=_RIDGE, block=unit, least=least, keep=protected(fit, down))


def _decoder(anatomy: Anatomy) -> Model:
    if anatomy.model is None:
        raise RequestProblem("only decoders can be pruned here", fix="name a decoder")
    return anatomy.model


# --- what an error costs --------------------------------------------------------------------------


def weights(
    found: Study,
    passages: Sequence[Sequence[int]],
    *,
    share: float = 0.5,
    threads: int,
    report: Report = silent,
) -> list[float]:
    """Mean KL to the dense model, in nats, of one unit of each layer's error.

    Measured by pruning each layer alone to `share` of its neurons. RequestProblem for families with a norm
    after the FFN: what they add to the residual is not what down gives.
    """
    model = _decoder(found.anatomy)
    if FAMILIES[model.config.family].sandwich:
        what = f"a {model.config.family} has a norm after its FFN, which the probe does not know"
        raise RequestProblem(what, fix="prune all layers alike")
    probe = _Probe(model, passages, threads)
    return [
        probe.cost(found, layer, share)
        for layer in told(range(model.config.layers), "probing layers", model.config.layers, report)
    ]


class _Probe:
    """The dense model as layers of their own, with what each left of the passages, [tokens, hidden]."""

    def __init__(self, model: Model, passages: Sequence[Sequence[int]], threads: int) -> None:
        self._passages = passages
        longest = max(map(len, passages)) - 1

        def tracks(first: int, past: int) -> Tracks:
            stages = model.stages[first:past]
            files = list(model.files(stages, "f32"))
            return Tracks(StageSession(model.config, files, context=longest, threads=threads, spin=False))

        count = model.config.layers
        embed = tracks(0, 1)
        self._layers = [tracks(1 + 3 * layer, 4 + 3 * layer) for layer in range(count)]
        self._wide = [tracks(1 + 3 * layer, 3 + 3 * layer) for layer in range(count)]
        self._head = Head(model, "f32", threads=threads)
        x = [embed.run({"ids": np.array(ids[:-1])}, 0).copy() for ids in passages]
        self._before = [x]
        for layer in self._layers:
            self._before.append([_through(layer, rows) for rows in self._before[-1]])

    def cost(self, found: Study, layer: int, share: float) -> float:
        """KL of the layer pruned alone, over its error."""
        widths = found.paths[layer].widths
        width = int(widths[np.argmin(np.abs(widths - share * widths[0]))])
        narrow, down = found.refit(layer, width), down_of(found.anatomy, layer)
        changes = -down
        changes[:, narrow.kept] += narrow.down
        error = found.fit(layer).error(narrow.down, narrow.kept)
        kl = [self._kl(layer, number, changes) for number in range(len(self._passages))]
        return float(np.mean(np.concatenate(kl))) / max(error, np.finfo(float).tiny)

    def _kl(self, layer: int, number: int, changes: Doubles) -> Doubles:
        h = _through(self._wide[layer], self._before[layer][number]).astype(np.float64)
        x: Floats = (self._before[layer + 1][number] + h @ changes.T).astype(np.float32)
        for after in self._layers[layer + 1 :]:
            x = _through(after, x)
        next_ids = np.array(self._passages[number][1:])
        both, measured, at = zip(self._head.logits(self._before[-1][number]), self._head.logits(x)), [], 0
        for exact, other in both:
            measured.append(scores(exact, other, next_ids[at : at + len(exact)])[:, 0])
            at += len(exact)
        return np.concatenate(measured)


def _through(track: Tracks, rows: Floats) -> Floats:
    return track.run({"x": rows}, 0).copy()
