"""An open port: callers are greeted and handed on, each as a link of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import picows
from picows import WSUpgradeRequest, WSUpgradeResponse, WSUpgradeResponseWithListener

from trisplit.errors import PeerProblem, Problem, RequestProblem
from trisplit.mesh.address import is_loopback, reason
from trisplit.mesh.door import Door, Porch, Tally
from trisplit.mesh.greeting import be_greeted
from trisplit.mesh.link import LOG, Ears, Link
from trisplit.mesh.trust import NOBODY, VARIABLE, Trust, expect_broken_handshakes
from trisplit.wire.frame import MAX_FRAME
from trisplit.wire.greeting import Welcome
from trisplit.wire.session import Session

GREETING_S: Final = 5.0
MAX_LINKS: Final = 512

Accept = Callable[[Link], Awaitable[None]]


class Server:
    """An open port, made by `listen`; `port` is the one it got."""

    def __init__(
        self, welcome: Welcome, accept: Accept, trust: Trust, tally: Tally, greeting_s: float
    ) -> None:
        self._welcome, self._accept, self._greeting_s = welcome, accept, greeting_s
        self._trust, self._tally = trust, tally
        self._tasks: set[asyncio.Task[None]] = set()
        self._links = 0

    async def open(self, door: Door, tls: ssl.SSLContext | None) -> None:
        """Begin to listen."""
        self.port: int = door.getsockname()[1]
        self._door = door
        if tls is not None:
            expect_broken_handshakes(asyncio.get_running_loop())
        self._listening = await picows.ws_create_server(
            self._answer,
            sock=door,
            ssl=tls,
            websocket_handshake_timeout=self._greeting_s,
            logger_name=LOG,
            max_frame_size=MAX_FRAME,
            enable_auto_pong=False,
            ssl_handshake_timeout=self._greeting_s if tls else None,
        )

    async def close(self) -> None:
        """Stop listening, cancel what still runs in `accept`, and say Bye to everybody."""
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer(self, request: WSUpgradeRequest) -> Ears | WSUpgradeResponseWithListener:
        # Browsers let any web page open a WebSocket to this machine, and always say so by this header.
        if "Origin" in request.headers:
            return WSUpgradeResponseWithListener(WSUpgradeResponse.create_error_response(403), None)
        # picows (2.3) refuses versions by their name, and fails with a traceback if that is no text.
        if not request.headers.get("Sec-WebSocket-Version", "").isascii():
            return WSUpgradeResponseWithListener(WSUpgradeResponse.create_error_response(400), None)
        return Ears(Session("station"), "a caller", self._opened)

    def _opened(self, link: Link) -> None:
        task = asyncio.get_running_loop().create_task(self._attend(link, Porch(link)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, link: Link, porch: Porch) -> None:
        """One caller, from its first word to its last."""
        is_in = False
        try:
            await self._greet(link)
            is_in = True
            self._links += 1
            self._door.knows(link)
            porch.let_in()
            await self._accept(link)
        except Problem as problem:
            await link.close_with(problem)
        finally:
            self._links -= is_in
            self._tally.refused += link.broken_rules or not is_in
            await link.close()

    async def _greet(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self._greeting_s):
                await be_greeted(link, self._welcome, self._trust.secret)
        except TimeoutError:
            what = f"a caller did not greet us within {self._greeting_s:g} s"
            raise PeerProblem(what, fix="see what calls here") from None
        if self._links >= MAX_LINKS:
            raise PeerProblem(f"{self._links:,} others are connected already", fix="ask when fewer are")


async def listen(
    host: str,
    port: int,
    *,
    welcome: Welcome,
    accept: Accept,
    trust: Trust = NOBODY,
    tls: ssl.SSLContext | None = None,
    tally: Tally | None = None,
    greeting_s: float = GREETING_S,
) -> Server:
    """Listen on a port (0: any free one) and greet callers with `welcome`.

    `accept` runs as a task of its own for each caller that has said Hello within `greeting_s`
    seconds, and proven that it knows the secret of `trust` if there is one (`link.hello` says who it
    is); the link is closed when it returns, and with a Fault when it raises a `Problem`. `tally`
    counts who was refused. Raises `RequestProblem` when the port cannot be had, or can be reached
    from other machines and there is no secret.
    """
    if trust.secret is None and not is_loopback(host):
        raise RequestProblem(
            f"{host} can be reached from other machines, and there is no secret",
            fix=f"give one by --secret-file or {VARIABLE}, or listen on 127.0.0.1",
        )
    tally = tally or Tally()
    try:
        door = await _bind(host, port, tally)
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {reason(error)}"
        raise RequestProblem(what, fix="choose another port, or 0 for any free one") from None
    server = Server(welcome, accept, trust, tally, greeting_s)
    await server.open(door, tls)
    return server


async def _bind(host: str, port: int, tally: Tally) -> Door:
    """A socket at the first of the host's addresses; `OSError` when there is none or it is taken."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:
        raise OSError(f"{host!r} is no host name: {error}") from None
    family, kind, proto, _, where = found[0]
    door = Door(family, kind, proto, tally)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # at once after the last one has ended
        door.bind(where)
        door.listen()
    except BaseException:
        door.close()
        raise
    return door
