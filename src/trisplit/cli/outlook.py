"""What was chosen, and what else there would be, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from trisplit.cli.overlap import NONE, overlap_in
from trisplit.mesh.choose import Choice, Option
from trisplit.mesh.cuts import StageCost
from trisplit.mesh.estimates import Estimate, estimates, estimates_table, rounds, rounds_table
from trisplit.mesh.levers import Ladder
from trisplit.mesh.plan import Plan
from trisplit.mesh.profile import Profile, Speculation
from trisplit.mesh.room import Room
from trisplit.models.convert import Dtype
from trisplit.models.model import Model
from trisplit.table import Table

if TYPE_CHECKING:
    from trisplit.mesh.clocking import StageTimes
    from trisplit.mesh.distances import Distances

MOST_ROWS: Final = 40
MOST_COLUMNS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be placed, a model or what stands for one; `context` is None where no bytes are known.

    `dtype` is what the model's weights are to be, if there is one.
    """

    name: str
    chain: Sequence[StageCost]
    ends: tuple[StageCost, StageCost]
    model: Model | None = None
    dtype: Dtype | None = None
    context: int | None = None

    @property
    def layers(self) -> int:
        """How many."""
        return len(self.chain) // 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What was chosen; `every` cut and topology, and the levers, where an explanation was asked for.

    `overlap`: what was asked to start ahead. `distances`, `times`: what stations that run have measured.
    """

    subject: Subject
    profile: Profile
    rooms: Sequence[Room]
    choice: Choice
    every: Choice | None = None
    ladders: Sequence[Ladder] = ()
    overlap: str = NONE
    distances: Distances | None = None
    times: StageTimes | None = None

    # --- for people ---

    def tables(self) -> list[Table]:
        """The plan; explained, every cut and topology, every lever, and estimates on paper."""
        tables = [_shortened(self.choice.best.plan.table(with_bytes=self.subject.context is not None))]
        if self.distances is not None and len(self.distances.addresses) <= MOST_COLUMNS:
            tables.insert(0, self.distances.table())
        if self.times is not None:
            tables.insert(1, _shortened(self.times.table()))
        if self.every is None:
            return tables
        tables.append(self.every.table(with_times=self.profile.knows_times))
        tables += [seen.table() for seen in self.ladders]
        return (
            [*tables, estimates_table(self._estimates()), rounds_table()] if self.profile.stages else tables
        )

    def lines(self) -> list[str]:
        """The prediction, the reasons, and what was not known."""
        profile, predicted = self.profile, self.choice.best.prediction
        if not profile.knows_times:
            counted = "chosen by legs alone, nothing was measured: see --one-way-ms, --stage-ms and --profile"
            return [counted, *self._ahead()]
        legs = f"legs {predicted.wire_ms + predicted.late_ms:,.1f} ms"
        between = f", between stages {predicted.other_ms:,.1f} ms" if predicted.other_ms else ""
        if predicted.ahead_ms > 0:
            between += f", less {predicted.ahead_ms:,.1f} ms of attention that starts ahead"
        elif predicted.ahead_ms:
            between += f", and {-predicted.ahead_ms:,.1f} ms that starting ahead costs"
        said = [
            f"predicted: {predicted.ms:,.1f} ms a token, {predicted.tok_per_s:.3g} tok/s: "
            f"{legs}, stages {predicted.compute_ms:,.1f} ms{between}",
            *self.choice.reasons(),
            *self._ahead(),
        ]
        if profile.links is None:
            where = " and hops are inside the stages" if profile.most_one_way_ms is not None else ""
            said.append(f"no link was measured{where}: what legs cost is not told apart; see --one-way-ms")
        if profile.stages is None:
            said.append("no stage was measured: computing is taken to cost nothing; see --stage-ms")
        if self.distances is not None:
            best, places = self.choice.best.plan, self.distances.addresses
            order = ",".join(places[share.station] for share in best.shares)
            overlap = f" --overlap {self.overlap}" if self.overlap != NONE else ""
            how = f"--cut {best.cut} --topology {best.topology}{overlap}"
            said.append(f"to run it: --stations {order} {how}")
        if self.ladders:
            said.append(_assumed(self.ladders[0].speculation, is_measured=profile.speculation is not None))
        return said

    def _ahead(self) -> Iterator[str]:
        """Which layers start ahead, where somebody has asked."""
        best = self.choice.best.plan
        if self.overlap != NONE and best.cut != "thirds":
            yield "overlap: layers can start ahead in thirds alone; see --cut thirds"
        elif overlap := overlap_in(best, self.overlap):
            yield from overlap.lines()

    def _estimates(self) -> list[Estimate]:
        stages, ends = self.profile.stages, self.profile.ends
        return estimates(stages, self.subject.layers, ends.ms if ends else 0.0) if stages else []

    # --- for machines ---

    def as_json(self) -> dict[str, Any]:
        """The facts of the tables and lines, and the groups in the order of their visits."""
        best, knows_bytes = self.choice.best, self.subject.context is not None
        facts = {
            "model": self.subject.name,
            "dtype": self.subject.dtype,
            "context": self.subject.context,
            **_plan_facts(best.plan, self.rooms, knows_bytes=knows_bytes),
            "predicted": _prediction_facts(best) if self.profile.knows_times else None,
            "notes": self.lines(),
        }
        if self.distances is not None:
            facts["measured"] = self.distances.as_json() | (asdict(self.times) if self.times else {})
        if self.every is None:
            return facts
        return facts | {
            "options": [_option_facts(option, self.profile) for option in self.every.options],
            "refused": [
                {"cut": no.cut, "topology": no.topology, "why": no.problem.what} for no in self.every.refused
            ],
            "ladders": [_ladder_facts(seen) for seen in self.ladders],
            "estimates": [asdict(one) for one in self._estimates()],
            "rounds": [asdict(one) for one in rounds()],
        }


def _plan_facts(drawn: Plan, rooms: Sequence[Room], *, knows_bytes: bool) -> dict[str, Any]:
    limits = {room.name: room.memory_bytes for room in rooms}
    return {
        "cut": drawn.cut,
        "topology": drawn.topology,
        "legs_per_token": drawn.legs_per_token,
        "ahead": asdict(drawn.ahead) if drawn.ahead else None,
        "ends_bytes": drawn.ends_bytes if knows_bytes else None,
        "stations": [
            {
                "name": share.station,
                "stages": share.label,
                "groups": [group.label for group in share.groups],
                "weight_bytes": share.weight_bytes if knows_bytes else None,
                "kv_bytes": share.kv_bytes if knows_bytes else None,
                "memory_bytes": limits[share.station],
            }
            for share in drawn.shares
        ],
        "spares": list(drawn.spares),
    }


def _prediction_facts(option: Option) -> dict[str, Any]:
    predicted = option.prediction
    return {
        "ms_per_token": predicted.ms,
        "tok_per_s": predicted.tok_per_s if predicted.ms else None,
        "wire_ms": predicted.wire_ms,
        "late_ms": predicted.late_ms,
        "compute_ms": predicted.compute_ms,
        "other_ms": predicted.other_ms,
        "ahead_ms": predicted.ahead_ms,
    }


def _option_facts(option: Option, profile: Profile) -> dict[str, Any]:
    return {
        "cut": option.plan.cut,
        "topology": option.plan.topology,
        "stations": [share.station for share in option.plan.shares],
        "legs_per_token": option.plan.legs_per_token,
        "predicted": _prediction_facts(option) if profile.knows_times else None,
        "orders_compared": option.compared,
        "is_exact": option.is_exact,
    }


def _ladder_facts(seen: Ladder) -> dict[str, Any]:
    base = seen.base
    return {
        "from": {"cut": base.plan.cut, "topology": base.plan.topology, **_prediction_facts(base)},
        "speculation": structs.asdict(seen.speculation),
        "levers": [asdict(lever) | {"gain_there": lever.gain_there} for lever in seen.levers],
    }


def _assumed(speculation: Speculation, *, is_measured: bool) -> str:
    what = "" if is_measured else ": assumed, not measured"
    return (
        f"speculation drafts {speculation.drafted} tokens a round in {speculation.draft_ms:g} ms each, "
        f"of which {speculation.acceptance:g} are accepted{what}"
    )


def _shortened(table: Table) -> Table:
    """The first rows of many, and the last."""
    if len(table.rows) <= MOST_ROWS:
        return table
    kept, empty = MOST_ROWS // 4, (None,) * (len(table.columns) - 2)
    left_out = (f"and {len(table.rows) - kept - 1} more", "", *empty)
    return replace(table, rows=(*table.rows[:kept], left_out, table.rows[-1]))
