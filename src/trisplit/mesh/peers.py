"""Stations as a coordinator sees them: what they say, and waits that end when any of them fails."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from trisplit.errors import PeerProblem
from trisplit.mesh.link import Link, connect
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.messages import Bye, Fault, Hello, Loaded, Message, Ping, Pong

T = TypeVar("T")
M = TypeVar("M", bound=Message)

CONNECT_DEADLINE_S: Final = 10.0
PING_DEADLINE_S: Final = 3.0  # for a station to show that it still runs


@dataclass(slots=True)
class Peer:
    """One station: its link, and what it has said that nobody has asked for yet."""

    name: str
    address: str
    link: Link
    said: deque[Message] = field(default_factory=deque)
    arrival: asyncio.Future[None] | None = None
    answers: bool = True
    loaded: Loaded | None = None


class Peers:
    """All stations of a mesh. Whatever goes wrong on any link ends every wait at once, naming the station."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: Exception | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._blaming: asyncio.Task[None] | None = None
        self.heard_s = 0.0

    def __getitem__(self, name: str) -> Peer:
        return self._peers[name]

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    async def meet(
        self, name: str, address: str, hello: Hello, on_activation: Callable[[Activation], None]
    ) -> None:
        """Connects to a station and begins to listen to it."""
        link = await connect(address, hello=hello, deadline_s=CONNECT_DEADLINE_S)
        link.peer = f"station {name} at {address}"
        link.on_activation = on_activation
        peer = self._peers[name] = Peer(name, address, link)
        self._tasks.append(asyncio.create_task(self._listen(peer)))

    async def leave(self, reason: str) -> None:
        """Says Bye to everybody."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self:
            await peer.link.close(reason)

    async def _listen(self, peer: Peer) -> None:
        try:
            while True:
                said = await peer.link.receive(None)
                peer.answers = True
                if isinstance(said, Fault):
                    raise PeerProblem(f"station {peer.name}: {said.what}", fix=said.fix)
                if isinstance(said, (Bye, Activation, Pong)):
                    continue  # after Bye the next wait says why the link has ended
                peer.said.append(said)
                if peer.arrival is not None and not peer.arrival.done():
                    peer.arrival.set_result(None)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(self._failure)

    # --- waiting ---

    async def expect(self, peer: Peer, kind: type[M], deadline_s: float) -> M:
        """The next control message of a station; PeerProblem if it is of another kind."""
        said = await self.next(peer, deadline_s)
        if not isinstance(said, kind):
            what = f"station {peer.name} said {type(said).__name__} where {kind.__name__} was due"
            raise PeerProblem(what, fix=SAME_VERSION)
        return said

    async def next(self, peer: Peer, deadline_s: float) -> Message:
        """The next control message of a station, whatever it is."""
        if not peer.said:
            peer.arrival = asyncio.get_running_loop().create_future()
            await self.wait(peer.arrival, deadline_s, f"an answer of station {peer.name}")
        return peer.said.popleft()

    def progress(self) -> None:
        """Something of what is waited for has come: its deadline begins anew."""
        self.heard_s = asyncio.get_running_loop().time()

    async def wait(self, future: asyncio.Future[T], deadline_s: float, what: str) -> T:
        """The future's result, or the failure of any station, or PeerProblem naming who is silent."""
        if self._failure is not None:
            raise self._failure
        watch = _Watch(self, deadline_s, f"{what} did not come within {deadline_s:g} s")
        self._waiting.add(future)
        try:
            return await future
        finally:
            watch.end()
            self._waiting.discard(future)

    def overdue(self, late: str) -> None:
        """Finds out who is silent, then ends every wait; once."""
        if self._blaming is None:
            self._blaming = asyncio.create_task(self._blame(late))
            self._tasks.append(self._blaming)

    async def _blame(self, late: str) -> None:
        """Ends every wait, naming the stations that do not even answer a ping."""
        for peer in self:
            peer.answers = False
            peer.link.send(Ping(0))
        await asyncio.sleep(PING_DEADLINE_S)
        silent = [f"station {peer.name}" for peer in self if not peer.answers]
        if silent:
            late += f"; {', '.join(silent)} did not answer within {PING_DEADLINE_S:g} s more"
        self._fail(PeerProblem(late, fix="see what the stations do, or ask for less at once"))


class _Watch:
    """A deadline that begins anew whenever something of what is waited for comes."""

    def __init__(self, peers: Peers, deadline_s: float, late: str) -> None:
        self._peers, self._deadline_s, self._late = peers, deadline_s, late
        self._loop = asyncio.get_running_loop()
        self._started_s = self._loop.time()
        self._timer = self._loop.call_later(deadline_s, self._look)

    def _look(self) -> None:
        quiet_s = self._loop.time() - max(self._started_s, self._peers.heard_s)
        if quiet_s < self._deadline_s:
            self._timer = self._loop.call_later(self._deadline_s - quiet_s, self._look)
        else:
            self._peers.overdue(self._late)

    def end(self) -> None:
        """What was waited for has come, or never will."""
        self._timer.cancel()
