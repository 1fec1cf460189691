"""Strangers: how many may stand inside, and how much they may say before they are known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from tests.mesh.peers import (
    COORDINATOR,
    ROW,
    SECRET,
    TIME_S,
    UPGRADE,
    UPSTREAM,
    call,
    call_and_open,
    raw_call,
    say,
    station,
)
from tests.wire.words import framed
from trisplit.errors import PeerProblem
from trisplit.mesh import link as link_module
from trisplit.mesh.calling import connect
from trisplit.mesh.door import MAX_GREETING_BYTES, MAX_STRANGERS, Tally
from trisplit.mesh.link import MAX_UNSENT_BYTES, MAX_WAITING, MAX_WAITING_BYTES
from trisplit.mesh.server import GREETING_S, MAX_LINKS
from trisplit.mesh.trust import Trust
from trisplit.wire.frame import MAX_CONTROL, MAX_FRAME, Activation
from trisplit.wire.messages import Ping, Pong
from trisplit.wire.session import MAX_STREAMS

Run = Callable[[Awaitable[None]], None]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def hung_up(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closes; with what was sent still on its way that reads as a reset."""
    try:
        return await asyncio.wait_for(reader.read(), TIME_S) == b""
    except ConnectionResetError:
        return True


def test_docs_wire_says_the_limits() -> None:
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
    mib = 2**20
    for row in (
        f"| a frame, a control message | {MAX_FRAME // mib} MiB, {MAX_CONTROL // mib} MiB |",
        f"| all a caller says before Welcome | {MAX_GREETING_BYTES // 2**10} KiB |",
        f"| from connecting to WebSocket, and from there to Welcome | {GREETING_S:g} s each |",
        f"| callers that have not heard Welcome | {MAX_STRANGERS} |",
        f"| links of one station | {MAX_LINKS} |",
        f"| streams open on a link | {MAX_STREAMS:,} |",
        f"| waiting for us to read | {MAX_WAITING:,} messages, {MAX_WAITING_BYTES // mib} MiB |",
        f"| waiting for the peer to read | {MAX_UNSENT_BYTES // mib} MiB |",
    ):
        assert row in page


@both_loops
def test_only_so_many_strangers_are_inside(run: Run) -> None:
    async def dialogue() -> None:
        tally = Tally()
        async with station(tally=tally) as server:
            friend = await call_and_open(server)
            inside = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_STRANGERS)]
            beyond = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
            assert all([await hung_up(reader) for reader, _ in beyond])
            assert tally.refused == 20
            with pytest.raises(PeerProblem):
                await connect(f"127.0.0.1:{server.port}", hello=UPSTREAM, deadline_s=TIME_S)
            friend.send(ROW)
            assert await friend.expect(Activation, TIME_S) == ROW
            for _, writer in inside:
                writer.close()
            await asyncio.sleep(0.05)
            others = [await call(server, UPSTREAM) for _ in range(3)]
            for link in (friend, *others):
                await link.close()
            for _, writer in (*inside, *beyond):
                writer.close()

    run(dialogue())


def test_who_has_been_greeted_is_no_stranger() -> None:
    async def dialogue() -> None:
        async with station() as server:
            links = [await call(server, UPSTREAM) for _ in range(MAX_STRANGERS + 5)]
            for link in links:
                link.send(Ping(1))
            for link in links:
                assert await link.expect(Pong, TIME_S) == Pong(1)
                await link.close()

    asyncio.run(dialogue())


def test_silent_strangers_leave_at_the_deadline() -> None:
    async def dialogue() -> None:
        async with station(greeting_s=0.2) as server:
            inside = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_STRANGERS)]
            assert all([await hung_up(reader) for reader, _ in inside])
            await (await call(server)).close()
            for _, writer in inside:
                writer.close()

    asyncio.run(dialogue())


@both_loops
@pytest.mark.parametrize("after", ["nothing", "Hello"])
def test_a_stranger_may_not_say_more_than_a_greeting(
    run: Run, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that announces 60 MiB and brings them; none of it is kept."""
    monkeypatch.setattr(link_module, "LINGER_S", 0.1)

    async def dialogue() -> None:
        tally = Tally()
        async with station(trust=Trust(secret=SECRET), tally=tally) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(UPGRADE + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            if after == "Hello":
                hello = framed(COORDINATOR, 0)
                writer.write(bytes([0x82, 0x80 + len(hello)]) + bytes(4) + hello)
            n_bytes = 60 * 2**20
            writer.write(b"\x82\xff" + n_bytes.to_bytes(8) + bytes(4))
            block, taken = bytes(2**20), 0
            try:
                while taken < n_bytes:
                    writer.write(block)
                    taken += len(block)
                    await writer.drain()
                answer = await asyncio.wait_for(reader.read(), TIME_S)
                assert f"a greeting of more than {MAX_GREETING_BYTES:,} bytes".encode() in answer
            except ConnectionError:
                pass  # it hung up before we had read why
            writer.close()
            while tally.refused == 0:
                await asyncio.sleep(0.001)
            await (await call(server, trust=Trust(secret=SECRET))).close()
        assert tally.refused == 1

    run(asyncio.wait_for(dialogue(), TIME_S))


def test_the_longest_greeting_fits() -> None:
    long = COORDINATOR.__class__(1, "\U0001f600" * 200, "coordinator", "\U0001f600" * 200)

    async def dialogue() -> None:
        trust = Trust(secret=SECRET)
        async with station(trust=trust) as server:
            link = await connect(f"127.0.0.1:{server.port}", hello=long, deadline_s=TIME_S, trust=trust)
            await link.close()

    asyncio.run(dialogue())


def test_after_the_greeting_a_frame_may_be_large() -> None:
    async def dialogue() -> None:
        async with station() as server:
            link = await call_and_open(server)
            large = Activation(1, 0, 0, 0, 1, bytes(64 * MAX_GREETING_BYTES))
            link.send(large)
            assert await link.expect(Activation, TIME_S) == large
            await link.close()

    asyncio.run(dialogue())


def test_a_refused_stranger_hears_why() -> None:
    async def dialogue() -> None:
        async with station() as server:
            transport, raw = await raw_call(server.port)
            say(transport, bytes(MAX_GREETING_BYTES))
            assert await asyncio.wait_for(raw.closed, TIME_S) == (
                1002,
                f"a greeting of more than {MAX_GREETING_BYTES:,} bytes",
            )

    asyncio.run(dialogue())
