"""Stations and callers for tests: one that obeys, one that says whatever a test wants."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import picows

from tests.wire.words import EXAMPLES
from trisplit.errors import PeerProblem, Problem
from trisplit.mesh import link as link_module
from trisplit.mesh.calling import connect
from trisplit.mesh.door import Tally
from trisplit.mesh.link import Link
from trisplit.mesh.server import Server, listen
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import Hello, Welcome
from trisplit.wire.messages import Bye, Close, Closed, Join, Joined, Load, Loaded, Open, Opened

COORDINATOR = Hello(1, "attic", "coordinator", "desk")
UPSTREAM = Hello(1, "attic", "station", "s1")
WELCOME = Welcome(1, "s2", 1, "a cpu", "a runtime")
SECRET = b"a secret of the tests"
ROW = Activation(1, 0, 0, 0, 1, bytes(2304))
TIME_S = 5.0

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)

Accept = Callable[[Link], Awaitable[None]]


async def answer_all(link: Link) -> None:
    """A station that obeys everything and sends activations back as they came."""
    link.on_activation = link.send
    while True:
        match await link.receive(None):
            case Load():
                link.send(EXAMPLES["Loading"])
                link.send(EXAMPLES["Loaded"])
            case Join():
                link.send(Joined())
            case Open(stream=stream):
                link.send(Opened(stream))
            case Close(stream=stream):
                link.send(Closed(stream))
            case Bye():
                return
            case _:
                link.send(EXAMPLES["Facts"])


@asynccontextmanager
async def station(
    accept: Accept = answer_all,
    greeting_s: float = TIME_S,
    trust: Trust = NOBODY,
    tls: ssl.SSLContext | None = None,
    tally: Tally | None = None,
) -> AsyncIterator[Server]:
    how = {"trust": trust, "tls": tls, "tally": tally, "greeting_s": greeting_s}
    server = await listen("127.0.0.1", 0, welcome=WELCOME, accept=accept, **how)
    try:
        yield server
    finally:
        await server.close()


async def call(server: Server, hello: Hello = COORDINATOR, trust: Trust = NOBODY, address: str = "") -> Link:
    address = address or f"127.0.0.1:{server.port}"
    return await connect(address, hello=hello, deadline_s=TIME_S, trust=trust)


async def call_and_open(server: Server, address: str = "", trust: Trust = NOBODY) -> Link:
    """A coordinator's link with stream 1 open."""
    link = await call(server, trust=trust, address=address)
    link.send(EXAMPLES["Load"])
    await link.expect(type(EXAMPLES["Loading"]), TIME_S)
    await link.expect(Loaded, TIME_S)
    link.send(EXAMPLES["Join"])
    await link.expect(Joined, TIME_S)
    link.send(EXAMPLES["Open"])
    await link.expect(Opened, TIME_S)
    return link


async def end_of(link: Link) -> Problem:
    """Why the link ended, with everything before it read."""
    while True:
        try:
            await link.receive(TIME_S)
        except PeerProblem as problem:
            return problem


def address_of(server: asyncio.Server) -> str:
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Raw(picows.WSListener):
    """A caller that says whatever a test wants, and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type == picows.WSMsgType.CLOSE:
            self.closed.set_result((frame.get_close_code().value, frame.get_close_reason() or ""))
            transport.disconnect()
        else:
            self.heard.append(frame.get_payload_as_bytes())


async def raw_call(port: int) -> tuple[picows.WSTransport, Raw]:
    transport, raw = await picows.ws_connect(Raw, f"ws://127.0.0.1:{port}/", logger_name=link_module.LOG)
    assert isinstance(raw, Raw)
    return transport, raw


def say(transport: picows.WSTransport, *frames: bytes) -> None:
    for data in frames:
        transport.send(picows.WSMsgType.BINARY, data)
