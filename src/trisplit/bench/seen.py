"""What stations saw of one token, as spans of work and legs between them; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trisplit.bench.measure import Spread
from trisplit.bench.trip import critical_flows
from trisplit.bench.waterfall import BYPASS, EARLY, LEG, Span
from trisplit.bench.wires import Wires
from trisplit.mesh.flow import flows
from trisplit.mesh.plan import Plan
from trisplit.mesh.predict import COORDINATOR

Times = tuple[float, float, float]
"""When rows arrived, when their run began and when it ended: milliseconds of one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The rows of one token at every group, and at the coordinator's ends where it has them.

    Of a group that starts ahead `groups` has its input, which it only adds to what its `early` row left.
    `next_ms`: in a ring, when the id that was chosen arrived where embed is; None where nobody has seen that.
    """

    groups: Sequence[Times]
    early: Mapping[int, Times] = field(default_factory=dict)
    embed: Times | None = None
    head: Times | None = None
    next_ms: float | None = None

    @property
    def waits_ms(self) -> float:
        """How long its rows were there and nobody ran them, in all; early ones may wait."""
        return sum(began - arrived for arrived, began, _ in self.groups)


def tokens_seen(answer: Mapping[str, Any], first: int, last: int, ahead: Collection[int] = ()) -> list[Seen]:
    """The tokens fed at positions `first` to `last`, from a mesh's answer to an order.

    `visits` are [group, position, arrived, began, ended], in their order; `embeds` and `heads` [position,
    began, ended]. Groups that start `ahead` are visited by an early row, by their input, and maybe once more.
    """
    at: dict[tuple[int, int], list[Times]] = {}
    for group, position, *times in answer["visits"]:
        at.setdefault((group, position), []).append((times[0], times[1], times[2]))
    embeds = {position: (began, began, ended) for position, began, ended in answer["embeds"]}
    heads = {position: (began, began, ended) for position, began, ended in answer["heads"]}
    n_groups = 1 + max(group for group, _ in at)
    return [
        Seen(
            groups=[at[group, position][group in ahead] for group in range(n_groups)],
            early={group: at[group, position][0] for group in ahead},
            embed=embeds.get(position),
            head=heads.get(position),
            next_ms=at[0, position + 1][0][0] if not heads and (0, position + 1) in at else None,
        )
        for position in range(first, last + 1)
    ]


def spans(plan: Plan, wires: Wires, seen: Seen) -> list[Span]:
    """The token as a picture shows it; times from its beginning.

    Nobody notes when a star's coordinator hands a frame on, nor when a residual comes: of the two legs of a
    hop each has taken half of what both took beyond nominal, and a bypass takes its nominal time. Attention
    that starts ahead works on its early row; that its keys are made anew, off the path, is not shown.
    """
    found = [*_work(plan, seen), *_legs(plan, wires, seen), *_past(plan, wires, seen)]
    began_ms = min(span.start_ms for span in found)
    return [
        Span(
            who=span.who,
            what=span.what,
            to=span.to,
            start_ms=span.start_ms - began_ms,
            end_ms=span.end_ms - began_ms,
        )
        for span in found
    ]


def _work(plan: Plan, seen: Seen) -> Iterator[Span]:
    for what, times in (("embed", seen.embed), ("head", seen.head)):
        if times is not None:
            yield Span(who=COORDINATOR, what=what, start_ms=times[1], end_ms=times[2])
    for home, group, times in zip(plan.homes, plan.groups, seen.groups):
        _, began_ms, ended_ms = seen.early.get(group.number, times)
        what = f"{group.label} ahead" if group.number in seen.early else group.label
        yield Span(who=home, what=what, start_ms=began_ms, end_ms=ended_ms)


def _legs(plan: Plan, wires: Wires, seen: Seen) -> Iterator[Span]:
    if seen.embed is not None:
        yield _leg(COORDINATOR, plan.homes[0], seen.embed[2], seen.groups[0][0])
    for flow in critical_flows(plan):
        who, left_ms = plan.homes[flow.source], seen.groups[flow.source][2]
        if flow.target == len(plan.groups):
            if seen.head is not None:
                yield _leg(who, COORDINATOR, left_ms, seen.head[0])
        elif flow.target > flow.source:
            yield from _hop(plan, wires, who, plan.homes[flow.target], left_ms, seen.groups[flow.target][0])
        elif seen.next_ms is not None:
            yield from _hop(plan, wires, who, plan.homes[0], left_ms, seen.next_ms)


def _hop(plan: Plan, wires: Wires, who: str, to: str, left_ms: float, came_ms: float) -> Iterator[Span]:
    """One leg, two over a star, none where both are one."""
    if who == to:
        return
    if plan.topology != "star":
        yield _leg(who, to, left_ms, came_ms)
        return
    there, back = wires.delay(who, COORDINATOR), wires.delay(COORDINATOR, to)
    half_ms = (came_ms - left_ms + there.mean_ms - back.mean_ms) / 2
    yield _leg(who, COORDINATOR, left_ms, left_ms + half_ms)
    yield _leg(COORDINATOR, to, left_ms + half_ms, came_ms)


def _leg(who: str, to: str, start_ms: float, end_ms: float) -> Span:
    return Span(who=who, what=LEG, to=to, start_ms=start_ms, end_ms=end_ms)


def _past(plan: Plan, wires: Wires, seen: Seen) -> Iterator[Span]:
    """What goes past the rows that a token waits for."""
    if plan.topology == "star":
        return
    for flow in flows(plan):
        who, to = plan.homes[flow.source], plan.homes[min(flow.target, len(plan.homes) - 1)]
        if who == to or not (flow.residual or flow.early):
            continue
        left_ms = seen.groups[flow.source][2]
        end_ms = seen.early[flow.target][0] if flow.early else left_ms + wires.delay(who, to).mean_ms
        what = EARLY if flow.early else BYPASS
        yield Span(who=who, what=what, to=to, start_ms=left_ms, end_ms=end_ms)


# --- over many tokens -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """How long a run of a kind of group took, wherever it was; `runs` for a token."""

    kind: str
    runs: int
    p50_ms: float
    best_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LegTimes:
    """How long a leg took, from the end of a run until its rows could run on; `trips` for a token."""

    source: str
    target: str
    trips: int
    nominal_ms: float
    p50_ms: float
    best_ms: float
    p95_ms: float


def stage_times(tokens: Sequence[Sequence[Span]]) -> list[StageTimes]:
    """A row for each kind, in the order a token meets them."""
    found: dict[str, list[float]] = {}
    for span in sorted((s for spans in tokens for s in spans if s.is_work), key=lambda s: s.start_ms):
        found.setdefault(span.kind, []).append(span.ms)
    rows = []
    for kind, times_ms in found.items():
        times = Spread.of(times_ms)
        runs = round(times.n / len(tokens))
        rows.append(
            StageTimes(kind=kind, runs=runs, p50_ms=times.p50_ms, best_ms=times.best_ms, p95_ms=times.p95_ms)
        )
    return rows


def leg_times(tokens: Sequence[Sequence[Span]], wires: Wires) -> list[LegTimes]:
    """A row for each pair."""
    found: dict[tuple[str, str], list[float]] = {}
    for spans in tokens:
        for span in spans:
            if span.what == LEG:
                found.setdefault((span.who, span.to), []).append(span.ms)
    rows = []
    for (source, target), times_ms in found.items():
        times = Spread.of(times_ms)
        rows.append(
            LegTimes(
                source=source,
                target=target,
                trips=round(times.n / len(tokens)),
                nominal_ms=wires.delay(source, target).mean_ms,
                p50_ms=times.p50_ms,
                best_ms=times.best_ms,
                p95_ms=times.p95_ms,
            )
        )
    return rows
