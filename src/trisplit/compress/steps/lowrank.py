"""The step that makes matrices products of two factors, where that serves better than pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from trisplit.compress.anatomy import Anatomy
from trisplit.compress.calibrate import statistics_of
from trisplit.compress.methods.lowrank import factors, rank_for
from trisplit.compress.passages import Passage
from trisplit.compress.reading import told
from trisplit.compress.rewrite import rewrite
from trisplit.compress.sizes import matrix_shape, neuron_parameters
from trisplit.compress.steps.step import Edit, Means, Plan, Shape, refuse_no_share
from trisplit.compress.study import Study, study
from trisplit.compress.substitution import Place, places
from trisplit.models.config import Stage, layer_stages
from trisplit.models.layout import Matrix, layout
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.models.statistics import Statistics

_HELD_OUT: Final = 10  # every so many passages one is kept for the comparison, which reads the beginning of
_JUDGED: Final = 4  # so many
_JUDGED_TOKENS: Final = 256  # at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A matrix of rank `rank` beside its layer's FFN pruned by as many numbers.

    Both errors are E‖x′ - x‖² of the residual behind the layer, on text that neither was found with.
    """

    layer: int
    matrix: str
    rank: int
    error: float
    error_pruned: float

    @property
    def is_better(self) -> bool:
        """Whether two factors miss less than pruning does."""
        return self.error < self.error_pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """`keep`: the share of a matrix's numbers that its two factors have."""

    method: ClassVar[str] = "low-rank"
    what: ClassVar[str] = "matrices become products of two factors, where that beats pruning at equal size"
    keep: float = 0.5

    def __post_init__(self) -> None:
        refuse_no_share("keep", self.keep)

    def plan(self, anatomy: Anatomy, shape: Shape, means: Means) -> Plan:
        """As `Step`."""
        model = anatomy.decoder()
        train, judged = _apart(means.passages)
        seen = statistics_of(model, train, threads=means.threads, report=means.report)
        found = study(anatomy, means.passages, threads=means.threads, report=means.report)
        tried = places(model, judged, threads=means.threads)
        compared = [
            one
            for place in told(tried, "comparing with pruning", model.config.layers, means.report)
            for one in _Layer(place, found, seen, shape).compared(self.keep)
        ]
        better = [one for one in compared if one.is_better]
        ranks = {(one.layer, one.matrix): one.rank for one in better}

        def write(folder: Path) -> None:
            def change(stage: Stage, matrix: Matrix, role: str, rows: Floats) -> Floats:
                rank = ranks.get((stage.layer, role))
                return rows if rank is None else _product(rows, seen, stage, matrix, rank)

            rewrite(model, change, folder)

        return Plan(
            edits=tuple(_edit(model, shape, one) for one in better),
            shape=replace(shape, ranks={**shape.ranks, **ranks}),
            write=write,
            notes=tuple(_notes(better, compared)),
            facts={"compared": [asdict(one) for one in compared]},
        )


def _notes(better: Sequence[Compared], compared: Sequence[Compared]) -> Iterator[str]:
    yield f"of {len(compared)} matrices {len(better)} miss less as factors than an FFN pruned by as much"
    if better:
        yield "written multiplied out, in stock shape: not smaller on disk"


def _apart(passages: Sequence[Passage]) -> tuple[Sequence[Passage], Sequence[Passage]]:
    """What factors are found with, and the beginnings of what they are judged by."""
    held = [n for n in range(len(passages)) if n % _HELD_OUT == _HELD_OUT - 1] or [len(passages) - 1]
    train = [passage for n, passage in enumerate(passages) if n not in held] or passages
    return train, [passages[n][: _JUDGED_TOKENS + 1] for n in held[:_JUDGED]]


def _product(rows: Floats, seen: Statistics, stage: Stage, matrix: Matrix, rank: int) -> Floats:
    best = factors(rows.astype(np.float64), seen.gram(stage, matrix), rank)
    return best.product().astype(np.float32)


def _edit(model: Model, shape: Shape, one: Compared) -> Edit:
    rows, columns = matrix_shape(model, shape, one.layer, one.matrix)
    saved = rows * columns - one.rank * (rows + columns)
    return Edit(
        layer=one.layer,
        what=one.matrix,
        before=f"{rows:,} × {columns:,}",
        after=f"rank {one.rank:,}",
        parameters=saved,
        n_bytes=4 * saved,
    )


@dataclass(slots=True)
class _Layer:
    """One layer, its matrices as factors beside its FFN pruned."""

    place: Place
    found: Study
    seen: Statistics
    shape: Shape
    pruned: dict[int, float] | None = None

    def compared(self, keep: float) -> Iterator[Compared]:
        """Every matrix of which two factors would be smaller."""
        layer, model = self.place.layer, self.place.model
        self.pruned = {self.shape.widths[layer]: 0.0}
        for stage in layer_stages(range(layer, layer + 1)):
            for matrix in layout(model.config, stage).matrices:
                for part in matrix.parts:
                    rows, columns = matrix_shape(model, self.shape, layer, part.role)
                    if rank := rank_for(rows, columns, keep):
                        saved = rows * columns - rank * (rows + columns)
                        changed = self._factored(stage, matrix, part.role, rank)
                        yield Compared(
                            layer=layer,
                            matrix=part.role,
                            rank=rank,
                            error=self.place.error(changed),
                            error_pruned=self._pruned_by(saved / neuron_parameters(model)),
                        )

    def _factored(self, stage: Stage, matrix: Matrix, role: str, rank: int) -> Mapping[str, np.ndarray]:
        return {role: factors(self.place.rows(role), self.seen.gram(stage, matrix), rank).product()}

    def _pruned_by(self, neurons: float) -> float:
        """The error without so many neurons; between whole units on the line from one to the next."""
        unit, now = self.found.unit, self.shape.widths[self.place.layer]
        least = int(self.found.paths[self.place.layer].widths[-1])
        blocks = int(neurons / unit)
        wide, narrow = max(now - blocks * unit, least), max(now - (blocks + 1) * unit, least)
        share = neurons / unit - blocks
        return (1 - share) * self._error(wide) + share * self._error(narrow)

    def _error(self, width: int) -> float:
        """Of the layer with the best FFN of this width."""
        assert self.pruned is not None
        if width not in self.pruned:
            refit = self.found.refit(self.place.layer, width)
            down = np.zeros((len(refit.down), self.place.model.config.ffn[self.place.layer]))
            down[:, refit.kept] = refit.down
            self.pruned[width] = self.place.error({"down": down})
        return self.pruned[width]
