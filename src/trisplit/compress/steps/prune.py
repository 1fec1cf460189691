"""Steps that prune FFNs: all layers alike, by what errors cost, by spectral cliffs, by zones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from trisplit.compress.allocate import Curve, allocate
from trisplit.compress.anatomy import Anatomy
from trisplit.compress.atlas import CLIFF, Atlas, Zone, survey
from trisplit.compress.carried import carried, few
from trisplit.compress.methods.ffn import Refit
from trisplit.compress.narrow import write_narrow
from trisplit.compress.sizes import weight_of
from trisplit.compress.steps.step import Edit, Means, Plan, Shape, refuse_no_share
from trisplit.compress.study import Study, down_of, probed, study, weights
from trisplit.errors import RequestProblem
from trisplit.models.config import layer_stages
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model

Spread = Literal["alike", "allocated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """`keep`: the share of all neurons that stays. `allocated`: split over layers by what errors cost."""

    method: ClassVar[str] = "prune"
    what: ClassVar[str] = "neurons of FFNs go, down is refitted over the others"
    keep: float = 0.5
    spread: Spread = "alike"

    def __post_init__(self) -> None:
        refuse_no_share("keep", self.keep)

    def plan(self, anatomy: Anatomy, shape: Shape, means: Means) -> Plan:
        """As `Step`."""
        if self.spread == "alike":
            return _plan(anatomy, shape, means, [self.keep] * anatomy.layers, together=True)
        family = anatomy.decoder().config.family
        if FAMILIES[family].sandwich:  # told before the text is read
            what = f"what an error costs is not known of {family}, which has a norm after its FFN"
            raise RequestProblem(what, fix='prune all layers alike: spread = "alike"')
        found = _studied(anatomy, means)
        prices = measured_prices(found, means)
        widths = widths_allocated(found, self.keep, prices, shape.widths)
        return _plan_of(found, shape, widths, means, together=True, facts={"weights": prices})


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneByCliff:
    """Layers whose cliff is `cliff` or more keep `keep` of their neurons (`failing`: those under it).

    `cliff`: a number, or pNN for that percentile of the cliffs of all matrices.
    """

    method: ClassVar[str] = "prune-by-cliff"
    what: ClassVar[str] = "the same, only in layers whose σ1/σ2 passes, or only in those where it does not"
    keep: float = 0.5
    cliff: float | str = CLIFF
    layers: Literal["passing", "failing"] = "passing"

    def __post_init__(self) -> None:
        refuse_no_share("keep", self.keep)

    def plan(self, anatomy: Anatomy, shape: Shape, means: Means) -> Plan:
        """As `Step`."""
        atlas = survey(anatomy, cliff=str(self.cliff), heads=False, report=means.report)
        passes = [atlas.passes(layer.cliff) for layer in atlas.layers]
        chosen = [one == (self.layers == "passing") for one in passes]
        said = f"{sum(passes)} of {len(passes)} layers have a cliff of {atlas.threshold:.3g} or more"
        plan = _plan(anatomy, shape, means, [self.keep if one else 1.0 for one in chosen])
        return _with(plan, _facts(atlas), said)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneByZone:
    """The share of neurons that stays in layers of each zone (`atlas.Layer` says which is which)."""

    method: ClassVar[str] = "prune-by-zone"
    what: ClassVar[str] = "the same, a share for each zone of the depth"
    fragile: float = 1.0
    valley: float = 0.5
    refinement: float = 0.75

    def __post_init__(self) -> None:
        for zone, keep in self.shares.items():
            refuse_no_share(zone, keep)

    @property
    def shares(self) -> Mapping[Zone, float]:
        """By zone."""
        return {"fragile": self.fragile, "valley": self.valley, "refinement": self.refinement}

    def plan(self, anatomy: Anatomy, shape: Shape, means: Means) -> Plan:
        """As `Step`."""
        atlas = survey(anatomy, heads=False, report=means.report)
        zones = [layer.zone for layer in atlas.layers]
        said = ", ".join(f"{zones.count(zone)} {zone}" for zone in self.shares)
        plan = _plan(anatomy, shape, means, [self.shares[zone] for zone in zones])
        return _with(plan, _facts(atlas) | {"zones": zones}, f"layers: {said}")


# --- widths ---------------------------------------------------------------------------------------


def widths_alike(found: Study, shares: Sequence[float], now: Sequence[int]) -> tuple[int, ...]:
    """Of what each layer has `now` its share, in whole units. RequestProblem when one cannot be so narrow."""
    unit = found.unit
    wanted = [n if share == 1 else round(share * n / unit) * unit for share, n in zip(shares, now)]
    for path, width, n in zip(found.paths, wanted, now):
        if width != n and width not in path.widths:
            fix = f"keep {min(path.widths) / n:.2f} or more"
            raise RequestProblem(f"a layer cannot keep {width} neurons of {n}", fix=fix)
    return tuple(wanted)


def widths_allocated(
    found: Study, keep: float, prices: Sequence[float], now: Sequence[int]
) -> tuple[int, ...]:
    """Of all neurons that there are `now` a share, where errors cost least; RequestProblem as `allocate`."""
    budget = round(keep * sum(now) / found.unit) * found.unit
    curves = [_within(curve, n) for curve, n in zip(found.curves(prices), now)]
    return allocate(curves, budget, unit=found.unit).widths


def _within(curve: Curve, most: int) -> Curve:
    """Without widths that a layer has only because its file fills it up with zeros."""
    there = [place for place, width in enumerate(curve.widths) if width <= most]
    return replace(
        curve,
        widths=[curve.widths[place] for place in there],
        errors=[curve.errors[place] for place in there],
    )


def measured_prices(found: Study, means: Means) -> list[float]:
    """What an error of each layer costs, measured on a little of the calibration text."""
    prices = weights(found, probed(means.passages), threads=means.threads, report=means.report)
    return [float(price) for price in prices]


def refits(
    found: Study, widths: Sequence[int], now: Sequence[int], means: Means, *, together: bool
) -> Iterator[Refit]:
    """The narrower down of each layer.

    `together`: each makes good what the narrower ones before it have left undone, so none stays as it was;
    families with a norm after the FFN have it alone. Alone one that keeps all neurons it has keeps its down.
    """
    if together and not FAMILIES[found.anatomy.decoder().config.family].sandwich:
        some = few(means.passages)
        yield from carried(found, widths, some, threads=means.threads, report=means.report)
        return
    for layer, (width, n) in enumerate(zip(widths, now)):
        yield as_it_is(found.anatomy, layer, n) if width == n else found.refit(layer, width)


def as_it_is(anatomy: Anatomy, layer: int, width: int) -> Refit:
    """The first `width` neurons with their own columns of down."""
    return Refit(np.arange(width), down_of(anatomy, layer)[:, :width], 0.0)


# --- plans ----------------------------------------------------------------------------------------


def _studied(anatomy: Anatomy, means: Means) -> Study:
    return study(anatomy, means.passages, threads=means.threads, report=means.report)


def _plan(
    anatomy: Anatomy, shape: Shape, means: Means, shares: Sequence[float], *, together: bool = False
) -> Plan:
    """Each layer keeps its share; a model of which nothing goes is not read."""
    if all(share == 1 for share in shares):
        return Plan(edits=(), shape=shape, write=_nothing, notes=("nothing is cut",))
    found = _studied(anatomy, means)
    widths = widths_alike(found, shares, shape.widths)
    return _plan_of(found, shape, widths, means, together=together, facts={})


def _plan_of(
    found: Study,
    shape: Shape,
    widths: Sequence[int],
    means: Means,
    *,
    together: bool,
    facts: Mapping[str, Any],
) -> Plan:
    model, then = found.anatomy.decoder(), shape.narrower(widths)
    edits = tuple(
        _edit(model, layer, shape, then)
        for layer, (width, now) in enumerate(zip(widths, shape.widths))
        if width != now
    )

    def write(folder: Path) -> None:
        narrow = refits(found, widths, shape.widths, means, together=together)
        write_narrow(found.anatomy, narrow, max(widths), folder)

    return Plan(edits=edits, shape=then, write=write, facts=facts)


def _edit(model: Model, layer: int, before: Shape, after: Shape) -> Edit:
    stages = layer_stages(range(layer, layer + 1))
    was, now = (weight_of(model, shape, stages) for shape in (before, after))
    return Edit(
        layer=layer,
        what="ffn",
        before=f"{before.widths[layer]:,} neurons",
        after=f"{after.widths[layer]:,} neurons",
        parameters=was[0] - now[0],
        n_bytes=was[1] - now[1],
    )


def _nothing(folder: Path) -> None:
    raise AssertionError(f"nothing is to be written to {folder}")


def _with(plan: Plan, facts: Mapping[str, Any], note: str) -> Plan:
    return replace(plan, facts={**plan.facts, **facts}, notes=(note, *plan.notes))


def _facts(atlas: Atlas) -> dict[str, Any]:
    """Cliffs as JSON can have them: one that does not exist is null."""
    finite = [layer.cliff if np.isfinite(layer.cliff) else None for layer in atlas.layers]
    threshold = atlas.threshold if np.isfinite(atlas.threshold) else None
    return {"threshold": threshold, "cliffs": finite}
