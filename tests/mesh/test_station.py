"""A station while it loads: what else is said meanwhile is answered, and what is to be loaded waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tests.mesh.peers import TIME_S, call, end_of, station
from tests.wire.words import EXAMPLES
from trisplit.errors import RequestProblem
from trisplit.mesh.fetching import Supplier
from trisplit.mesh.holding import Held
from trisplit.mesh.link import Link
from trisplit.mesh.loading import Tell
from trisplit.mesh.station import MOST_LATER, Station
from trisplit.wire.losses import Refused, Survey, Surveyed
from trisplit.wire.messages import (
    Adopt,
    Ask,
    Facts,
    FileSpec,
    Join,
    Joined,
    Load,
    Loaded,
    Loading,
    Need,
    Offer,
    Open,
    Opened,
    Ping,
    Pong,
    Recall,
    Recalled,
    StageSpec,
)
from trisplit.wire.session import Said

STAGE = StageSpec(0, "down")
OFFER = Offer(STAGE, (FileSpec(bytes(32), 1),))
JOIN = Join((), 9, "s1", (), (), False, False, ())


def load(context: int) -> Load:
    """An order that is known by its context."""
    example = EXAMPLES["Load"]
    assert isinstance(example, Load)
    return msgspec.structs.replace(example, context=context)


class Builder:
    """Builds nothing: needs one stage, and is done when that is offered."""

    def __init__(self) -> None:
        self.under_way = self.most_at_once = 0
        self.begun: list[int] = []

    async def __call__(self, said: Load, supplier: Supplier, tell: Tell) -> Held:
        self.begun.append(said.context)
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            tell(Need((STAGE,)))
            await supplier.wait(supplier.expect(Offer), TIME_S)
            tell(Loading(1, 1, f"{said.context}"))
            return Held({}, rows_equal=True, kv_bytes_per_token=said.context, sessions=1)
        finally:
            self.under_way -= 1


@asynccontextmanager
async def called() -> AsyncIterator[tuple[Link, Builder]]:
    """A coordinator's link to a station that builds so."""
    builder = Builder()
    async with station(Station("s1", build=builder).accept) as server:
        link = await call(server)
        try:
            yield link, builder
        finally:
            await link.close()


async def heard(link: Link, count: int) -> list[Said]:
    return [await link.receive(TIME_S) for _ in range(count)]


async def loaded(link: Link) -> None:
    """The first load, from the order to the way on."""
    link.send(load(1))
    await link.expect(Need, TIME_S)
    link.send(OFFER)
    assert [type(said) for said in await heard(link, 2)] == [Loading, Loaded]
    link.send(JOIN)
    await link.expect(Joined, TIME_S)


def test_a_station_that_loads_answers_what_may_be_asked_then() -> None:
    async def story() -> None:
        async with called() as (link, _):
            link.send(load(1))
            await link.expect(Need, TIME_S)
            for word in (Ping(7), Ask(), Survey(), Recall(3)):
                link.send(word)
            said = {type(one): one for one in await heard(link, 4)}
            assert said.keys() == {Pong, Facts, Surveyed, Recalled}
            assert (said[Pong], said[Surveyed], said[Recalled]) == (
                Pong(7),
                Surveyed((), 0),
                Recalled(3, ()),
            )
            link.send(OFFER)
            assert [type(one) for one in await heard(link, 2)] == [Loading, Loaded]

    asyncio.run(story())


def test_what_is_to_be_adopted_waits_for_what_is_loaded_just_now() -> None:
    """In the order it was asked for; streams go on meanwhile."""

    async def story() -> None:
        async with called() as (link, builder):
            await loaded(link)
            link.send(Adopt(load(2)))
            await link.expect(Need, TIME_S)
            for word in (Adopt(load(4)), JOIN, Adopt(load(8)), Ping(7), Open(1)):
                link.send(word)
            assert await heard(link, 2) == [Pong(7), Opened(1)]
            assert builder.begun == [1, 2]
            kv_bytes = []
            for number in (2, 4, 8):
                link.send(OFFER)
                loading, done = await heard(link, 2)
                assert isinstance(loading, Loading)
                assert isinstance(done, Loaded)
                assert loading.what == str(number)
                kv_bytes.append(done.kv_bytes_per_token)
                if number == 4:
                    await link.expect(Joined, TIME_S)
                if number < 8:
                    await link.expect(Need, TIME_S)
            assert kv_bytes == [3, 7, 15]
            assert (builder.begun, builder.most_at_once) == ([1, 2, 4, 8], 1)

    asyncio.run(story())


def test_all_anew_while_something_is_adopted_is_refused() -> None:
    """The wire's turns could not tell one answer from the other."""

    async def story() -> None:
        async with called() as (link, builder):
            await loaded(link)
            link.send(Adopt(load(2)))
            await link.expect(Need, TIME_S)
            link.send(load(4))
            assert "it said Load before its last order was carried out" in (await end_of(link)).what
            assert builder.begun == [1, 2]

    asyncio.run(story())


def test_no_more_waits_than_a_station_keeps() -> None:
    async def story() -> None:
        async with called() as (link, _):
            await loaded(link)
            link.send(Adopt(load(2)))
            await link.expect(Need, TIME_S)
            for _ in range(MOST_LATER + 1):
                link.send(JOIN)
            assert f"it said Join while {MOST_LATER} orders wait for a load" in (await end_of(link)).what

    asyncio.run(story())


def test_a_word_that_cannot_be_obeyed_during_a_load_ends_the_link() -> None:
    """Also while what has come is made into sessions, when nothing of the coordinator is waited for."""

    class Busy(Builder):
        async def __call__(self, said: Load, supplier: Supplier, tell: Tell) -> Held:
            held = await super().__call__(said, supplier, tell)
            if said.context == 2:
                await goes_on.wait()
            return held

    goes_on = asyncio.Event()

    async def story() -> None:
        async with station(Station("s1", build=Busy()).accept) as server:
            link = await call(server)
            await loaded(link)
            link.send(Open(1))
            await link.expect(Opened, TIME_S)
            link.send(Adopt(load(2)))
            await link.expect(Need, TIME_S)
            link.send(OFFER)
            await link.expect(Loading, TIME_S)
            for word in (Open(2), Ping(7)):
                link.send(word)
            await link.expect(Pong, TIME_S)
            goes_on.set()
            assert "stream 2 where there is room for 1" in (await end_of(link)).what

    asyncio.run(story())


def test_a_refusal_is_no_end_of_what_waits() -> None:
    class Full(Builder):
        async def __call__(self, said: Load, supplier: Supplier, tell: Tell) -> Held:
            held = await super().__call__(said, supplier, tell)
            if said.context == 2:
                raise RequestProblem("no room", fix="ask another")
            return held

    async def story() -> None:
        async with station(Station("s1", build=Full()).accept) as server:
            link = await call(server)
            await loaded(link)
            link.send(Adopt(load(2)))
            await link.expect(Need, TIME_S)
            link.send(Adopt(load(4)))
            link.send(OFFER)
            assert [type(one) for one in await heard(link, 3)] == [Loading, Refused, Need]
            link.send(OFFER)
            assert [type(one) for one in await heard(link, 2)] == [Loading, Loaded]
            await link.close()

    asyncio.run(story())
