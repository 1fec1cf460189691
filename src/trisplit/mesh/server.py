"""An open port: callers are greeted and handed on, each as a link of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import picows
from picows import WSUpgradeRequest, WSUpgradeResponse, WSUpgradeResponseWithListener

from trisplit.errors import Problem, RequestProblem
from trisplit.mesh.address import is_loopback, reason
from trisplit.mesh.link import LOG, Ears, Link
from trisplit.wire.frame import MAX_FRAME
from trisplit.wire.messages import Welcome
from trisplit.wire.session import Session

GREETING_S = 5.0


class Server:
    """An open port, made by `listen`; `port` is the one it got."""

    def __init__(self, listening: asyncio.Server, tasks: set[asyncio.Task[None]]) -> None:
        self.port: int = listening.sockets[0].getsockname()[1]
        self._listening = listening
        self._tasks = tasks

    async def close(self) -> None:
        """Stop listening, cancel what still runs in `accept`, and say Bye to everybody."""
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def listen(
    host: str,
    port: int,
    *,
    welcome: Welcome,
    accept: Callable[[Link], Awaitable[None]],
    greeting_s: float = GREETING_S,
) -> Server:
    """Listen on a port (0: any free one) and greet callers with `welcome`.

    `accept` runs as a task of its own for each caller that has said Hello within `greeting_s`
    seconds (`link.hello` says who it is); the link is closed when it returns, and with a Fault when
    it raises a `Problem`. Raises `RequestProblem` when the port cannot be had, or is not on
    loopback: nobody is authenticated yet.
    """
    if not is_loopback(host):
        raise RequestProblem(f"{host} can be reached from other machines", fix="listen on 127.0.0.1")
    tasks: set[asyncio.Task[None]] = set()

    def opened(link: Link) -> None:
        task = asyncio.get_running_loop().create_task(_attend(link, welcome, accept, greeting_s))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def answer(request: WSUpgradeRequest) -> Ears | WSUpgradeResponseWithListener:
        # Browsers let any web page open a WebSocket to this machine, and always say so by this header.
        if "Origin" in request.headers:
            return WSUpgradeResponseWithListener(WSUpgradeResponse.create_error_response(403), None)
        return Ears(Session("station"), "a caller", opened)

    try:
        listening = await picows.ws_create_server(
            answer,
            host,
            port,
            websocket_handshake_timeout=greeting_s,
            logger_name=LOG,
            max_frame_size=MAX_FRAME,
        )
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {reason(error)}"
        raise RequestProblem(what, fix="choose another port, or 0 for any free one") from None
    return Server(listening, tasks)


async def _attend(
    link: Link, welcome: Welcome, accept: Callable[[Link], Awaitable[None]], greeting_s: float
) -> None:
    try:
        await link.be_greeted(welcome, greeting_s)
        await accept(link)
    except Problem as problem:
        await link.close_with(problem)
    finally:
        await link.close()
