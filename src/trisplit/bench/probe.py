"""How exact an emulated link is: two processes send each other the time through a relay and compare."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys
import time
from typing import Final

from trisplit.bench.delays import Delay
from trisplit.bench.measure import Spread
from trisplit.bench.peers import Answer, Line, Order
from trisplit.bench.posts import Post
from trisplit.bench.relay import RelayLink, relays
from trisplit.bench.rounds import running
from trisplit.bench.stamps import receive, stamp
from trisplit.errors import PeerProblem
from trisplit.mesh.address import host_and_port

MESSAGE_BYTES: Final = 2340  # a frame with a row of 576 floats
DEADLINE_S: Final = 30.0
_MOST_PAUSE_S: Final = 2e-3  # so that messages are not in step with anybody's timer
_TIME: Final = struct.Struct("<q")


async def measure(delay: Delay, *, messages: int = 100, n_bytes: int = MESSAGE_BYTES) -> Spread:
    """How much longer than nominal a relay holds a message of `n_bytes`, in ms, over `messages` each way.

    From the clock of the sending process just before it sends until the kernel has all of it for the other
    one: what a process takes to wake up comes on top, with a relay and without. Nominal is `one_way_ms` and
    the time at `mbit`; jitter counts as held too long. `PeerProblem` when a message does not come.
    """
    post = Post(name="the probe", command=(sys.executable, "-m", "trisplit.bench.probe"), threads=1)
    async with running(post) as probe:
        link = RelayLink(caller="here", station="probe", address=probe.ready["address"], delay=delay)
        async with relays([link]) as running_links:
            address = running_links.addresses_for["here"]["probe"]
            there, back_ms = await asyncio.gather(
                probe.ask({"messages": messages, "n_bytes": n_bytes}),
                asyncio.to_thread(_call, address, messages, n_bytes),
            )
    nominal_ms = delay.one_way_ms + delay.sending_ms(n_bytes)
    return Spread.of([ms - nominal_ms for ms in (*back_ms, *there["ms"])])


def _call(address: str, messages: int, n_bytes: int) -> list[float]:
    try:
        with socket.create_connection(host_and_port(address), DEADLINE_S) as sock:
            return _exchange(sock, messages, n_bytes, calls=True)
    except OSError as error:
        what = f"a message did not come through the relay: {error}"
        raise PeerProblem(what, fix="see what else runs on this machine") from error


def _exchange(sock: socket.socket, messages: int, n_bytes: int, *, calls: bool) -> list[float]:
    """Sends the time and hears the other's, in turns; how long each that came was under way, in ms."""
    sock.settimeout(DEADLINE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stamp(sock)
    filling = bytes(n_bytes - _TIME.size)
    held_ms = []
    for _ in range(messages):
        if calls:
            time.sleep(random.uniform(0, _MOST_PAUSE_S))
            sock.sendall(_TIME.pack(time.time_ns()) + filling)
        held_ms.append(_hear(sock, n_bytes))
        if not calls:
            sock.sendall(_TIME.pack(time.time_ns()) + filling)
    return held_ms


def _hear(sock: socket.socket, n_bytes: int) -> float:
    message, came_ns = b"", 0
    while len(message) < n_bytes:
        chunk, came_ns = receive(sock, n_bytes - len(message))
        if not chunk:
            raise ConnectionError("the stream ended")
        message += chunk
    sent_ns: int = _TIME.unpack_from(message)[0]
    return (came_ns - sent_ns) / 1e6


def main() -> None:
    """The other process: says where it listens, and exchanges with one caller when told to."""
    line = Line()
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()

    async def answer(order: Order) -> Answer:
        sock, _ = listener.accept()
        with sock:
            return {"ms": _exchange(sock, order["messages"], order["n_bytes"], calls=False)}

    asyncio.run(line.serve({"address": f"{host}:{port}"}, answer))


if __name__ == "__main__":
    main()
