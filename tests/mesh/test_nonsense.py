"""Whatever a peer's bytes are, its own link ends with a reason and no other notices."""

from __future__ import annotations

import asyncio

import picows
import pytest

from tests.mesh.peers import (
    COORDINATOR,
    ROW,
    TIME_S,
    UPGRADE,
    UPSTREAM,
    WELCOME,
    Raw,
    address_of,
    call_and_open,
    end_of,
    raw_call,
    say,
    station,
)
from tests.wire.words import EXAMPLES, framed
from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.calling import connect
from trisplit.mesh.link import Link
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import Hello
from trisplit.wire.messages import Loaded


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([b"hello?"], "a frame of 6 bytes where the header takes 10"),
        ([b"\0" * 4096], "a frame of unknown kind 0"),
        ([framed(ROW, 0)], "Activation while the link is start"),
        ([framed(COORDINATOR, 1)], "frame 1 where 0 was due"),
        ([framed(Hello(2, "", "station", ""), 0)], "version 2 of the wire where 1 is spoken"),
        ([framed(COORDINATOR, 0)[:-1]], "cannot be read: Input data was truncated"),
        ([framed(COORDINATOR, 0), framed(EXAMPLES["Joined"], 1)], "Joined while the link is met"),
        ([framed(UPSTREAM, 0), framed(EXAMPLES["Load"], 1)], "Load while the link is met"),
    ],
)
def test_nonsense_is_answered_with_a_fault_and_a_close_reason(frames: list[bytes], why: str) -> None:
    async def dialogue() -> None:
        async with station() as server:
            bystander = await call_and_open(server)
            transport, raw = await raw_call(server.port)
            say(transport, *frames)
            code, reason = await asyncio.wait_for(raw.closed, TIME_S)
            assert code == 1002
            assert why in reason
            assert why.encode() in raw.heard[-1]
            assert b"Fault" in raw.heard[-1]
            bystander.send(ROW)
            assert await bystander.expect(Activation, TIME_S) == ROW
            await bystander.close()

    asyncio.run(dialogue())


@pytest.mark.parametrize("word", ["Open", "Load", "Activation", "Loaded"])
def test_every_cut_of_a_frame_over_a_socket(word: str) -> None:
    """Each cut on a connection of its own, as far as a coordinator's first words go."""

    async def one(port: int, damaged: bytes) -> None:
        transport, raw = await raw_call(port)
        say(transport, framed(COORDINATOR, 0), damaged)
        code, _ = await asyncio.wait_for(raw.closed, TIME_S)
        assert code == 1002

    async def dialogue() -> None:
        data = framed(EXAMPLES[word], 1)
        async with station() as server:
            for n_bytes in (*range(0, len(data), 5), len(data) - 1):
                await one(server.port, data[:n_bytes])
            await one(server.port, data + b"\0")

    asyncio.run(dialogue())


@pytest.mark.parametrize("kind", ["text", "fragment", "reserved bit"])
def test_only_whole_binary_messages_are_heard(kind: str) -> None:
    async def dialogue() -> None:
        async with station() as server:
            transport, raw = await raw_call(server.port)
            data = framed(COORDINATOR, 0)
            text = kind == "text"
            transport.send(
                picows.WSMsgType.TEXT if text else picows.WSMsgType.BINARY,
                "hello" if text else data,
                fin=kind != "fragment",
                rsv1=kind == "reserved bit",
            )
            assert await asyncio.wait_for(raw.closed, TIME_S) == (
                1002,
                "a WebSocket frame that is not one whole binary message",
            )

    asyncio.run(dialogue())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x82\xff" + (2**40).to_bytes(8) + b"mask", "exceeding max allowed size"),
        (b"\x82\x05hello", "un-masked frame"),
        (b"\x83\x80mask", "invalid opcode"),
    ],
    ids=["a terabyte", "unmasked", "unknown opcode"],
)
def test_bytes_that_are_no_websocket_frame(data: bytes, why: str) -> None:
    ends: list[Problem] = []

    async def accept(link: Link) -> None:
        ends.append(await end_of(link))

    async def dialogue() -> None:
        async with station(accept) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(UPGRADE + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            hello = framed(COORDINATOR, 0)
            writer.write(bytes([0x82, 0x80 + len(hello)]) + bytes(4) + hello + data)
            await asyncio.wait_for(reader.read(), TIME_S)
            writer.close()
            await writer.wait_closed()

    asyncio.run(dialogue())
    assert ends[0].what.startswith("coordinator desk at 127.0.0.1:")
    assert "broke the WebSocket protocol" in ends[0].what
    assert why in ends[0].what


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "hung up before a word"),
        (b"220 mail.example.com ESMTP\r\n\r\n", "does not speak WebSocket"),
        (b"HTTP/1.1 301 Moved\r\nLocation: ws://127.0.0.1:1/\r\n\r\n", "does not speak WebSocket"),
        (b"\0" * 40_000, "does not speak WebSocket"),
    ],
    ids=["hangs up", "mail", "redirect", "zeros"],
)
def test_what_answers_is_no_station(data: bytes, why: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()
        await writer.wait_closed()

    async def dialogue() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = address_of(server)
            with pytest.raises(PeerProblem, match=why) as caught:
                await connect(address, hello=COORDINATOR, deadline_s=TIME_S)
            assert address in caught.value.what

    asyncio.run(dialogue())


def test_a_station_that_talks_nonsense_ends_its_own_link_only() -> None:
    class Liar(Raw):
        def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
            super().on_ws_frame(transport, frame)
            if len(self.heard) == 1:
                say(transport, framed(WELCOME, 0), framed(Loaded(1, 1, 1, True), 1))

    async def dialogue() -> None:
        liars: list[Liar] = []

        def answer(_request: picows.WSUpgradeRequest) -> Liar:
            liars.append(Liar())
            return liars[-1]

        liar = await picows.ws_create_server(answer, "127.0.0.1", 0)
        address = address_of(liar)
        async with station() as server:
            good = await call_and_open(server)
            bad = await connect(address, hello=COORDINATOR, deadline_s=TIME_S)
            problem = await end_of(bad)
            assert problem.what == (
                f"station s2 at {address} broke the protocol: out of turn: Loaded while the link is empty"
            )
            with pytest.raises(PeerProblem, match="Loaded while the link is empty"):
                bad.send(EXAMPLES["Load"])
            assert (await liars[0].closed)[0] == 1002
            await bad.close()
            good.send(ROW)
            assert await good.expect(Activation, TIME_S) == ROW
            await good.close()
        liar.close()

    asyncio.run(dialogue())
