"""Ways to make all FFNs of a model narrower, ours and those of others, each as it is meant to be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trisplit.compress.carried import carried, few
from trisplit.compress.methods.ffn import Neurons, best_refit, refit
from trisplit.compress.methods.others import by_score, flap, flap_bias, magnitude, wanda
from trisplit.compress.reading import Report, silent
from trisplit.compress.spectra import Doubles
from trisplit.compress.steps.prune import widths_allocated
from trisplit.compress.study import Study, down_of
from trisplit.compress.trial import Narrowed
from trisplit.errors import RequestProblem, UnknownName


@dataclass(frozen=True, slots=True)
class Means:
    """What ways are made with: a study, what an error of each layer costs, and the text that was read."""

    found: Study
    prices: Sequence[float]
    passages: Sequence[Sequence[int]]
    threads: int = 1
    report: Report = silent


Ours = Callable[[Means, float], Iterator[Narrowed]]
Contender = Callable[[Study, float], Iterator[Narrowed]]


def ours(means: Means, keep: float) -> Iterator[Narrowed]:
    """Elimination, `keep` of all neurons split over layers by what errors cost, downs fitted on both streams.

    RequestProblem when the share is less than layers can keep.
    """
    return _carried(means, _allocated(means.found, keep, means.prices))


def ours_uniform(means: Means, keep: float) -> Iterator[Narrowed]:
    """The same, every layer keeping `keep` of its own. RequestProblem as of `ours`."""
    return _carried(means, _alike(means.found, keep))


def _carried(means: Means, widths: Sequence[int]) -> Iterator[Narrowed]:
    some = few(means.passages)
    for one in carried(means.found, widths, some, threads=means.threads, report=means.report):
        yield Narrowed(one.kept, one.down)


def _allocated(found: Study, keep: float, prices: Sequence[float]) -> tuple[int, ...]:
    return widths_allocated(found, keep, prices, [int(path.widths[0]) for path in found.paths])


def _alike(found: Study, keep: float) -> list[int]:
    widths = []
    for widest in (int(path.widths[0]) for path in found.paths):
        widths.append(round(keep * widest / found.unit) * found.unit)
        if not 0 < widths[-1] <= widest:
            what = f"a layer cannot keep {widths[-1]} neurons of {widest}"
            raise RequestProblem(what, fix="keep more")
    return widths


# --- others ---------------------------------------------------------------------------------------


def by_wanda(found: Study, keep: float) -> Iterator[Narrowed]:
    """The norm of what a neuron gives times that of its weights; every layer alike, down as it was."""
    for layer, width in enumerate(_alike(found, keep)):
        down = down_of(found.anatomy, layer)
        kept = by_score(wanda(down, found.moments.of(layer).train), width)
        yield Narrowed(kept, down[:, kept])


def by_magnitude(found: Study, keep: float) -> Iterator[Narrowed]:
    """The norms of a neuron's weights multiplied, no text read; every layer alike, down as it was."""
    for layer, width in enumerate(_alike(found, keep)):
        read = {part.role: part.read().astype(np.float64) for part in found.anatomy.of(layer)}
        scores = magnitude(read.get("gate"), read["up"], read["down"])
        kept = by_score(scores, width)
        yield Narrowed(kept, read["down"][:, kept])


def by_flap(found: Study, keep: float) -> Iterator[Narrowed]:
    """FLAP (An et al. 2024): fluctuation; every layer alike; what went is made up for by its mean, a bias."""
    for layer, width in enumerate(_alike(found, keep)):
        down, given = down_of(found.anatomy, layer), found.moments.of(layer)
        kept = by_score(flap(down, given.train, given.mean), width)
        yield _with_bias(down, given.mean, kept)


def by_flap_global(found: Study, keep: float) -> Iterator[Narrowed]:
    """The same with one threshold for the scores of all layers, as FLAP has it; one neuron at least stays."""
    scores = []
    for layer in range(len(found.paths)):
        given = found.moments.of(layer)
        scores.append(flap(down_of(found.anatomy, layer), given.train, given.mean))
    together = np.sort(np.concatenate(scores))
    least = together[-max(round(keep * len(together)), 1)]
    for layer, own in enumerate(scores):
        kept = np.flatnonzero(own >= min(least, own.max()))
        yield _with_bias(down_of(found.anatomy, layer), found.moments.of(layer).mean, kept)


def _with_bias(down: Doubles, mean: Doubles, kept: Neurons) -> Narrowed:
    return Narrowed(kept, down[:, kept], flap_bias(down, mean, kept))


OTHERS: Final[Mapping[str, Contender]] = {
    "flap": by_flap,
    "flap-global": by_flap_global,
    "wanda": by_wanda,
    "magnitude": by_magnitude,
}


OURS: Final[Mapping[str, Ours]] = {"ours": ours, "ours-uniform": ours_uniform}


def contender(name: str) -> Ours:
    """The way of this name; UnknownName."""
    if name in OURS:
        return OURS[name]
    if name not in OTHERS:
        raise UnknownName("method", name, ["dense", *OURS, *OTHERS])
    return lambda means, keep: OTHERS[name](means.found, keep)


# --- ours with one thing done another way -----------------------------------------------------------


def _dense_stream(means: Means, keep: float) -> Iterator[Narrowed]:
    for layer, width in enumerate(_allocated(means.found, keep, means.prices)):
        one = means.found.refit(layer, width)
        yield Narrowed(one.kept, one.down)


def _no_refit(means: Means, keep: float) -> Iterator[Narrowed]:
    for layer, width in enumerate(_allocated(means.found, keep, means.prices)):
        kept = means.found.paths[layer].kept(width)
        yield Narrowed(kept, down_of(means.found.anatomy, layer)[:, kept])


def _scored(means: Means, keep: float) -> Iterator[Narrowed]:
    for layer, width in enumerate(_allocated(means.found, keep, means.prices)):
        fit = means.found.fit(layer)
        kept = by_score(wanda(down_of(means.found.anatomy, layer), fit.gram), width)
        yield Narrowed(kept, best_refit(fit, means.found.fit(layer, "held"), kept).down)


def _fixed(ridge: float) -> Ours:
    def made(means: Means, keep: float) -> Iterator[Narrowed]:
        for layer, width in enumerate(_allocated(means.found, keep, means.prices)):
            one = refit(means.found.fit(layer), means.found.paths[layer].kept(width), ridge=ridge)
            yield Narrowed(one.kept, one.down)

    return made


def _errors_alone(means: Means, keep: float) -> Iterator[Narrowed]:
    return _dense_stream(replace(means, prices=[1.0] * len(means.prices)), keep)


def _each_alike(means: Means, keep: float) -> Iterator[Narrowed]:
    for layer, width in enumerate(_alike(means.found, keep)):
        one = means.found.refit(layer, width)
        yield Narrowed(one.kept, one.down)


ABLATIONS: Final[Mapping[str, Ours]] = {
    "ours": ours,
    "target: dense stream alone": _dense_stream,
    "that, lambda 1e-2": _fixed(1e-2),
    "that, lambda 1e-8": _fixed(1e-8),
    "that, errors not priced": _errors_alone,
    "that, every layer alike": _each_alike,
    "that, neurons by wanda": _scored,
    "that, down not refitted": _no_refit,
}
"""Ours, then ours fitted on the dense stream alone, and that with one more thing done another way."""
