"""What each stage takes on each station: a model is run there with every stage a group of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from statistics import median
from typing import Any, Final

from msgspec import structs

from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.plan import Group, Plan, Share
from trisplit.mesh.profile import Ends, Profile, Stages, Station
from trisplit.models.config import LAYER_KINDS
from trisplit.table import Table

PROMPT: Final = tuple(range(1, 17))  # any ids: what they mean takes no time
WARM: Final = 4
TOKENS: Final = 24
LENGTH: Final = len(PROMPT) + WARM + TOKENS
ENDS_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Medians in milliseconds: of attention, gate_up and down on each station, of embed and head here."""

    stage_ms: Mapping[str, tuple[float, float, float]]
    ends_ms: float

    def known_in(self, profile: Profile) -> Profile:
        """A profile with these times: those of the quickest station, and how much slower others are."""
        quickest = min(self.stage_ms.values(), key=sum)
        slower = {
            name: min(max(round(sum(times) / sum(quickest), 3), 0.01), 100.0)
            for name, times in self.stage_ms.items()
        }
        there = {station.name: station for station in profile.station}
        stations = [
            structs.replace(there.get(name) or Station(name), slower=factor)
            for name, factor in slower.items()
        ]
        others = [station for station in profile.station if station.name not in slower]
        rounded = (round(quickest[0], 4), round(quickest[1], 4), round(quickest[2], 4))
        return structs.replace(
            profile,
            stages=Stages(rounded),
            ends=Ends(round(self.ends_ms, 4)),
            station=(*stations, *others),
        )

    def table(self) -> Table:
        """One row for each station."""
        rows = [(name, *times) for name, times in self.stage_ms.items()]
        return Table(("station", *LAYER_KINDS), tuple(rows), title="stages in ms, medians")


def apart(plan: Plan) -> Plan:
    """A plan of whole layers with every stage a group of its own, on the same stations."""
    number = count()
    shares = tuple(
        Share(share.station, tuple(Group(next(number), (stage,)) for stage in share.stages))
        for share in plan.shares
    )
    return replace(plan, cut="thirds", shares=shares)


async def stage_times(mesh: Coordinator) -> StageTimes:
    """Runs some tokens through a mesh that is loaded by a plan that is `apart`, and asks who took how long.

    The coordinator keeps both ends.
    """
    assert mesh.ends is not None
    stream = await mesh.open()
    await mesh.forward(stream, PROMPT, 0)
    for position in range(len(PROMPT), LENGTH):
        await mesh.forward(stream, PROMPT[:1], position, decoded=True)
    visits = await mesh.members.visits(stream.number)
    row = stream.last()
    await mesh.close(stream)
    kinds = [group.stages[0].kind for group in mesh.plan.groups]
    first, stage_ms = len(PROMPT) + WARM, {}
    for name, those in visits.items():
        times: dict[str, list[float]] = {}
        for visit in those:
            if visit.position >= first:
                times.setdefault(kinds[visit.group], []).append(visit.ended_ms - visit.began_ms)
        if times:
            attention, gate_up, down = (median(times[kind]) for kind in LAYER_KINDS)
            stage_ms[name] = attention, gate_up, down
    ends = mesh.ends
    ends_ms = _median_ms(lambda: (ends.embed(PROMPT[:1]), ends.logits([row])))
    return StageTimes(stage_ms=stage_ms, ends_ms=ends_ms)


def _median_ms(work: Callable[[], Any]) -> float:
    times_ms = []
    for _ in range(ENDS_ROUNDS):
        began_s = time.perf_counter()
        work()
        times_ms.append(1e3 * (time.perf_counter() - began_s))
    return median(times_ms)
