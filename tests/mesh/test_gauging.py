"""One station that pings another: for as long as it is asked to, and no longer than it may."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.mesh.peers import COORDINATOR, SECRET, TIME_S, UPSTREAM, station
from trisplit.errors import PeerProblem, Problem, RequestProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.gauging import UNCOUNTED, gauge
from trisplit.mesh.link import Link
from trisplit.mesh.station import Station
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.wire.gauging import Gauge, Gauged
from trisplit.wire.losses import Refused
from trisplit.wire.messages import Ask, Facts, Load


@asynccontextmanager
async def waiting(name: str, trust: Trust = NOBODY) -> AsyncIterator[str]:
    """A real station in this process; yields its address."""
    async with station(Station(name, trust).accept, trust=trust) as server:
        yield f"127.0.0.1:{server.port}"


@asynccontextmanager
async def mute() -> AsyncIterator[str]:
    """A port where whoever calls is taken, and hears nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


async def asked(address: str, order: Gauge, trust: Trust = NOBODY) -> Gauged | Refused:
    """What a station answers to that order."""
    link = await connect(address, hello=COORDINATOR, deadline_s=TIME_S, trust=trust)
    try:
        link.send(order)
        said = await link.receive(TIME_S)
        assert isinstance(said, (Gauged, Refused)), said
        link.send(Ask())  # it goes on as before
        await link.expect(Facts, TIME_S)
        return said
    finally:
        await link.close()


def test_a_station_measures_its_way_to_another() -> None:
    async def story() -> None:
        async with waiting("s1") as one, waiting("s2") as two:
            for rounds in (1, 30):
                said = await asked(one, Gauge(two, rounds, 5000))
                assert isinstance(said, Gauged), said
                assert 0 < said.best_ms <= said.p50_ms
                assert said.rounds == rounds

    asyncio.run(story())


def test_it_pings_as_often_as_it_is_asked_to_and_hangs_up() -> None:
    heard: list[int] = []

    async def count(link: Link) -> None:
        await link.wait_closed()
        heard.append(link.session.heard)

    async def story() -> None:
        async with station(count) as server, waiting("s1") as one:
            await asked(one, Gauge(f"127.0.0.1:{server.port}", 7, 5000))
            async with asyncio.timeout(TIME_S):
                while not heard:
                    await asyncio.sleep(0)

    asyncio.run(story())
    assert heard == [1 + UNCOUNTED + 7 + 1]  # and a Hello and a Bye


def test_why_there_is_no_way_is_said_and_all_else_goes_on() -> None:
    async def story() -> None:
        async with waiting("s1") as one, waiting("s2", Trust(secret=SECRET)) as guarded, mute() as silent:
            for address, why in (
                (nobody(), "cannot be reached"),
                ("nonsense", "is not an address"),
                (guarded, "secret"),
                (silent, "did not answer in 0.2 s"),
            ):
                said = await asked(one, Gauge(address, 3, 200))
                assert isinstance(said, Refused), said
                assert why in said.what, said
                assert said.fix

    asyncio.run(story())


async def hang_up(link: Link) -> None:
    await link.close("no more")


async def stop_reading(link: Link) -> None:
    link.transport.pause_reading()
    await link.wait_closed()


@pytest.mark.parametrize(
    ("accept", "why"), [(hang_up, "no more"), (stop_reading, "did not answer 3 pings within 0.2 s")]
)
def test_one_that_stops_in_the_middle(accept: Callable[[Link], Awaitable[None]], why: str) -> None:
    async def story() -> Problem:
        async with station(accept) as server:
            with pytest.raises(PeerProblem) as caught:
                await gauge(Gauge(f"127.0.0.1:{server.port}", 3, 200), UPSTREAM, NOBODY)
            return caught.value

    assert why in asyncio.run(story()).what


async def is_free(address: str) -> bool:
    """Whether a station works for nobody, and so answers."""
    link = await connect(address, hello=COORDINATOR, deadline_s=TIME_S)
    link.send(Ask())
    said = await link.receive(TIME_S)
    await link.close()
    return isinstance(said, Facts)


def test_whose_coordinator_leaves_is_free_again() -> None:
    """It waits for one that is mute, and would for a minute."""

    async def story() -> None:
        async with waiting("s1") as one, mute() as silent:
            link = await connect(one, hello=COORDINATOR, deadline_s=TIME_S)
            link.send(Gauge(silent, 1, 60_000))
            await asyncio.sleep(0.05)
            await link.close()
            async with asyncio.timeout(TIME_S):
                while not await is_free(one):
                    await asyncio.sleep(0.01)

    asyncio.run(story())


def test_only_a_station_that_holds_nothing_is_asked() -> None:
    """What is out of turn is told by the wire; here, that the order to load after it is."""

    async def story() -> None:
        async with waiting("s1") as one, waiting("s2") as two:
            link = await connect(one, hello=COORDINATOR, deadline_s=TIME_S)
            link.send(Gauge(two, 1, 5000))
            await link.expect(Gauged, TIME_S)
            link.send(Load(b"{}", None, False, "f32", 1, 8, 1, (), True, False))
            with pytest.raises((PeerProblem, RequestProblem)):
                await link.expect(Gauged, TIME_S)
            await link.close()

    asyncio.run(story())


def test_who_has_measured_and_left_is_not_kept() -> None:
    async def story() -> None:
        target = Station("s2")
        async with waiting("s1") as one, station(target.accept) as server:
            await asked(one, Gauge(f"127.0.0.1:{server.port}", 1, 5000))
            async with asyncio.timeout(TIME_S):
                while target._upstream:
                    await asyncio.sleep(0.01)

    asyncio.run(story())
