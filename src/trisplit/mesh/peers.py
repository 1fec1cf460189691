"""Stations as a coordinator sees them: what they answer, whether they still live, and who waits for them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any, Final, TypeVar

from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.calling import connect
from trisplit.mesh.dialled import unheard
from trisplit.mesh.link import MAX_WAITING, Link
from trisplit.mesh.trust import Trust
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.gauging import Gauged
from trisplit.wire.greeting import Hello
from trisplit.wire.losses import Refused, Severed
from trisplit.wire.messages import Bye, Close, Fault, Loaded, Loading, Need, Open, Ping, Pong, Want
from trisplit.wire.packing import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)

CONNECT_DEADLINE_S: Final = 10.0
PING_EVERY_S: Final = 0.3
IDLE_PING_EVERY_S: Final = 10.0  # where no silence is a loss: often enough for stations not to leave us
LOADING_SILENCE_S: Final = 60.0
SILENCE_S: Final = 10.0  # without an answer to a ping: a station that is busy answers all the same


@dataclass(slots=True)
class Peer:
    """One station: its link, and what it has said that nobody has asked for yet."""

    name: str
    address: str
    link: Link
    said: deque[Message] = field(default_factory=deque)
    questions: dict[tuple[type, int], deque[asyncio.Future[Any]]] = field(default_factory=dict)
    arrival: asyncio.Future[None] | None = None
    is_member: bool = False  # has loaded, and is asked and told all that others are
    is_lost: bool = False
    streams: set[int] = field(default_factory=set)  # open there
    loaded: Loaded | None = None
    pinged_s: float | None = None  # when the ping was sent that is not answered yet
    round_trip_ms: float | None = None

    def note_trip(self, took_s: float) -> None:
        """A word and its answer have taken so long: the shortest tells the way."""
        took_ms = 1e3 * took_s
        self.round_trip_ms = took_ms if self.round_trip_ms is None else min(took_ms, self.round_trip_ms)

    @property
    def full_name(self) -> str:
        """Our name for it, and its own if somebody gave it one."""
        welcome = self.link.welcome
        if welcome is None or welcome.name in (self.name, f"station-{welcome.pid}"):
            return self.name
        return f"{self.name} ({welcome.name})"


@dataclass(frozen=True, slots=True)
class Loss:
    """A station that is no more, and why."""

    peer: Peer
    problem: Exception

    @property
    def name(self) -> str:
        return self.peer.name


class StationLost(PeerProblem):
    """A station was lost while it was waited for."""


class Peers:
    """All stations of a mesh. `losses` says who was lost; `fail` ends every wait with the reason."""

    def __init__(self, silence_s: float, trust: Trust) -> None:
        self._trust = trust
        self.losses: asyncio.Queue[Loss] = asyncio.Queue()
        self._peers: dict[str, Peer] = {}
        self._listeners: dict[str, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._silence_s = silence_s
        self._pinging = asyncio.create_task(self._ping())

    def __getitem__(self, name: str) -> Peer:
        """The station of this name; if it was lost, why the mesh cannot go on, or StationLost."""
        if name not in self._peers:
            raise self._failure or StationLost(f"station {name} is lost", fix="start it again there")
        return self._peers[name]

    def __contains__(self, name: str) -> bool:
        return name in self._peers

    def __iter__(self) -> Iterator[Peer]:
        return iter([*self._peers.values()])

    async def meet(
        self, name: str, address: str, hello: Hello, on_activation: Callable[[Activation], None]
    ) -> None:
        """Connects to a station and begins to listen to it."""
        link = await connect(address, hello=hello, deadline_s=CONNECT_DEADLINE_S, trust=self._trust)
        link.peer = f"station {name} at {address}"
        link.on_activation = on_activation
        peer = self._peers[name] = Peer(name, address, link)
        self._listeners[name] = asyncio.create_task(self._listen(peer))

    async def leave(self, reason: str) -> None:
        """Says Bye to everybody."""
        tasks = [self._pinging, *self._listeners.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in self:
            await peer.link.close(reason)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def has(self, peer: Peer) -> bool:
        """Whether it is not forgotten yet."""
        return self._peers.get(peer.name) is peer

    def drop(self, name: str) -> None:
        """Forgets a station that was lost; one that lives after all is not listened to, and is let go.

        Rows it sends late would be of a past that others have left behind. Does not wait for its socket.
        """
        link = self._peers.pop(name).link
        self._listeners.pop(name).cancel()
        link.on_activation = unheard
        closing = asyncio.create_task(link.close("the station was given up"))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _listen(self, peer: Peer) -> None:
        try:
            while True:
                self._hear(peer, await peer.link.receive(None))
        except Exception as error:
            self._lose(peer, error)

    def _hear(self, peer: Peer, said: Message | Activation) -> None:
        if isinstance(said, Fault):
            raise PeerProblem(f"station {peer.name}: {said.what}", fix=said.fix)
        if isinstance(said, (Bye, Activation)):
            return  # after Bye the next wait says why the link has ended
        if isinstance(said, Severed):
            what = f"station {peer.name} lost its link to station {said.station}: {said.why}"
            if said.station in self._peers:
                self._lose(self._peers[said.station], PeerProblem(what, fix="see its output"))
            return
        if isinstance(said, Pong):
            self._answered(peer)
            return
        key = type(said), getattr(said, "stream", 0)
        asked = peer.questions.get(key)
        if not asked:
            if len(peer.said) >= MAX_WAITING:
                raise PeerProblem(f"station {peer.name} talks faster than it is heard", fix=SAME_VERSION)
            peer.said.append(said)
            if peer.arrival is not None and not peer.arrival.done():
                peer.arrival.set_result(None)
            return
        answer = asked.popleft()  # of several questions of a kind the oldest is answered first
        if not asked:
            del peer.questions[key]
        if not answer.done():
            answer.set_result(said)

    def _lose(self, peer: Peer, error: Exception) -> None:
        """Says once that a station is no more; its questions are never answered."""
        if self.has(peer) and not peer.is_lost:
            peer.is_lost = True
            self.losses.put_nowait(Loss(peer, error))
            lost = _lost(peer, error)
            for waiting in [*chain.from_iterable(peer.questions.values()), peer.arrival]:
                if waiting is not None and not waiting.done():
                    waiting.set_exception(lost)
            peer.questions.clear()

    def mend(self) -> None:
        """Waits are worth while again."""
        self._failure = None

    def fail(self, error: Exception) -> None:
        """Ends every wait, now and from now on."""
        self._failure = self._failure or error
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(self._failure)

    # --- life ---

    async def _ping(self) -> None:
        """Asks every station again and again whether it lives; one that is silent for long is lost."""
        every_s = PING_EVERY_S if self._silence_s < inf else IDLE_PING_EVERY_S
        while True:
            slept_s = time.monotonic()  # a loop's own clock may tell milliseconds only
            await asyncio.sleep(every_s)
            now_s = time.monotonic()
            for peer in self:
                if peer.pinged_s is None:
                    self._send_ping(peer, now_s)
                elif now_s - slept_s > 2 * every_s:
                    peer.pinged_s = now_s  # we were busy ourselves: its answer may wait to be read
                elif now_s - peer.pinged_s > (limit_s := self._limit_s(peer)):
                    what = f"station {peer.name} did not answer for {limit_s:g} s"
                    self._lose(peer, PeerProblem(what, fix="see what it does: its host may be gone"))

    def _limit_s(self, peer: Peer) -> float:
        """How long a station may be silent: while it builds sessions it is deaf for seconds on end."""
        return self._silence_s if peer.loaded else max(self._silence_s, LOADING_SILENCE_S)

    def _send_ping(self, peer: Peer, now_s: float) -> None:
        try:
            peer.link.send(Ping(0))
        except PeerProblem:
            return  # whoever listens to it says so
        peer.pinged_s = now_s

    def _answered(self, peer: Peer) -> None:
        if peer.pinged_s is not None:
            peer.note_trip(time.monotonic() - peer.pinged_s)
            peer.pinged_s = None

    # --- waiting ---

    async def ask(self, peer: Peer, word: Message, kind: type[M], deadline_s: float) -> M:
        """Says a word and waits for its answer, which is about the same stream if it is about one."""
        answer = self.question(peer, word, kind)
        return await self.wait(
            answer, deadline_s, f"the answer of station {peer.name} to {type(word).__name__}"
        )

    def question(self, peer: Peer, word: Message, kind: type[M]) -> asyncio.Future[M]:
        """Says a word; the future is its answer. `wait` for it."""
        answer: asyncio.Future[M] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # heard, waited for or not
        if isinstance(word, Open):
            peer.streams.add(word.stream)
        elif isinstance(word, Close):
            peer.streams.discard(word.stream)
        try:
            peer.link.send(word)
        except PeerProblem as problem:
            answer.set_exception(_lost(peer, problem))
            return answer
        peer.questions.setdefault((kind, getattr(word, "stream", 0)), deque()).append(answer)
        return answer

    async def next(self, peer: Peer, deadline_s: float) -> Message:
        """The next word of a station that answers no question."""
        if not peer.said:
            peer.arrival = asyncio.get_running_loop().create_future()
            await self.wait(peer.arrival, deadline_s, f"an answer of station {peer.name}")
        said = peer.said.popleft()
        if not isinstance(said, (Loading, Need, Want, Loaded, Refused, Gauged)):
            raise PeerProblem(f"station {peer.name} said {type(said).__name__} unasked", fix=SAME_VERSION)
        return said

    async def wait(self, future: asyncio.Future[T], deadline_s: float, what: str) -> T:
        """The future's result, or why the mesh cannot go on, or PeerProblem at the deadline."""
        if self._failure is not None:
            raise self._failure
        late = PeerProblem(
            f"{what} did not come within {deadline_s:g} s",
            fix="see what the stations do, or ask for less at once",
        )
        timer = asyncio.get_running_loop().call_later(
            deadline_s, lambda: None if future.done() else future.set_exception(late)
        )
        self._waiting.add(future)
        try:
            return await future
        finally:
            timer.cancel()
            self._waiting.discard(future)


def _lost(peer: Peer, why: Exception) -> StationLost:
    if isinstance(why, Problem):
        return StationLost(f"station {peer.name} was lost: {why.what}", fix=why.fix)
    what = f"station {peer.name} was lost: {type(why).__name__}: {why}"
    return StationLost(what, fix="see its own output")
