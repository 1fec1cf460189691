"""Holding a mesh up: stations, coordinator, and an open port for those who ask, ended together."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from contextlib import aclosing
from typing import Final

from trisplit.cli.engines import meshed
from trisplit.cli.names import find_model
from trisplit.cli.progress import bars
from trisplit.cli.reported import announce
from trisplit.cli.settings import Settings
from trisplit.errors import PeerProblem, UnknownName
from trisplit.machine import cpu_kind
from trisplit.mesh.address import Address, host_and_port
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.daemon import About, Daemon
from trisplit.mesh.facts import runtime
from trisplit.mesh.link import Link
from trisplit.mesh.server import listen
from trisplit.models.model import open_model
from trisplit.wire.greeting import VERSION, Welcome
from trisplit.wire.questions import Judge

BATCHES: Final = ("auto", "on", "off")
TOKENS, ROUNDS = 24, 5  # of each session in each turn of `auto`


class Front:
    """Answers the port from before a mesh is loaded until after it has ended."""

    def __init__(self) -> None:
        self.daemon: Daemon | None = None

    async def accept(self, link: Link) -> None:
        """Serves one client, if there is a mesh to ask."""
        if self.daemon is None:
            raise PeerProblem("the mesh is still loading", fix="ask when `trisplit up` has said its address")
        await self.daemon.accept(link)


async def hold_up(
    name: str,
    where: Settings,
    listen_at: str,
    *,
    tls: ssl.SSLContext | None,
    most_waiting: int,
    batch: str,
    as_json: bool,
) -> None:
    """The whole way of `trisplit up`: returns when the mesh was taken down, by a client or by SIGTERM.

    `batch` is one of BATCHES; UnknownName for another.
    """
    if batch not in BATCHES:
        raise UnknownName("way to send", batch, BATCHES)
    model = open_model(find_model(name))
    tokenizer, front = model.tokenizer(), Front()
    host, port = host_and_port(listen_at)
    welcome = Welcome(VERSION, "mesh", os.getpid(), cpu_kind(), runtime())
    # Before anything is loaded: a port that cannot be had is known at once.
    server = await listen(host, port, welcome=welcome, accept=front.accept, trust=where.trust, tls=tls)
    try:
        async with meshed(model, where) as mesh:
            about = About(model=name, dtype=where.dtype, context=mesh.context, threads=mesh.threads)
            daemon = Daemon(
                mesh.coordinator, tokenizer, about, most_waiting=most_waiting, drafting=mesh.drafting
            )
            await _set_batches(daemon, mesh.coordinator, batch)
            front.daemon = daemon
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.end)
            try:
                address = Address(host, server.port, tls is not None)
                announce(str(address), await daemon.report(), as_json=as_json)
                await daemon.until_ended()
            finally:
                await daemon.close()
    finally:
        await server.close()


async def _set_batches(daemon: Daemon, coordinator: Coordinator, batch: str) -> None:
    """Has the mesh send as asked; `auto` measures with all its sessions, before anybody asks it."""
    if batch == "on":
        await coordinator.tune(batched=True)
    elif batch == "auto":
        with bars() as show:
            async with aclosing(daemon.judge(Judge(coordinator.sessions, TOKENS, ROUNDS))) as steps:
                async for step in steps:
                    show.advance("batched or not", step.done, step.total, f"{step.done} of {step.total}")
