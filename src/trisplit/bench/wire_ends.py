"""The two processes between which `bench wire` sends frames: over links, and over bare TCP sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from trisplit.bench.peers import Answer, Line, Order
from trisplit.mesh.calling import connect
from trisplit.mesh.link import Link
from trisplit.mesh.server import Server, listen
from trisplit.wire.frame import ROW_BY_ROW, Activation, encode_activation
from trisplit.wire.greeting import VERSION, Hello, Welcome
from trisplit.wire.messages import Ping, Pong

# A token's row between two layers of SmolLM2-135M: 576 numbers. Rows for HERE end at the far end, rows for
# BACK it sends back.
HERE, BACK = (Activation(1, 0, 0, group, 1, bytes(576 * 4), flags=ROW_BY_ROW) for group in (0, 1))
FRAME_BYTES: Final = len(encode_activation(HERE, 0))

WARM_TRIPS: Final = 100
BURST: Final = 256  # frames sent before the far end must have taken them all
DEADLINE_S: Final = 60.0

_LOOPBACK: Final = "127.0.0.1"


async def far(line: Line) -> None:
    """Takes rows and sends some back, as the next station on a ring of two; and bytes, as a bare socket does.

    The one order gives the `address` to send them back to.
    """
    back: list[Link] = []

    def take(said: Activation) -> None:
        if said.group == BACK.group:
            back[0].send(said)

    async def answer(order: Order) -> Answer:
        back.append(await _call(order["address"]))
        return {}

    server, sockets = await _listen(take), socket.create_server((_LOOPBACK, 0))
    threading.Thread(target=_echo, args=(sockets,), daemon=True).start()
    ready = {"address": f"{_LOOPBACK}:{server.port}", "tcp_port": sockets.getsockname()[1]}
    await line.serve(ready, answer)


async def near(line: Line, facts: Mapping[str, Any]) -> None:
    """Measures to and from the far end at `address` and `tcp_port`.

    Orders name `what` and how many `n`: `link` and `tcp` are answered with the `us` of each trip, one way;
    `frames` and `batched` with how many went one way in a second.
    """
    trips = Trips()
    server, link = await _listen(trips.take), await _call(facts["address"])
    with socket.create_connection((_LOOPBACK, facts["tcp_port"])) as bare:
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        async def answer(order: Order) -> Answer:
            match order["what"]:
                case "link":
                    return {"us": await trips.run(link, order["n"])}
                case "tcp":
                    return {"us": _bare_trips(bare, order["n"])}
                case what:
                    return {"per_s": await _stream(link, order["n"], batched=what == "batched")}

        await line.serve({"address": f"{_LOOPBACK}:{server.port}"}, answer)


class Trips:
    """Sends a row and, the moment it is back, the next."""

    _link: Link
    _done: asyncio.Future[None]
    _began_s: float

    def __init__(self) -> None:
        self._us: list[float] = []
        self._wanted = 0

    async def run(self, link: Link, n: int) -> list[float]:
        """The microseconds of `n` trips, one way: half of there and back."""
        link.batched = False
        self._link, self._done = link, asyncio.get_running_loop().create_future()
        self._us, self._wanted = [], WARM_TRIPS + n
        self._go()
        await asyncio.wait_for(self._done, DEADLINE_S)
        return self._us[WARM_TRIPS:]

    def take(self, _: Activation) -> None:
        """The row is back."""
        self._us.append(1e6 / 2 * (time.perf_counter() - self._began_s))
        if len(self._us) == self._wanted:
            self._done.set_result(None)
        else:
            self._go()

    def _go(self) -> None:
        self._began_s = time.perf_counter()
        self._link.send(BACK)


async def _stream(link: Link, n: int, *, batched: bool) -> float:
    """Frames a second, of `n` sent in bursts; each burst is taken before the next begins."""
    link.batched = batched
    began_s = time.perf_counter()
    for first in range(0, n, BURST):
        for _ in range(min(BURST, n - first)):
            link.send(HERE)
        link.send(Ping(first))
        await link.expect(Pong, DEADLINE_S)
    return n / (time.perf_counter() - began_s)


async def _listen(take: Callable[[Activation], None]) -> Server:
    async def accept(link: Link) -> None:
        link.on_activation = take
        await link.wait_closed()

    welcome = Welcome(VERSION, "bench", os.getpid(), cpu="", runtime="")
    return await listen(_LOOPBACK, 0, welcome=welcome, accept=accept)


async def _call(address: str) -> Link:
    hello = Hello(VERSION, mesh="bench", role="station", name="bench")
    return await connect(address, hello=hello, deadline_s=DEADLINE_S)


# --- bare sockets ---------------------------------------------------------------------------------
# They block: of what Python can do with TCP that is the fastest.


def _bare_trips(bare: socket.socket, n: int) -> list[float]:
    """As `Trips.run`, with as many bytes as its frames have."""
    data, room = bytes(FRAME_BYTES), memoryview(bytearray(FRAME_BYTES))
    us = []
    for _ in range(WARM_TRIPS + n):
        began_s = time.perf_counter()
        bare.sendall(data)
        _fill(room, bare)
        us.append(1e6 / 2 * (time.perf_counter() - began_s))
    return us[WARM_TRIPS:]


def _echo(sockets: socket.socket) -> None:
    bare, _ = sockets.accept()
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    room = memoryview(bytearray(FRAME_BYTES))
    while _fill(room, bare):
        bare.sendall(room)


def _fill(room: memoryview, bare: socket.socket) -> bool:
    """Whether it could be filled before the other side hung up."""
    filled = 0
    while filled < len(room):
        n_bytes = bare.recv_into(room[filled:])
        if not n_bytes:
            return False
        filled += n_bytes
    return True
