"""Peers that do not read: what waits for them is bounded, their link ends, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import picows
import pytest
import uvloop

from tests.mesh.peers import (
    COORDINATOR,
    TIME_S,
    UPSTREAM,
    WELCOME,
    Raw,
    address_of,
    call,
    call_and_open,
    raw_call,
    say,
    station,
)
from tests.wire.words import EXAMPLES, framed
from trisplit.errors import PeerProblem, Problem
from trisplit.mesh import link as link_module
from trisplit.mesh.calling import connect
from trisplit.mesh.door import Tally
from trisplit.mesh.link import Link
from trisplit.mesh.server import Server
from trisplit.wire.frame import Activation
from trisplit.wire.messages import Joined, Opened, Ping, Pong
from trisplit.wire.session import Said

ANSWERS: dict[str, Said] = {"Load": EXAMPLES["Loaded"], "Join": Joined(), "Open": Opened(1)}


async def deaf_call(server: Server, *words: Said) -> tuple[picows.WSTransport, Raw]:
    """A caller that says these words, each when the one before is answered, then reads nothing more."""
    transport, raw = await raw_call(server.port)
    for n, said in enumerate(words):
        say(transport, framed(said, n))
        while len(raw.heard) <= n:
            await asyncio.sleep(0.001)
    transport.underlying_transport.pause_reading()
    return transport, raw


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_nobody_reads_is_not_sent_for_ever(
    run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MAX_UNSENT_BYTES", 8 * 2**20)
    monkeypatch.setattr(link_module, "LINGER_S", 0.1)
    sent: list[int] = []
    ends: list[Problem] = []

    async def accept(link: Link) -> None:
        if link.hello == UPSTREAM:
            await link.wait_closed()
            return
        for word, answer in ANSWERS.items():
            assert await link.receive(TIME_S) == EXAMPLES[word]
            link.send(answer)
        block = Activation(1, 0, 0, 0, 1, bytes(2**20))
        await asyncio.sleep(0.05)  # until it is deaf
        try:
            while True:
                link.send(block)
                sent.append(link.transport.get_write_buffer_size())
        except PeerProblem as problem:
            ends.append(problem)
        assert link.broken_rules
        with pytest.raises(PeerProblem, match="bytes wait for"):
            link.send(block)
        with pytest.raises(PeerProblem, match="bytes wait for"):
            await link.drain(TIME_S)
        await link.wait_closed()

    async def dialogue() -> None:
        tally = Tally()
        async with station(accept, tally=tally) as server:
            words = [COORDINATOR, *(EXAMPLES[word] for word in ANSWERS)]
            transport, raw = await deaf_call(server, *words)
            bystander = await call(server, UPSTREAM)
            while tally.refused == 0:
                await asyncio.sleep(0.01)
            bystander.send(Ping(1))
            assert await bystander.expect(Pong, TIME_S) == Pong(1)
            await bystander.close()
            assert not raw.closed.done()
            transport.disconnect(False)
            await transport.wait_disconnected()

    run(dialogue())
    assert max(sent) <= 8 * 2**20
    assert "bytes wait for coordinator desk at 127.0.0.1:" in ends[0].what
    assert ends[0].fix == "read what comes, or ask for less"


def test_pings_that_nobody_reads_the_answers_of_end_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_UNSENT_BYTES", 2**20)
    monkeypatch.setattr(link_module, "LINGER_S", 0.1)

    async def quiet(link: Link) -> None:
        await link.wait_closed()

    async def dialogue() -> None:
        tally = Tally()
        async with station(quiet, tally=tally) as server:
            transport, _ = await deaf_call(server, UPSTREAM)
            while tally.refused == 0:
                for _ in range(1000):
                    transport.send_ping(b"x" * 125)
                await asyncio.sleep(0)
            transport.disconnect(False)
            await transport.wait_disconnected()

    asyncio.run(asyncio.wait_for(dialogue(), 4 * TIME_S))


def test_a_websocket_ping_is_answered() -> None:
    async def dialogue() -> None:
        async with station() as server:
            transport, raw = await raw_call(server.port)
            transport.send_ping(b"there?")
            while not raw.heard:
                await asyncio.sleep(0.001)
            assert raw.heard == [b"there?"]
            transport.disconnect()

    asyncio.run(dialogue())


def test_drain_waits_for_the_peer_to_read() -> None:
    async def dialogue() -> None:
        async with station() as server:
            link = await call_and_open(server)
            await asyncio.wait_for(link.drain(TIME_S), TIME_S)
            link.on_activation = lambda _: None
            block = Activation(1, 0, 0, 0, 1, bytes(2**20))
            for _ in range(40):
                await link.drain(TIME_S)
                link.send(block)
                assert link.transport.get_write_buffer_size() <= 2**21
            await link.close()

    asyncio.run(dialogue())


def test_drain_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "LINGER_S", 0.1)
    deaf: list[picows.WSTransport] = []

    class Deaf(Raw):
        def on_ws_frame(self, transport: picows.WSTransport, _frame: picows.WSFrame) -> None:
            say(transport, framed(WELCOME, 0))
            transport.underlying_transport.pause_reading()
            deaf.append(transport)

    async def dialogue() -> None:
        server = await picows.ws_create_server(lambda _: Deaf(), "127.0.0.1", 0)
        link = await connect(address_of(server), hello=UPSTREAM, deadline_s=TIME_S)
        block = Activation(1, 0, 0, 0, 1, bytes(2**20))
        for _ in range(20):
            link.send(block)
        with pytest.raises(PeerProblem, match=r"station s2 at .* read nothing for 0\.1 s"):
            await link.drain(0.1)
        link.send(block)
        await link.close()
        deaf[0].disconnect(False)
        await deaf[0].wait_disconnected()
        server.close()

    asyncio.run(dialogue())
