"""What a token will take: its critical path, with links and stages as they were measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import RequestProblem
from trisplit.mesh.cuts import StageCost, runs_beside
from trisplit.mesh.overlap import Ahead, Early
from trisplit.mesh.plan import Plan, Share
from trisplit.models.config import Kind

COORDINATOR: Final = "coordinator"
KINDS: Final[tuple[Kind, ...]] = ("embed", "attention", "gate_up", "down", "head")

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, in milliseconds; `names` are the coordinator, then the stations.

    `one_way_ms[a][b]` is the leg from a to b, half a round trip where nothing better is known;
    `stage_ms[a]` what one stage of each of KINDS takes at a; `other_ms` is part of every token,
    whatever the plan.
    """

    names: tuple[str, ...]
    one_way_ms: tuple[tuple[float, ...], ...]
    stage_ms: tuple[tuple[float, ...], ...]
    other_ms: float = 0.0

    def index(self, name: str) -> int:
        """The place of a station; RequestProblem when it was not measured."""
        if name not in self.names:
            raise RequestProblem(
                f"nothing was measured of station {name}", fix=f"measured were {', '.join(self.names)}"
            )
        return self.names.index(name)

    def run_ms(self, station: str, kind: Kind) -> float:
        """What a stage of a kind takes at a station."""
        return self.stage_ms[self.index(station)][KINDS.index(kind)]

    def way_ms(self, a: str, b: str, topology: str) -> float:
        """What a frame takes from one to the other: nothing to itself, in a star by the coordinator."""
        if a == b:
            return 0.0
        if topology == "star" and COORDINATOR not in (a, b):
            return self.way_ms(a, COORDINATOR, "") + self.way_ms(COORDINATOR, b, "")
        return self.one_way_ms[self.index(a)][self.index(b)]


def uniform(stations: Sequence[str], *, one_way_ms: float, stage_ms: Mapping[Kind, float]) -> Measured:
    """Links all as long as each other, stations all as quick; kinds that are not named take no time."""
    names = (COORDINATOR, *stations)
    links = tuple(tuple(one_way_ms * (a != b) for b in names) for a in names)
    return Measured(names, links, tuple(tuple(stage_ms.get(kind, 0.0) for kind in KINDS) for _ in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Milliseconds from one token to the next, and what they are made of.

    `late_ms` is waited for residuals whose direct link is longer than the way through gate_up, and for
    attentions of parallel blocks that take longer than the gate_up beside them. `ahead_ms` is what layers
    that start ahead take off the attention in `compute_ms`; below 0 where it costs more.
    """

    legs: int
    wire_ms: float
    compute_ms: float
    late_ms: float
    other_ms: float
    ahead_ms: float = 0.0

    @property
    def ms(self) -> float:
        """All of it."""
        return self.wire_ms + self.compute_ms + self.late_ms + self.other_ms - self.ahead_ms

    @property
    def tok_per_s(self) -> float:
        """Tokens per second of one session."""
        return 1e3 / self.ms if self.ms else float("inf")


def predict(plan: Plan, measured: Measured) -> Prediction:
    """What a token of this plan will take; RequestProblem for a station of which nothing was measured."""
    stations = [share.station for share in plan.shares]
    path = path_of(
        [1 + stations.index(home) for home in plan.homes],
        [group.stages for group in plan.groups],
        plan.topology,
    )
    seats = np.array([[0, *(measured.index(station) for station in stations)]])
    wire, compute, late = (float(part[0]) for part in times(path, measured, seats))
    return Prediction(
        legs=plan.legs_per_token,
        wire_ms=wire,
        compute_ms=compute,
        late_ms=late,
        other_ms=measured.other_ms,
        ahead_ms=_saved_ms(plan, measured, wire + compute + late),
    )


def _saved_ms(plan: Plan, measured: Measured, token_ms: float) -> float:
    """What layers that start ahead take off a token of so much; no station is done before all its runs."""
    if plan.ahead is None:
        return 0.0
    saved = _at_the_end_ms(replace(plan, ahead=None), measured) - _at_the_end_ms(plan, measured)
    return min(saved, token_ms - max(_busy_ms(share, plan.ahead, measured) for share in plan.shares))


def _busy_ms(share: Share, ahead: Ahead, measured: Measured) -> float:
    """What a station runs for a token: its stages, and attentions once more whose keys are made anew."""
    again = ahead.layers if ahead.early.kv == "canonical" else ()
    return sum(
        measured.run_ms(share.station, stage.kind)
        * (1 + (stage.kind == "attention" and stage.layer in again))
        for stage in share.stages
    )


def _at_the_end_ms(plan: Plan, measured: Measured) -> float:
    """When the last down of thirds is done with a token whose first attention begins at 0.

    An attention that starts ahead runs on its seed as soon as its station may, and leaves something when its
    input is there, too. Where the attention before it lies on the same station and was ahead as well, that is
    run once more for its keys meanwhile; what has begun is not broken off.
    """
    ahead, homes = plan.ahead, plan.homes
    layers, early = (ahead.layers, ahead.early) if ahead else ((), Early())
    left_ms: list[float] = []  # by every group
    free_ms: dict[str, float] = {}

    def came_ms(source: int, target: int) -> float:
        return left_ms[source] + measured.way_ms(homes[source], homes[target], plan.topology)

    for n in range(0, len(homes), 3):
        station, x_ms = homes[n], came_ms(n - 1, n) if n else 0.0
        run_ms = measured.run_ms(station, "attention")
        if n // 3 in layers:
            seed_ms = came_ms(n - (3 if early.seed == "x+attn" else 4), n)
            done_ms = max(seed_ms, free_ms.get(station, 0.0)) + run_ms
            rewrites = early.kv == "canonical" and n // 3 - 1 in layers and homes[n - 3] == station
            r_ms = max(x_ms, done_ms + rewrites * run_ms) if x_ms >= done_ms else done_ms
        else:
            done_ms = r_ms = max(x_ms, free_ms.get(station, 0.0)) + run_ms
        free_ms[station] = done_ms
        left_ms.append(r_ms)
        left_ms.append(came_ms(n, n + 1) + measured.run_ms(homes[n + 1], "gate_up"))
        left_ms.append(max(came_ms(n + 1, n + 2), came_ms(n, n + 2)) + measured.run_ms(homes[n + 2], "down"))
    return left_ms[-1]


@dataclass(frozen=True, slots=True)
class Path:
    """What a token meets once round, and how often; seats stand for stations, seat 0 for the coordinator.

    `hops` from seat to seat; `work` of a kind at a seat; `past` where a residual leaves attention (first) for
    down (last) directly while gate_up (between) runs; `beside` where what one seat leaves goes to attention
    and to gate_up at once, and what both leave meets at the last.
    """

    hops: Mapping[tuple[int, int], int]
    work: Mapping[tuple[int, Kind], int]
    past: Mapping[tuple[int, int, int], int]
    beside: Mapping[tuple[int, int, int, int], int]


def path_of(seats: Sequence[int], groups: Sequence[Sequence[StageCost]], topology: str) -> Path:
    """The path of a token that visits `groups` at `seats`."""
    beside = {n for n, stages in enumerate(groups) if runs_beside(n, stages)}
    passed = [n for n in range(len(groups)) if n not in beside]
    work = Counter((seats[n], stage.kind) for n in passed for stage in groups[n])
    if topology != "ring":
        work.update([(0, "embed"), (0, "head")])
    on_path = [seats[n] for n in passed]
    if topology == "star":  # a residual goes through the coordinator too, but need not wait for gate_up there
        hops = Counter(hop for seat in on_path for hop in ((0, seat), (seat, 0)))
        return Path(hops, work, {}, Counter((0, seats[n], seats[n + 1], 0) for n in beside))
    around = [on_path[-1], *on_path] if topology == "ring" else [0, *on_path, 0]
    past = Counter(
        (seats[n - 1], seats[n], seats[n + 1])
        for n, stages in enumerate(groups)
        if [stage.kind for stage in stages] == ["gate_up"] and n - 1 not in beside
    )
    meetings = Counter((seats[n - 1], seats[n], seats[n + 1], seats[n + 2]) for n in beside)
    return Path(Counter(pairwise(around)), work, past, meetings)


def times(path: Path, measured: Measured, seats: Ints) -> tuple[Floats, Floats, Floats]:
    """Wire, compute and late milliseconds for each row of `seats` [orders, seats], indices of measured names.

    A token passes one group after the other, so its path is a sum; only what goes past gate_up, a residual
    or the attention of a parallel block, can be later than what passes it, and then by the difference.
    """
    links, stages = np.array(measured.one_way_ms), np.array(measured.stage_ms)

    def leg(a: int, b: int) -> Floats:
        found: Floats = links[seats[:, a], seats[:, b]]
        return found

    def run(seat: int, kind: Kind) -> Floats:
        found: Floats = stages[seats[:, seat], KINDS.index(kind)]
        return found

    nothing = np.zeros(len(seats))
    wire = sum((count * leg(*hop) for hop, count in path.hops.items()), nothing)
    compute = sum((count * run(*job) for job, count in path.work.items()), nothing)
    late = sum(
        (
            count * np.maximum(0.0, leg(a, d) - (leg(a, g) + run(g, "gate_up") + leg(g, d)))
            for (a, g, d), count in path.past.items()
        ),
        nothing,
    )
    for (b, a, g, d), count in path.beside.items():
        attended = leg(b, a) + run(a, "attention") + leg(a, d)
        late += count * np.maximum(0.0, attended - (leg(b, g) + run(g, "gate_up") + leg(g, d)))
    return wire, compute, late
