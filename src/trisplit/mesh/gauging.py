"""How long a round trip between two stations takes: one calls the other as it will later, and pings it."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Final

from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.calling import connect
from trisplit.mesh.link import Link
from trisplit.mesh.trust import Trust
from trisplit.wire.gauging import Gauge, Gauged
from trisplit.wire.greeting import Hello
from trisplit.wire.losses import Refused
from trisplit.wire.messages import Ping, Pong

UNCOUNTED: Final = 1  # the first finds everything cold


async def gauge(order: Gauge, hello: Hello, trust: Trust) -> Gauged:
    """Calls a station and pings it, one ping after the other.

    Problems as of `connect`; PeerProblem when it is not done by the deadline, or the station hangs up.
    """
    deadline_s = order.deadline_ms / 1e3
    end_s = time.monotonic() + deadline_s
    link = await connect(order.address, hello=hello, deadline_s=deadline_s, trust=trust)
    try:
        times_ms = [await _round_trip_ms(link, n, end_s) for n in range(UNCOUNTED + order.rounds)]
    except TimeoutError:
        what = f"{link.peer} did not answer {order.rounds:,} pings within {deadline_s:g} s"
        raise PeerProblem(what, fix="ask for fewer rounds, or see what holds it up") from None
    finally:
        await link.close("the link is measured")
    counted = times_ms[UNCOUNTED:]
    return Gauged(median(counted), min(counted), order.rounds)


async def gauged_for(coordinator: Link, order: Gauge, hello: Hello, trust: Trust) -> Gauged | Refused:
    """The same by a coordinator's order, or why there is no way; given up when the coordinator leaves."""
    gauging = asyncio.create_task(gauge(order, hello, trust))
    leaving = asyncio.create_task(coordinator.wait_closed())
    try:
        await asyncio.wait({gauging, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not gauging.done():
            return Refused("its coordinator has left", "it need not be told")
        return gauging.result()
    except Problem as problem:
        return Refused(problem.what, problem.fix)
    finally:
        leaving.cancel()
        gauging.cancel()
        await asyncio.wait({gauging, leaving})


async def _round_trip_ms(link: Link, nonce: int, end_s: float) -> float:
    """One ping; TimeoutError when there is no answer by then."""
    began_s = time.monotonic()
    link.send(Ping(nonce))
    async with asyncio.timeout(max(0.0, end_s - began_s)):
        await link.expect(Pong, None)
    return 1e3 * (time.monotonic() - began_s)
