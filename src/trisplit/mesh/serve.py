"""A station at an open port, for as long as its process runs."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable

from trisplit.machine import cpu_kind
from trisplit.mesh.address import Address, host_and_port
from trisplit.mesh.facts import runtime
from trisplit.mesh.loading import build
from trisplit.mesh.server import listen
from trisplit.mesh.station import Build, Station
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.wire.greeting import VERSION, Welcome


async def serve(
    listen_at: str,
    *,
    name: str,
    announce: Callable[[str], None],
    trust: Trust = NOBODY,
    tls: ssl.SSLContext | None = None,
    build: Build = build,
) -> None:
    """Listens and serves until cancelled; `announce` is told the address it got.

    RequestProblem when the address cannot be had, or can be reached from other machines and there is
    no secret.
    """
    host, port = host_and_port(listen_at)
    station = Station(name or f"station-{os.getpid()}", trust, build)
    welcome = Welcome(VERSION, station.name, os.getpid(), cpu_kind(), runtime())
    server = await listen(
        host, port, welcome=welcome, accept=station.accept, trust=trust, tls=tls, tally=station.tally
    )
    announce(str(Address(host, server.port, tls is not None)))
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await server.close()
