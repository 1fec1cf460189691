"""SPINE: the spectra of every matrix and attention head of a model, and what they say of each layer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from trisplit.compress.anatomy import GIVEN, Anatomy, Part, Role, head_rows
from trisplit.compress.given import Calibration, Given
from trisplit.compress.neurons import Neurons, neurons
from trisplit.compress.reading import Report, silent
from trisplit.compress.spectra import Doubles, Spectrum, root, singular_values, spectrum
from trisplit.errors import RequestProblem
from trisplit.models.session import Floats

CLIFF: Final = 8.0
"""The threshold of the documents this project started from; no matrix of SmolLM2 reaches half of it."""

Zone = Literal["fragile", "valley", "refinement"]
ZONES: Final[tuple[Zone, ...]] = ("fragile", "valley", "refinement")
FFN: Final[tuple[Role, ...]] = ("gate", "up", "down")

# Shares of a model's depth: pruning layers of SmolLM2 one by one hurt most at its beginning, then at its end.
_ENTRY: Final = 0.2
_EXIT: Final = 0.8
_LOWEST: Final = 10  # percent of the layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A matrix of a layer, or one head of it. `white` is the spectrum of W·S with S Sᵀ = E[xxᵀ]."""

    layer: int
    matrix: Role
    head: int | None
    rows: int
    columns: int
    plain: Spectrum
    white: Spectrum | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer. `cliff` is the smallest of its FFN's matrices: a layer is as ready as the least of them.

    `zone`: the first fifth of the depth is `fragile`, the last `refinement`, what lies between `valley`; but
    a layer there whose cliff is among the lowest tenth of all layers is fragile too.
    """

    layer: int
    cliff: float
    zone: Zone
    neurons: Neurons | None


@dataclass(frozen=True, slots=True)
class Atlas:
    """All rows in order, all layers, and the cliff from which on something counts as compressible."""

    kind: str
    threshold: float
    rows: tuple[Row, ...]
    layers: tuple[Layer, ...]

    def passes(self, cliff: float) -> bool:
        """Whether this is a cliff; a matrix of zeros has none."""
        return cliff >= self.threshold

    def passing(self, *, heads: bool) -> tuple[int, int]:
        """How many matrices, or heads, pass, of how many."""
        cliffs = [row.plain.cliff for row in self.rows if (row.head is not None) == heads]
        return sum(map(self.passes, cliffs)), len(cliffs)

    def of(self, layer: int, *, heads: bool = False) -> list[Row]:
        """The matrices, or the heads, of a layer."""
        return [row for row in self.rows if row.layer == layer and (row.head is not None) == heads]


def survey(
    anatomy: Anatomy,
    calibration: Calibration | None = None,
    *,
    cliff: str = str(CLIFF),
    heads: bool = True,
    report: Report = silent,
) -> Atlas:
    """The atlas of a model. `cliff`: a number, or pNN for that percentile of its matrices' cliffs.
    Without `heads` of matrices alone, which takes a fraction of the time.

    One matrix is in memory at a time, in float64. CheckpointProblem for values that are no numbers;
    RequestProblem for a cliff that makes no sense.
    """
    level = _level(cliff)
    rows, shares = list[Row](), dict[int, Neurons]()
    for layer in range(anatomy.layers):
        given = calibration(layer) if calibration else {}
        roots = {name: root(seen.gram) for name, seen in given.items()}
        for part in anatomy.of(layer):
            matrix = part.read()
            seen = given.get(GIVEN[part.role])
            side = roots.get(GIVEN[part.role])
            rows.append(_row(part, None, matrix, side))
            rows += _heads_of(anatomy, part, matrix, seen, side) if heads else ()
            if part.role == "down" and seen:
                shares[layer] = neurons(matrix, seen.gram, seen.mean)
        report("layers", layer + 1, anatomy.layers)
    cliffs = [row.plain.cliff for row in rows if row.head is None]
    return Atlas(anatomy.kind, level(cliffs), tuple(rows), tuple(_layers(anatomy.layers, rows, shares)))


def _level(cliff: str) -> Callable[[list[float]], float]:
    """From all cliffs the one to reach."""
    text = cliff.strip()
    if percentile := re.fullmatch(r"p([0-9]{1,3}(?:\.[0-9]+)?)", text):
        share = float(percentile[1])
        if share <= 100:
            return lambda cliffs: _percentile(cliffs, share)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise RequestProblem(
            f"{cliff!r} is no cliff", fix="write a number such as 8, or a percentile such as p90"
        )
    return lambda _: value


def _percentile(cliffs: list[float], share: float) -> float:
    """One of the values themselves: between two of which one is infinite there is nothing."""
    known = [cliff for cliff in cliffs if not math.isnan(cliff)]
    return float(np.percentile(known, share, method="higher")) if known else math.inf


def _heads_of(
    anatomy: Anatomy, part: Part, matrix: Floats, seen: Given | None, side: Doubles | None
) -> Iterator[Row]:
    """A row for each head of a matrix; `side` is the root of what it was given."""
    for head, rows in head_rows(anatomy, part.role, matrix):
        if seen and part.role == "out":  # a head of it sees a part of what the matrix does
            span = slice(head * rows.shape[1], (head + 1) * rows.shape[1])
            yield _row(part, head, rows, root(seen.gram[span, span]))
        else:
            yield _row(part, head, rows, side)


def _row(part: Part, head: int | None, matrix: Floats, side: Doubles | None) -> Row:
    white = None if side is None else spectrum(singular_values(matrix.astype(np.float64) @ side))
    return Row(
        layer=part.layer,
        matrix=part.role,
        head=head,
        rows=matrix.shape[0],
        columns=matrix.shape[1],
        plain=spectrum(singular_values(matrix)),
        white=white,
    )


def _layers(count: int, rows: list[Row], shares: Mapping[int, Neurons]) -> Iterator[Layer]:
    by_layer: dict[int, list[float]] = {layer: [] for layer in range(count)}
    for row in rows:
        if row.head is None and row.matrix in FFN and not math.isnan(row.plain.cliff):
            by_layer[row.layer].append(row.plain.cliff)
    cliffs = [min(of_layer, default=math.nan) for of_layer in by_layer.values()]
    lowest = _percentile(cliffs, _LOWEST)
    for layer, cliff in enumerate(cliffs):
        depth = layer / max(count - 1, 1)
        yield Layer(layer=layer, cliff=cliff, zone=_zone(depth, cliff, lowest), neurons=shares.get(layer))


def _zone(depth: float, cliff: float, lowest: float) -> Zone:
    if depth < _ENTRY:
        return "fragile"
    if depth > _EXIT:
        return "refinement"
    return "fragile" if cliff < lowest else "valley"
