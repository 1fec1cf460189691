"""Waiting for words of a peer that pings, of one that is silent, and of one that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.mesh.peers import TIME_S, call, station
from trisplit.errors import PeerProblem
from trisplit.mesh.link import Link
from trisplit.mesh.listening import next_word
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
