"""Links measured by the stations themselves: what is far is found far, and links that are none are told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mesh.peers import COORDINATOR as DESK
from tests.mesh.peers import SECRET, TIME_S
from tests.mesh.stations import names, rooms, stages
from tests.mesh.test_gauging import is_free, mute, nobody, waiting
from trisplit.bench.delays import Delay
from trisplit.bench.relay import RelayLink, relays
from trisplit.errors import PeerProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.choose import choose
from trisplit.mesh.distances import Distances, Meter, _apart
from trisplit.mesh.predict import COORDINATOR
from trisplit.mesh.profile import Profile
from trisplit.mesh.trust import NOBODY, Trust

FAR_MS = 25.0


def distances(addresses: list[str], free_bytes: list[int | None]) -> Distances:
    n = len(addresses) + 1
    rows = tuple(tuple(float(10 * a + b) * (a != b) for b in range(n)) for a in range(n))
    return Distances(
        addresses=dict(zip(names(n - 1), addresses)),
        p50_ms=rows,
        best_ms=rows,
        rounds=5,
        free_bytes=tuple(free_bytes),
    )


@given(st.integers(1, 30))
def test_every_link_is_measured_once_and_nobody_by_two_at_once(n: int) -> None:
    who = (COORDINATOR, *names(n))
    turns = [*_apart(who)]
    assert Counter(pair for pairs in turns for pair in pairs) == Counter(
        (caller, station) for caller in who for station in who[1:] if caller != station
    )
    for pairs in turns:
        assert len({caller for caller, _ in pairs}) == len({station for _, station in pairs}) == len(pairs)


def test_one_way_is_half_a_round_trip() -> None:
    seen = distances(["a:1", "b:1"], [None, None])
    assert seen.links.one_way_ms == ((0.0, 0.5, 1.0), (5.0, 0.0, 6.0), (10.0, 10.5, 0.0))


def test_stations_of_one_host_share_what_it_has_to_spare() -> None:
    addresses = ["attic:1", "cellar:1", "wss://attic:2", "[::1]:1"]
    assert distances(addresses, [1000, 1000, 900, None]).limits == [450, 900, 405, None]


def test_the_table_shows_who_is_where() -> None:
    text = str(distances(["attic:1", "cellar:1"], [2_000_000, None]).table())
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["from", "us", "s0", "s1", "address", "to", "spare"],
        ["-----------", "--", "--", "--", "--------", "--------"],
        ["coordinator", "-", "1", "2", "-", "-"],
        ["s0", "10", "-", "12", "attic:1", "2.0", "MB"],
        ["s1", "20", "21", "-", "cellar:1", "-"],
    ]


# --- real stations --------------------------------------------------------------------------------


async def measured(meter: Meter) -> Distances:
    done = [n async for n in meter.run()]
    assert done[-1] == meter.pairs
    return meter.distances()


def is_far(caller: str, station: str) -> bool:
    """s0 and s2 are near each other, s1 and s3 too, and we to all."""
    return caller != COORDINATOR and (int(caller[1:]) + int(station[1:])) % 2 == 1


def test_stations_that_are_far_are_found_far_and_kept_apart(stations: dict[str, str]) -> None:
    """In a ring of stations as they are named all legs would be long, and two need be."""
    addresses = {name: stations[f"s{i + 1}"] for i, name in enumerate(names(4))}
    delay = Delay(one_way_ms=FAR_MS)
    far = [
        RelayLink(caller=a, station=b, address=addresses[b], delay=delay)
        for a in addresses
        for b in addresses
        if is_far(a, b)
    ]

    async def story() -> Distances:
        async with relays(far) as slow:
            between = {caller: addresses | slow.addresses_for[caller] for caller in addresses}
            return await measured(Meter(addresses, NOBODY, rounds=5, between=between))

    seen = asyncio.run(story())
    for a, caller in enumerate(seen.names):
        for b, station in enumerate(seen.names):
            assert 0 <= seen.best_ms[a][b] <= seen.p50_ms[a][b]
            if a != b and b:
                assert (seen.best_ms[a][b] >= 2 * FAR_MS) == is_far(caller, station)
    assert seen.p50_ms[2][0] == seen.p50_ms[0][2]
    assert all(free is not None and free > 0 for free in seen.free_bytes)
    told = Profile(links=seen.links).measured(names(4), 4)
    best = choose(stages(4), rooms(4), told, cuts=["layers"], topologies=["ring"]).best
    sides = [int(home[1:]) % 2 for home in best.plan.homes]
    assert sum(a != b for a, b in zip(sides, sides[1:] + sides[:1])) == 2


@dataclass
class Trial:
    """Stations s0, s1, … of this process, and where they are."""

    addresses: dict[str, str]

    async def refused(self, trust: Trust = NOBODY, **how: Any) -> str:
        """Why their links cannot be measured."""
        with pytest.raises(PeerProblem) as caught:
            await measured(Meter(self.addresses, trust, rounds=2, **how))
        assert caught.value.fix
        return caught.value.what


def among(n: int, story: Callable[[Trial], Awaitable[None]], trust: Trust = NOBODY) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            places = [await stack.enter_async_context(waiting(name, trust)) for name in names(n)]
            await story(Trial(dict(zip(names(n), places))))

    asyncio.run(run())


def test_a_way_that_is_none_is_told_with_both_its_ends() -> None:
    async def story(here: Trial) -> None:
        before, gone = here.addresses, nobody()
        between = {"s0": before | {"s1": gone}}
        what = await here.refused(between=between)
        assert what.startswith(f"station s0 at {before['s0']} has no link to station s1 at {gone}: ")
        assert what.endswith("cannot be reached: Connection refused")
        assert all(await asyncio.gather(*(is_free(place) for place in before.values())))
        here.addresses = before | {"s2": gone}
        assert (await here.refused()).startswith(f"the coordinator has no link to station s2 at {gone}: ")

    among(3, story)


def test_one_that_never_answers_is_told_at_the_deadline() -> None:
    async def story(here: Trial) -> None:
        async with mute() as silent:
            between = {"s1": here.addresses | {"s0": silent}}
            what = await here.refused(between=between, deadline_s=0.3)
            assert what.startswith(
                f"station s1 at {here.addresses['s1']} has no link to station s0 at {silent}"
            )
            assert "did not answer in 0.3 s" in what

    among(2, story)


def test_a_wrong_secret_is_told() -> None:
    async def story(here: Trial) -> None:
        for trust in (NOBODY, Trust(secret=SECRET + b"!")):
            what = await here.refused(trust)
            assert what.startswith(f"the coordinator has no link to station s0 at {here.addresses['s0']}: ")
            assert "secret" in what
        assert (await measured(Meter(here.addresses, Trust(secret=SECRET), rounds=1))).rounds == 1

    among(2, story, Trust(secret=SECRET))


def test_stations_of_two_secrets_have_no_link() -> None:
    """One that we may call, by an address where another answers that has another secret."""

    async def story(here: Trial) -> None:
        async with waiting("s9", Trust(secret=SECRET + b"!")) as stranger:
            between = {"s0": here.addresses | {"s1": stranger}}
            what = await here.refused(Trust(secret=SECRET), between=between)
            assert f"station s0 at {here.addresses['s0']} has no link to station s1 at {stranger}: " in what
            assert "secret" in what

    among(2, story, Trust(secret=SECRET))


def test_one_that_works_for_another_is_told() -> None:
    async def story(here: Trial) -> None:
        other = await connect(here.addresses["s1"], hello=DESK, deadline_s=TIME_S)
        what = await here.refused()
        assert "station s1" in what
        assert "already works for another coordinator" in what
        await other.close()

    among(2, story)
