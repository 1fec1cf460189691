"""Waiting for words of a peer that pings, of one that is silent, and of one that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.mesh.peers import TIME_S, call, station
from trisplit.errors import PeerProblem
from trisplit.mesh.link import Link
from trisplit.mesh.listening import MOST_MISSED, Pulse, next_word
from trisplit.mesh.server import Server
from trisplit.wire.greeting import VERSION, Hello
from trisplit.wire.messages import Ask, Ping, Pong


def heard_by_a_station(caller: Callable[[Link], Awaitable[None]]) -> object:
    """What a station that allows 0.1 s of silence makes of a coordinator: its word, or why it was left."""

    async def story() -> object:
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        async def accept(link: Link) -> None:
            try:
                result.set_result(await next_word(link, 0.1))
            except PeerProblem as problem:
                result.set_result(problem)

        async with station(accept) as server:
            link = await call(server)
            await caller(link)
            async with asyncio.timeout(TIME_S):
                said = await result
            await link.close()
            return said

    return asyncio.run(story())


def test_one_that_pings_may_take_its_time() -> None:
    async def caller(link: Link) -> None:
        for number in range(8):
            await asyncio.sleep(0.05)
            link.send(Ping(number))
            await link.expect(Pong, TIME_S)
        link.send(Ask())

    assert heard_by_a_station(caller) == Ask()


def test_one_that_is_silent_is_left() -> None:
    async def caller(link: Link) -> None:
        link.send(Ping(1))  # once is not for ever
        await link.expect(Pong, TIME_S)

    problem = heard_by_a_station(caller)
    assert isinstance(problem, PeerProblem)
    assert "coordinator desk" in problem.what
    assert "said nothing for 0.1 s" in problem.what


def test_one_that_hangs_up_need_not_be_waited_for() -> None:
    async def caller(link: Link) -> None:
        link.transport.abort()

    problem = heard_by_a_station(caller)
    assert isinstance(problem, PeerProblem)
    assert "hung up" in problem.what


# --- a peer that has nothing to say ---------------------------------------------------------------


@asynccontextmanager
async def felt(every_s: float) -> AsyncIterator[tuple[Link, Link, asyncio.Task[None]]]:
    """A client, the other end of its link, and what returns when its pulse stops there."""
    ends: list[Link] = []

    async def accept(link: Link) -> None:
        ends.append(link)
        await link.wait_closed()

    async with station(accept) as server:
        link = await called(server)
        while not ends:
            await asyncio.sleep(0)
        stops = asyncio.create_task(Pulse(ends[0]).stops(every_s))
        try:
            yield link, ends[0], stops
        finally:
            stops.cancel()
            await link.close()


async def called(server: Server) -> Link:
    return await call(server, Hello(VERSION, "", "client", "client"))


def test_a_pulse_is_felt_for_as_long_as_pings_are_answered() -> None:
    async def story() -> None:
        async with felt(0.02) as (_, there, stops):
            heard = there.session.heard
            while there.session.heard < heard + 4 * MOST_MISSED:
                await asyncio.sleep(0.01)
                assert not stops.done()
            assert there.is_open

    asyncio.run(story())


def test_the_pulse_of_one_that_reads_nothing_stops_though_its_socket_is_open() -> None:
    async def story() -> None:
        async with felt(0.02) as (link, there, stops), asyncio.timeout(TIME_S):
            link.transport.pause_reading()
            await stops
            assert there.is_open

    asyncio.run(story())


def test_the_pulse_of_one_that_hangs_up_stops_at_once() -> None:
    async def story() -> None:
        async with felt(1000.0) as (link, there, stops), asyncio.timeout(TIME_S):
            link.transport.abort()
            await stops
            assert not there.is_open

    asyncio.run(story())


def test_a_ping_whose_answer_is_still_to_come_is_not_sent_twice() -> None:
    """As when a question was answered meanwhile, and the next is asked."""

    async def story() -> None:
        async with felt(1000.0) as (link, there, stops):
            stops.cancel()
            pulse = Pulse(there)
            link.transport.pause_reading()
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await pulse.stops(1000.0)
            link.transport.resume_reading()
            pulse.hear(await there.expect(Pong, TIME_S))
            heard = there.session.heard
            stops = asyncio.create_task(pulse.stops(0.01))
            while there.session.heard < heard + 2:
                await asyncio.sleep(0.01)
            stops.cancel()

    asyncio.run(story())
