"""Cut, topology and order of stations with the least predicted time per token, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from trisplit.errors import PlanProblem
from trisplit.mesh.ahead import overlapping
from trisplit.mesh.cuts import CUTS, NO_ENDS, StageCost
from trisplit.mesh.orders import Orders, Placed
from trisplit.mesh.overlap import Ahead
from trisplit.mesh.plan import Plan, wished
from trisplit.mesh.predict import Measured, Prediction, predict
from trisplit.mesh.refusal import refusal
from trisplit.mesh.room import Room
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.table import Cell, Table

PREFERENCE = ("ring", "chain", "star")  # where times are the same

Placements = dict[tuple[str, bool], Placed]
"""By cut, and whether it is for a ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The quickest plan found for one cut and topology.

    `as_named_ms`: what all stations would take in the order they were named, None where they then hold
    nothing; `compared`: how many orders were, `is_exact`: whether those were all there are.
    """

    plan: Plan
    prediction: Prediction
    as_named_ms: float | None
    compared: int
    is_exact: bool

    @property
    def name(self) -> str:
        """`layers, ring`."""
        return f"{self.plan.cut}, {self.plan.topology}"

    def _with(self, plan: Plan, measured: Measured) -> Option:
        return replace(self, plan=plan, prediction=predict(plan, measured))


@dataclass(frozen=True, slots=True)
class Refused:
    """A cut and topology that no order tried can hold, and why."""

    cut: str
    topology: str
    problem: PlanProblem


@dataclass(frozen=True, slots=True)
class Choice:
    """What fits, quickest first, and what does not."""

    options: tuple[Option, ...]
    refused: tuple[Refused, ...]

    @property
    def best(self) -> Option:
        """The one to take."""
        return self.options[0]

    def reasons(self) -> list[str]:
        """Why the best is the best, a sentence each."""
        return [*self._against_others(), *self._about_order()]

    def only(self, cuts: Collection[str], topologies: Collection[str]) -> Choice:
        """The choice among these alone; PlanProblem where none of them fits."""
        options = tuple(o for o in self.options if o.plan.cut in cuts and o.plan.topology in topologies)
        refused = tuple(no for no in self.refused if no.cut in cuts and no.topology in topologies)
        if not options:
            raise refused[0].problem
        return Choice(options, refused)

    def with_ahead(self, ahead: Ahead | None, measured: Measured) -> Choice:
        """The same with these layers ahead, in thirds, where they can be; Problems as of `overlapping`."""
        if ahead is None:
            return self
        options = [
            option._with(overlapping(option.plan, ahead), measured) if option.plan.cut == "thirds" else option
            for option in self.options
        ]
        return Choice(tuple(sorted(options, key=_rank)), self.refused)

    def table(self, *, with_times: bool = True) -> Table:
        """One row for each cut and topology."""
        columns = ("cut", "topology", "stations", "legs", "wire ms", "compute ms", "ms per token", "tok/s")
        rows: list[tuple[Cell, ...]] = [
            (
                option.plan.cut,
                option.plan.topology,
                len(option.plan.shares),
                option.prediction.legs,
                option.prediction.wire_ms + option.prediction.late_ms,
                option.prediction.compute_ms + option.prediction.other_ms,
                option.prediction.ms,
                option.prediction.tok_per_s,
            )
            for option in self.options
        ]
        rows += [(no.cut, no.topology, None, None, None, None, None, None) for no in self.refused]
        shown = len(columns) if with_times else columns.index("wire ms")
        title = "predicted, one session" if with_times else "what fits"
        return Table(columns[:shown], tuple(row[:shown] for row in rows), title=title)

    def _against_others(self) -> list[str]:
        """Against the best of every other topology of the cut, and the best of every other cut."""
        best, seen, said = self.best, {self.best.plan.cut}, []
        for option in self.options[1:]:
            if option.plan.cut == best.plan.cut or option.plan.cut not in seen:
                more = option.prediction.ms - best.prediction.ms
                said.append(
                    f"{option.name}: {option.prediction.legs} legs, {more:,.1f} ms more than {best.name}"
                )
            seen.add(option.plan.cut)
        why = {no.cut: no.problem.what for no in self.refused if no.cut not in seen}
        return said + [f"{cut} does not fit: {what}" for cut, what in why.items()]

    def _about_order(self) -> list[str]:
        best, said = self.best, []
        saved = (best.as_named_ms or best.prediction.ms) - best.prediction.ms
        if best.plan.spares:
            said.append(f"left out: {_some(best.plan.spares)}")
        if best.as_named_ms is None:
            said.append("in the order they were named the stations do not hold the stages")
        elif saved > 0.05:
            said.append(f"this order saves {saved:,.1f} ms against all stations as they were named")
        few = f"{best.compared:,} orders of the stations were compared, not all: a quicker one may exist"
        return [*said, "no order of the stations is quicker" if best.is_exact else few]


def choose(
    stages: Sequence[StageCost],
    rooms: Sequence[Room],
    measured: Measured,
    *,
    ends: tuple[StageCost, StageCost] = NO_ENDS,
    cuts: Collection[str] = CUTS,
    topologies: Collection[str] = TOPOLOGIES,
    placements: Placements | None = None,
) -> Choice:
    """The quickest plan for each of these cuts and topologies, by what was measured.

    Shares are balanced as `plan` balances them; what is searched is the cut, the topology, the
    order of the stations and which of those with a stated limit are left out. `placements` are
    filled on the way, and are good for the same stages, rooms and ends, whatever was measured.
    Problems as of `plan`; a PlanProblem only where nothing fits.
    """
    options, refused = [], []
    placements = {} if placements is None else placements
    for cut in cuts:
        for topology in topologies:
            wish = wished(stages, rooms, cut=cut, topology=topology, ends=ends)
            orders = Orders(wish, measured, placements.setdefault((cut, topology == "ring"), {}))
            found, is_exact = orders.best()
            if found is None:
                refused.append(Refused(cut, topology, refusal(wish)))
                continue
            compared, drawn = orders.compared, orders.plan(found)
            named = orders.quickest([orders.given])
            options.append(
                Option(
                    plan=drawn,
                    prediction=predict(drawn, measured),
                    as_named_ms=None if named is None else named.ms + measured.other_ms,
                    compared=compared,
                    is_exact=is_exact,
                )
            )
    return Choice(tuple(sorted(options, key=_rank)), tuple(refused)).only(cuts, topologies)


def _some(names: Sequence[str]) -> str:
    """All names of few, the first of many."""
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"


def _rank(option: Option) -> tuple[float, int, int]:
    """Quickest first, times to the microsecond; then fewest legs."""
    return round(option.prediction.ms, 3), option.prediction.legs, PREFERENCE.index(option.plan.topology)
