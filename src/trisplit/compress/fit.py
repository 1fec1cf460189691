"""SPINE: gates → the smallest model that passes them, found by trying sizes without writing any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.compress.allocate import Budgets
from trisplit.compress.anatomy import Anatomy
from trisplit.compress.evaluate import Evaluation, Exam
from trisplit.compress.export import STOCK, Wanted
from trisplit.compress.frontier import Point
from trisplit.compress.gates import Metric, judge, strain
from trisplit.compress.passages import Passage
from trisplit.compress.pipeline import RECEIPT, Outcome, compress, refuse_early
from trisplit.compress.reading import Report, silent, told
from trisplit.compress.recipe import Recipe, recipe_named
from trisplit.compress.rehearsal import Rehearsal
from trisplit.compress.sizes import weigh_shape
from trisplit.compress.smallest import smallest
from trisplit.compress.steps.prune import measured_prices
from trisplit.compress.steps.step import Means, Shape
from trisplit.compress.study import Study, study
from trisplit.errors import RequestProblem
from trisplit.models.model import Model

_SHARES: Final = (0.9, 0.8, 0.7, 0.6, 0.5)  # tried in any case, so that there is a frontier to look at
_QUICK_TOKENS: Final = 512  # of each text that a quick try reads
_WRITTEN: Final = 3  # copies that are written before it is given up: one is, but for rounding


@dataclass(frozen=True, slots=True)
class Fitted:
    """Every size that was tried, smallest first; and what became of the one that was found, if any was."""

    points: tuple[Point, ...]
    outcome: Outcome | None

    @property
    def chosen(self) -> Point | None:
        """The size that was found."""
        neurons = sum(self.outcome.widths) if self.outcome else -1
        return next((point for point in self.points if point.neurons == neurons), None)


def fit(
    anatomy: Anatomy,
    calibration: Sequence[Passage],
    exam: Exam,
    out: Path,
    *,
    gates: Mapping[Metric, float],
    seed: int = 0,
    form: Wanted = STOCK,
    threads: int = 1,
    report: Report = silent,
) -> Fitted:
    """The smallest copy whose FFNs, allocated to layers by what errors cost, pass the gates on this exam.

    Sizes are tried in memory on the beginning of each text, the ones that matter on all of it; what is found
    is written and judged as `compress` does, and a size larger if that fails. Problems as of `compress`,
    and RequestProblem for gates that say nothing of texts.
    """
    model = refuse_early(anatomy, out, form)
    if not gates.keys() - {"accuracy"}:
        raise RequestProblem("no gate is on texts", fix="write --gate ppl=1.05, kl=0.1 or top1=0.9")
    found = study(anatomy, calibration, threads=threads, report=report)
    weights = measured_prices(found, Means(passages=calibration, threads=threads, report=report))
    with Rehearsal(model, found, exam, threads=threads, report=report) as rehearsal:
        tries = _Tries(model, found, weights, rehearsal, _quick_passages(exam), gates, report)
        place = tries.search()
    if place is None:
        return Fitted(tries.points(), None)
    for _ in range(_WRITTEN):
        recipe = tries.recipe(place)
        outcome = compress(
            *(anatomy, recipe, calibration, exam, out),
            gates=gates,
            seed=seed,
            form=form,
            threads=threads,
            report=report,
        )
        tries.note(place, outcome.measured, thorough=True)
        if outcome.verdict.passed or place + 1 == tries.count:
            break
        (out / RECEIPT).unlink()
        place += 1
    return Fitted(tries.points(), outcome)


def _quick_passages(exam: Exam) -> int:
    longest = max(len(passage) - 1 for of_text in exam.texts.values() for passage in of_text)
    return max(_QUICK_TOKENS // longest, 1)


class _Tries:
    """Sizes by their places, from the smallest that the curves allow to a unit less than the dense model."""

    def __init__(
        self,
        model: Model,
        found: Study,
        weights: Sequence[float],
        rehearsal: Rehearsal,
        quick_passages: int,
        gates: Mapping[Metric, float],
        report: Report,
    ) -> None:
        self._budgets = Budgets(found.curves(weights), unit=found.unit)
        self._model, self._unit, self._gates = model, found.unit, gates
        self._rehearsal, self._quick_passages, self._report = rehearsal, quick_passages, report
        self._neurons = range(self._budgets.smallest, self._budgets.largest, found.unit)
        self._points: dict[tuple[int, bool], Point] = {}

    @property
    def count(self) -> int:
        return len(self._neurons)

    def search(self) -> int | None:
        """The place of the smallest that passes, as far as it was rehearsed."""
        some = {round((share * self._budgets.largest - self._neurons[0]) / self._unit) for share in _SHARES}
        places = sorted(place for place in some if 0 <= place < self.count)
        seen = {place: self.quick(place) for place in told(places, "trying sizes", len(places), self._report)}
        return smallest(self.count, self.quick, self.thorough, seen=seen).place

    def quick(self, place: int) -> float:
        """The strain on the beginning of each text."""
        widths = self._budgets.split(self._neurons[place]).widths
        measured = self._rehearsal.measure(widths, self._quick_passages, report=self._report)
        return self.note(place, measured, thorough=False)

    def thorough(self, place: int) -> float:
        """The strain on the whole exam."""
        widths = self._budgets.split(self._neurons[place]).widths
        measured = self._rehearsal.measure(widths, report=self._report)
        return self.note(place, measured, thorough=True)

    def note(self, place: int, measured: Evaluation, *, thorough: bool) -> float:
        """Keeps what was measured of a size; its strain."""
        neurons = self._neurons[place]
        shape = Shape(widths=self._budgets.split(neurons).widths)
        made = Point(
            neurons=neurons,
            share=neurons / self._budgets.largest,
            parameters=weigh_shape(self._model, shape).parameters,
            texts=measured.texts,
            strain=strain(judge(measured, self._gates).gates),
            thorough=thorough,
        )
        self._points[place, thorough] = made
        return made.strain

    def recipe(self, place: int) -> Recipe:
        """What makes a copy of that size."""
        return recipe_named("allocated", self._neurons[place] / self._budgets.largest)

    def points(self) -> tuple[Point, ...]:
        """All that was tried; of a size that was tried both ways the thorough one."""
        best = {place: made for (place, _), made in sorted(self._points.items())}
        return tuple(best[place] for place in sorted(best))
