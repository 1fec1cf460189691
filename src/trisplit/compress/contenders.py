"""Ways to make all FFNs of a model narrower, ours and those of others, each as it is meant to be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from trisplit.compress.allocate import allocate
from trisplit.compress.methods.ffn import Neurons, best_refit, refit
from trisplit.compress.methods.others import by_score, flap, flap_bias, magnitude, wanda
from trisplit.compress.spectra import Doubles
from trisplit.compress.study import Study, down_of
from trisplit.compress.trial import Narrowed
from trisplit.errors import RequestProblem, UnknownName

Contender = Callable[[Study, float], Iterator[Narrowed]]
Ablation = Callable[[Study, float, Sequence[float]], Iterator[Narrowed]]


def ours(found: Study, keep: float, prices: Sequence[float]) -> Iterator[Narrowed]:
    """Elimination and refit, `keep` of all neurons split over layers by what errors cost.

    RequestProblem when the share is less than layers can keep.
    """
    return _refitted(found, _allocated(found, keep, prices))


def _allocated(found: Study, keep: float, prices: Sequence[float]) -> tuple[int, ...]:
    budget = round(keep * sum(int(path.widths[0]) for path in found.paths) / found.unit) * found.unit
    return allocate(found.curves(prices), budget, unit=found.unit).widths


def ours_uniform(found: Study, keep: float) -> Iterator[Narrowed]:
    """The same, every layer keeping `keep` of its own. RequestProblem as of `ours`."""
    return _refitted(found, [_alike(found, layer, keep) for layer in range(len(found.paths))])


def _refitted(found: Study, widths: Sequence[int]) -> Iterator[Narrowed]:
    for layer, width in enumerate(widths):
        refit = found.refit(layer, width)
        yield Narrowed(refit.kept, refit.down)


def _alike(found: Study, layer: int, keep: float) -> int:
    widest = int(found.paths[layer].widths[0])
    width = round(keep * widest / found.unit) * found.unit
    if not 0 < width <= widest:
        raise RequestProblem(f"a layer cannot keep {width} neurons of {widest}", fix="keep more")
    return width


# --- others ---------------------------------------------------------------------------------------


def by_wanda(found: Study, keep: float) -> Iterator[Narrowed]:
    """The norm of what a neuron gives times that of its weights; every layer alike, down as it was."""
    for layer in range(len(found.paths)):
        down = down_of(found.anatomy, layer)
        kept = by_score(wanda(down, found.moments.of(layer).train), _alike(found, layer, keep))
        yield Narrowed(kept, down[:, kept])


def by_magnitude(found: Study, keep: float) -> Iterator[Narrowed]:
    """The norms of a neuron's weights multiplied, no text read; every layer alike, down as it was."""
    for layer in range(len(found.paths)):
        read = {part.role: part.read().astype(np.float64) for part in found.anatomy.of(layer)}
        scores = magnitude(read.get("gate"), read["up"], read["down"])
        kept = by_score(scores, _alike(found, layer, keep))
        yield Narrowed(kept, read["down"][:, kept])


def by_flap(found: Study, keep: float) -> Iterator[Narrowed]:
    """FLAP (An et al. 2024): fluctuation; every layer alike; what went is made up for by its mean, a bias."""
    for layer in range(len(found.paths)):
        down, given = down_of(found.anatomy, layer), found.moments.of(layer)
        kept = by_score(flap(down, given.train, given.mean), _alike(found, layer, keep))
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
    "ours-uniform": ours_uniform,
    "flap": by_flap,
    "flap-global": by_flap_global,
    "wanda": by_wanda,
    "magnitude": by_magnitude,
}


def contender(name: str) -> Contender:
    """The way of this name, but for `ours`, which wants prices. UnknownName."""
    if name not in OTHERS:
        raise UnknownName("method", name, ["dense", "ours", *OTHERS])
    return OTHERS[name]


# --- ours with one thing done another way -----------------------------------------------------------


def _no_refit(found: Study, keep: float, prices: Sequence[float]) -> Iterator[Narrowed]:
    for layer, width in enumerate(_allocated(found, keep, prices)):
        kept = found.paths[layer].kept(width)
        yield Narrowed(kept, down_of(found.anatomy, layer)[:, kept])


def _scored(found: Study, keep: float, prices: Sequence[float]) -> Iterator[Narrowed]:
    for layer, width in enumerate(_allocated(found, keep, prices)):
        fit = found.fit(layer)
        kept = by_score(wanda(down_of(found.anatomy, layer), fit.gram), width)
        found_down = best_refit(fit, found.fit(layer, "held"), kept)
        yield Narrowed(kept, found_down.down)


def _fixed(ridge: float) -> Ablation:
    def made(found: Study, keep: float, prices: Sequence[float]) -> Iterator[Narrowed]:
        for layer, width in enumerate(_allocated(found, keep, prices)):
            one = refit(found.fit(layer), found.paths[layer].kept(width), ridge=ridge)
            yield Narrowed(one.kept, one.down)

    return made


def _errors_alone(found: Study, keep: float, prices: Sequence[float]) -> Iterator[Narrowed]:
    return ours(found, keep, [1.0] * len(prices))


def _alike_each(found: Study, keep: float, prices: Sequence[float]) -> Iterator[Narrowed]:  # noqa: ARG001
    return ours_uniform(found, keep)


ABLATIONS: Final[Mapping[str, Ablation]] = {
    "ours": ours,
    "refit: none": _no_refit,
    "selection: wanda, refitted": _scored,
    "lambda: 1e-2": _fixed(1e-2),
    "lambda: 1e-8": _fixed(1e-8),
    "allocation: errors, not priced": _errors_alone,
    "allocation: uniform": _alike_each,
}
