"""Stages timed where they lie: each a group of its own, and what a profile makes of the times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.mesh.clocking import LENGTH, StageTimes, apart, stage_times
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.plan import Plan
from trisplit.mesh.profile import Ends, Links, Profile, Stages, Station
from trisplit.mesh.room import Room
from trisplit.models.ends import Ends as OurEnds
from trisplit.models.model import Model, open_model


def plan_of(model: Model, names: list[str]) -> Plan:
    rooms = [Room(name, None) for name in names]
    return apart(plan_model(model, rooms, cut="layers", topology="chain", dtype="f32", context=LENGTH))


def test_every_stage_is_a_group_of_its_own_and_stays_where_it_was(tiny: Callable[[str], Path]) -> None:
    plan = plan_of(open_model(tiny("llama")), ["s1", "s2", "s3"])
    assert [group.number for group in plan.groups] == [*range(12)]
    assert {len(group.stages) for group in plan.groups} == {1}
    assert [[group.stages[0].layer for group in share.groups] for share in plan.shares] == [
        sorted(3 * layers) for layers in ([0, 1], [2], [3])
    ]


@pytest.mark.parametrize("variant", ["llama", "neox"])
def test_stations_are_timed(variant: str, tiny: Callable[[str], Path], stations: dict[str, str]) -> None:
    model, names = open_model(tiny(variant)), ["s1", "s2"]
    ends = OurEnds(model.config, *model.files(model.ends, "f32"), threads=1)

    async def story() -> StageTimes:
        where = {name: stations[name] for name in names}
        async with Coordinator(model, ends, plan_of(model, names), where) as mesh:
            async for _ in mesh.load("f32", context=LENGTH, threads=1):
                pass
            return await stage_times(mesh)

    seen = asyncio.run(story())
    assert [*seen.stage_ms] == names
    assert all(0 < ms < 1000 for times in seen.stage_ms.values() for ms in times)
    assert 0 < seen.ends_ms < 1000
    assert [line.split()[0] for line in str(seen.table()).splitlines()] == [
        "stages",
        "station",
        "-------",
        *names,
    ]


def test_a_profile_has_the_quickest_and_how_much_slower_the_others_are() -> None:
    before = Profile(
        stages=Stages((9.0, 9.0, 9.0), hops_inside=True),
        links=Links(5.0),
        station=(Station("s2", address="b:1", memory_bytes=7), Station("s9", slower=2.0)),
    )
    seen = StageTimes(stage_ms={"s1": (1.0, 2.0, 1.0), "s2": (2.0, 3.0, 1.0)}, ends_ms=0.5)
    assert seen.known_in(before) == Profile(
        stages=Stages((1.0, 2.0, 1.0)),
        ends=Ends(0.5),
        links=Links(5.0),
        station=(
            Station("s1"),
            Station("s2", slower=1.5, address="b:1", memory_bytes=7),
            Station("s9", slower=2.0),
        ),
    )
