"""What a batched link sends: together what one turn of the event loop sends, in order, and never too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import picows
import pytest

from tests.mesh.peers import (
    COORDINATOR,
    TIME_S,
    UPSTREAM,
    WELCOME,
    Raw,
    address_of,
    call_and_open,
    raw_call,
    say,
    station,
)
from tests.wire.test_batch import heard, sent
from tests.wire.words import EXAMPLES, framed
from trisplit.errors import OwnProblem, PeerProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.link import Link
from trisplit.wire import frame, messages, packing
from trisplit.wire.batch import split
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import Hello
from trisplit.wire.messages import Bye, Facts, Fault, Joined, Pong


def row(position: int, n_bytes: int = 8) -> Activation:
    return Activation(1, position, 0, 0, 1, bytes(n_bytes))


class Listener(Raw):
    """A station that welcomes, and keeps the messages it hears afterwards as they come."""

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        super().on_ws_frame(transport, frame)
        if self.heard == [framed(UPSTREAM, 0)]:
            self.heard.clear()
            say(transport, framed(WELCOME, 0))


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Link, Listener]]:
    """A station's link to a listener, and what that hears of it until both are closed."""
    listeners: list[Listener] = []

    def answer(_: picows.WSUpgradeRequest) -> Listener:
        listeners.append(Listener())
        return listeners[-1]

    server = await picows.ws_create_server(answer, "127.0.0.1", 0)
    link = await connect(address_of(server), hello=UPSTREAM, deadline_s=TIME_S)
    link.batched = True
    try:
        yield link, listeners[0]
    finally:
        await link.close()
        server.close()


async def welcomed(port: int, hello: Hello) -> tuple[picows.WSTransport, Raw]:
    """A caller that has said Hello and heard Welcome."""
    transport, raw = await raw_call(port)
    say(transport, framed(hello, 0))
    async with asyncio.timeout(TIME_S):
        while not raw.heard:
            await asyncio.sleep(0.001)
    return transport, raw


def positions(message: bytes) -> list[int]:
    """Of the rows in a message, in order."""
    return [said.position for said in map(body, split(message)) if isinstance(said, Activation)]


def body(data: bytes | memoryview) -> object:
    return frame.decode(data)[1]


async def closed(listener: Listener) -> Sequence[bytes]:
    await asyncio.wait_for(listener.closed, TIME_S)
    return listener.heard


def test_what_one_turn_sends_leaves_as_one_message() -> None:
    async def dialogue() -> None:
        async with listening() as (link, listener):
            for position in range(3):
                link.send(row(position))
            await asyncio.sleep(0)
            link.send(row(3))
            await asyncio.sleep(0)
            for position in range(4, 24):
                link.send(row(position))
            await link.close()
            together = [positions(message) for message in await closed(listener)]
            assert together == [[0, 1, 2], [3], [*range(4, 20)], [*range(20, 24)], []]
            assert len(listener.heard[1]) == 10 + 17 + 8

    asyncio.run(dialogue())


def test_off_by_default_and_in_order_when_switched() -> None:
    async def dialogue() -> None:
        async with listening() as (link, listener):
            link.send(row(0))
            link.send(row(1))
            link.batched = False
            link.send(row(2))
            link.send(row(3))
            await link.close()
            assert [positions(message) for message in await closed(listener)] == [[0, 1], [2], [3], []]
        async with station() as server:
            assert not (await connect(f"127.0.0.1:{server.port}", hello=UPSTREAM, deadline_s=TIME_S)).batched

    asyncio.run(dialogue())


def test_flush_waits_for_no_turn() -> None:
    async def dialogue() -> None:
        async with listening() as (link, listener):
            link.send(row(0))
            link.send(row(1))
            link.flush()
            link.send(row(2))
            link.flush()
            link.flush()
            await link.close()
            assert [positions(message) for message in await closed(listener)] == [[0, 1], [2], []]

    asyncio.run(dialogue())


@pytest.mark.parametrize("how", ["close", "close_with", "Bye", "Fault"])
def test_the_end_of_a_link_sends_what_waits_before_its_last_word(how: str) -> None:
    async def dialogue() -> None:
        async with listening() as (link, listener):
            link.send(row(0))
            link.send(row(1))
            if how == "close":
                await link.close("done")
            elif how == "close_with":
                await link.close_with(PeerProblem("no more", fix="none"))
            else:
                link.send(EXAMPLES[how])
            frames = heard(await closed(listener))
            assert [positions(one) for one in frames] == [[0], [1], []]
            assert [frame.decode(one)[0] for one in frames] == [1, 2, 3]
            last = packing.decode(body(frames[-1]))  # type: ignore[arg-type]
            assert isinstance(last, Fault if how in ("close_with", "Fault") else Bye)

    asyncio.run(dialogue())


def test_what_waits_for_a_peer_that_is_gone_disturbs_nobody() -> None:
    async def dialogue() -> None:
        async with listening() as (link, _):
            link.send(row(0))
            link._transport.disconnect(False)
            with pytest.raises(PeerProblem):
                await link.receive(TIME_S)
            await asyncio.sleep(0)
            link.flush()

    asyncio.run(dialogue())


def test_the_dialogue_in_batches_on_both_sides() -> None:
    """Rows and words of one turn, there and back, with sizes that share a message and that do not."""

    async def dialogue() -> None:
        served: list[Link] = []

        async def accept(link: Link) -> None:
            served.append(link)
            link.batched = True
            link.on_activation = link.send
            await link.expect(messages.Load, TIME_S)
            link.send(EXAMPLES["Loaded"])
            await link.expect(messages.Join, TIME_S)
            link.send(Joined())
            await link.expect(messages.Open, TIME_S)
            link.send(EXAMPLES["Opened"])
            await link.expect(messages.Ask, TIME_S)
            link.send(EXAMPLES["Facts"])
            await link.wait_closed()

        async with station(accept) as server:
            link = await connect(f"127.0.0.1:{server.port}", hello=COORDINATOR, deadline_s=TIME_S)
            link.batched = True
            link.send(EXAMPLES["Load"])
            await link.expect(messages.Loaded, TIME_S)
            link.send(EXAMPLES["Join"])
            await link.expect(Joined, TIME_S)
            link.send(EXAMPLES["Open"])
            await link.expect(messages.Opened, TIME_S)
            rows = [row(n, 4 * (1 + n * n * n % 5000)) for n in range(200)]
            for said in rows:
                link.send(said)
            link.send(EXAMPLES["Ping"])
            link.send(EXAMPLES["Ask"])
            assert [await link.expect(Activation, TIME_S) for _ in rows] == rows
            assert await link.expect(Pong, TIME_S) == EXAMPLES["Pong"]
            assert await link.expect(Facts, TIME_S) == EXAMPLES["Facts"]
            await link.close()

    asyncio.run(dialogue())


def test_out_of_turn_is_refused_before_anything_waits() -> None:
    async def dialogue() -> None:
        async with listening() as (link, listener):
            link.send(row(0))
            with pytest.raises(OwnProblem, match="Joined while the link is flowing"):
                link.send(Joined())
            link.send(row(1))
            await link.close()
            frames = heard(await closed(listener))
            assert [frame.decode(one)[0] for one in frames] == [1, 2, 3]

    asyncio.run(dialogue())


GOOD = sent([framed(EXAMPLES["Ping"], 1), framed(EXAMPLES["Ping"], 2)])[0]


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (GOOD[:-1], "a batch whose"),
        (GOOD + b"\0", "a batch whose"),
        (GOOD[:7] + b"\3" + GOOD[8:], "a batch whose"),
        (sent([framed(EXAMPLES["Ask"], 1), framed(EXAMPLES["Ask"], 1)])[0], "frame 1 where 2 was due"),
        (sent([framed(EXAMPLES["Ask"], 2), framed(EXAMPLES["Ask"], 3)])[0], "frame 2 where 1 was due"),
        (sent([framed(EXAMPLES["Ask"], 1), framed(EXAMPLES["Joined"], 2)])[0], "Joined while"),
    ],
)
def test_a_bad_batch_ends_its_own_link(batch: bytes, why: str) -> None:
    async def dialogue() -> None:
        async with station() as server:
            bystander = await call_and_open(server)
            transport, raw = await welcomed(server.port, COORDINATOR)
            say(transport, batch)
            code, reason = await asyncio.wait_for(raw.closed, TIME_S)
            assert code == 1002
            assert why in reason
            bystander.send(row(0))
            assert await bystander.expect(Activation, TIME_S) == row(0)
            await bystander.close()

    asyncio.run(dialogue())


def test_after_the_last_word_nothing_of_a_batch_is_heard() -> None:
    async def dialogue() -> None:
        taken: list[int] = []

        async def accept(link: Link) -> None:
            link.on_activation = lambda said: taken.append(said.position)
            await link.wait_closed()

        words = [row(0), row(1), EXAMPLES["Bye"], row(2)]
        (batch,) = sent([framed(said, sequence) for sequence, said in enumerate(words, 1)])
        async with station(accept) as server:
            transport, raw = await welcomed(server.port, UPSTREAM)
            say(transport, batch)
            assert (await asyncio.wait_for(raw.closed, TIME_S))[0] == 1000
        assert taken == [0, 1]

    asyncio.run(dialogue())
