"""Rows that are late when a station is lost: they harm none of those that live on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.flows.test_failover import CONT, PATIENCE_S, STOP, TOKENS, Fleet, answered, fleet, opened, truth
from tests.flows.test_return import returned
from tests.flows.test_token_trip import HOW, asked
from trisplit.errors import Problem
from trisplit.wire.messages import Ask, Facts

Tiny = Callable[[str], Path]


async def ran(here: Fleet, name: str) -> int:
    """How many rows have passed a station."""
    members = here.mesh.members
    return (await members.peers.ask(members.peers[name], Ask(), Facts, PATIENCE_S)).frames


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await asyncio.sleep(0.01)


async def thawed(here: Fleet, name: str, frames: int) -> None:
    """Lets a station go on, and waits until it has run what waited for it and told us."""
    here.kill(name, signal.SIGCONT)
    async with asyncio.timeout(PATIENCE_S):
        while await ran(here, name) == frames:
            await asyncio.sleep(0.01)
    await ran(here, name)


def test_a_taker_that_still_loads_is_not_asked_for_rows(tiny: Tiny) -> None:
    """In a star rows for the lost group come past the coordinator while nobody holds it."""
    expected = truth(tiny("llama"))[0]

    async def story() -> None:
        async with fleet(tiny("llama"), "layers", "star") as here:
            stream, answer = await here.mesh.open(), asked(HOW[0])
            async with aclosing(here.mesh.generate(stream, answer)) as pieces:
                for _ in range(3):
                    await anext(pieces)
                frames = await ran(here, "s1")
                here.kill("s1", STOP)
                here.kill("s4", STOP)
                going = asyncio.ensure_future(anext(pieces))
                await asyncio.sleep(0)  # the row is on its way to s1
                here.kill("s2")
                await until(lambda: here.mesh.plan.homes[1] == "s4")
                await thawed(here, "s1", frames)
                here.kill("s4", CONT)
                await going
                async for _ in pieces:
                    pass
            assert answer.token_ids == expected
            assert [(done.lost, done.takers) for done in here.mesh.recoveries] == [(("s2",), ("s4",))]

    asyncio.run(story())


def test_rows_for_a_group_that_nobody_takes_cost_no_other_station(tiny: Tiny) -> None:
    async def story() -> None:
        limits = dict.fromkeys(("s1", "s2", "s3"), 0)
        async with fleet(tiny("llama"), "layers", "star", spares=(), limits=limits) as here:
            stream, answer = await here.mesh.open(), asked(HOW[0])
            pieces = here.mesh.generate(stream, answer)
            for _ in range(3):
                await anext(pieces)
            frames = await ran(here, "s1")
            here.kill("s1", STOP)
            going = asyncio.ensure_future(anext(pieces))
            await asyncio.sleep(0)
            here.kill("s2")
            with pytest.raises(Problem, match="station s2 is lost"):
                await going
            here.kill("s1", CONT)
            async with here.again("s2"):
                async with asyncio.timeout(PATIENCE_S):
                    await here.mesh.close(await opened(here))
                assert await ran(here, "s1") > frames
                assert await answered(here, 0) == truth(tiny("llama"))[0]
            assert here.mesh.last_loss is not None
            assert here.mesh.last_loss.name == "s2"

    asyncio.run(story())


def test_a_station_that_was_given_up_and_thaws_is_not_listened_to(tiny: Tiny) -> None:
    """Its rows are of long ago: who ran them would lose its place. It is let go, and comes back."""
    expected = truth(tiny("llama"))[0]

    async def story() -> None:
        async with fleet(tiny("llama"), "layers", "star", silence_s=1.0) as here:
            stream, answer = await here.mesh.open(), asked(HOW[0])
            async with aclosing(here.mesh.generate(stream, answer)) as pieces:
                for _ in range(3):
                    await anext(pieces)
                here.kill("s2", STOP)
                for _ in range(4):
                    await anext(pieces)
                here.kill("s2", CONT)
                await returned(here, "s2")
                async for _ in pieces:
                    pass
            assert len(answer.token_ids) == TOKENS
            assert answer.token_ids == expected
            assert [(done.lost, done.takers) for done in here.mesh.recoveries] == [(("s2",), ("s4",))]

    asyncio.run(story())


def test_a_sequence_may_be_closed_while_its_rows_are_under_way(tiny: Tiny) -> None:
    """In a star they come to the coordinator after it has said Close to the station they are for."""

    async def story() -> None:
        async with fleet(tiny("llama"), "layers", "star") as here:
            stream, answer = await here.mesh.open(), asked(HOW[0])
            pieces = here.mesh.generate(stream, answer)
            for _ in range(3):
                await anext(pieces)
            frames = await ran(here, "s1")
            here.kill("s1", STOP)
            going = asyncio.ensure_future(anext(pieces))
            await asyncio.sleep(0)
            going.cancel()
            closing = asyncio.ensure_future(here.mesh.close(stream))
            await asyncio.sleep(0)
            await thawed(here, "s1", frames)
            await closing
            assert await answered(here, 1) == truth(tiny("llama"))[1]
            assert here.mesh.recoveries == []

    asyncio.run(story())


def test_a_ring_without_its_tail_says_so(tiny: Tiny) -> None:
    async def story() -> None:
        limits = dict.fromkeys(("s1", "s2", "s3"), 0)
        async with fleet(tiny("llama"), "layers", "ring", spares=(), limits=limits) as here:
            stream = await here.mesh.open()
            here.kill("s3", STOP)
            going = asyncio.ensure_future(anext(here.mesh.generate(stream, asked(HOW[0]))))
            await asyncio.sleep(0)
            here.kill("s3")
            with pytest.raises(Problem, match="station s3 is lost, and"):
                await going

    asyncio.run(story())


def test_two_are_lost_without_room_and_both_come_back(tiny: Tiny) -> None:
    async def story() -> None:
        limits = dict.fromkeys(("s1", "s2", "s3"), 0)
        async with fleet(tiny("llama"), "layers", "chain", spares=(), limits=limits) as here:
            here.kill("s2")
            await until(lambda: here.mesh.last_loss is not None)
            here.kill("s3")
            await until(lambda: here.mesh.last_loss is not None and here.mesh.last_loss.name == "s3")
            with pytest.raises(Problem, match=r"station s\d is lost, and"):
                await here.mesh.open()
            async with here.again("s2"), here.again("s3"):
                async with asyncio.timeout(PATIENCE_S):
                    await here.mesh.close(await opened(here))
                assert await answered(here, 0) == truth(tiny("llama"))[0]

    asyncio.run(story())
