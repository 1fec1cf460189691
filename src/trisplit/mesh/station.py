"""A process that holds stages and answers frames: empty until a coordinator loads it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Final

from trisplit.errors import OwnProblem, PeerProblem, Problem
from trisplit.machine import cpu_kind, gather_into_huge_pages, return_free_memory, rss_bytes
from trisplit.mesh.address import Address, host_and_port
from trisplit.mesh.calling import connect
from trisplit.mesh.door import Tally
from trisplit.mesh.facts import RUNTIME
from trisplit.mesh.fetching import Supplier
from trisplit.mesh.flow import Flow
from trisplit.mesh.holding import Held, Work
from trisplit.mesh.link import Link, fault
from trisplit.mesh.loading import Loader, understand
from trisplit.mesh.onward import Onward
from trisplit.mesh.server import listen
from trisplit.mesh.tail import Tail
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.models.sampling import Sampling
from trisplit.wire import messages
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.messages import (
    VERSION,
    Ask,
    Bye,
    Close,
    Closed,
    Facts,
    Fault,
    Fence,
    Hello,
    Join,
    Joined,
    Load,
    Loaded,
    Offer,
    Open,
    Opened,
    Piece,
    Recall,
    Recalled,
    Sample,
    Way,
    Welcome,
)
from trisplit.wire.session import Said

CONNECT_DEADLINE_S: Final = 10.0
SHORT_MS: Final = 50.0  # what may keep the loop from answering a ping

_LOG = logging.getLogger(__name__)


class Station:
    """Holds stages for one coordinator at a time and passes frames along."""

    def __init__(self, name: str, trust: Trust = NOBODY) -> None:
        self.name = name
        self.tally = Tally()
        self._trust = trust
        self._coordinator: Link | None = None
        self._mesh: str | None = None  # of the coordinator; rows of another are late or lost
        self._held: Held | None = None
        self._links: dict[str, Link] = {}
        self._onward = Onward()
        self._running = False  # or about to
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="stages")  # one run at a time

    async def accept(self, link: Link) -> None:
        """Serves one connection until it ends: a coordinator's orders, or a station's frames."""
        if link.hello is not None and link.hello.role == "station":
            mesh = link.hello.mesh
            link.on_activation = lambda said: self._take(said) if mesh == self._mesh else None
            await link.wait_closed()
        elif self._coordinator is not None:
            await link.close_with(
                PeerProblem(
                    f"station {self.name} already works for another coordinator",
                    fix="wait until it is done, or use another station",
                )
            )
        else:
            await self._obey(link)

    async def _obey(self, link: Link) -> None:
        self._coordinator = link
        self._mesh = link.hello.mesh if link.hello is not None else None
        link.on_activation = self._take
        try:
            while True:
                await self._answer(link, await link.receive(None))
        except Problem as problem:  # also that the coordinator has left, which it need not be told
            await link.close_with(problem)
        except Exception as error:
            await link.close_with(self._failed(f"{type(error).__name__}: {error}"))
        finally:
            self._coordinator, self._held, self._mesh = None, None, None
            await self._leave()
            await link.close("the station is empty again")

    async def _answer(self, link: Link, said: Said) -> None:
        match said:
            case Load():
                link.send(await self._load(link, said))
            case Join():
                await self._join(link, said)
                link.send(Joined())
            case Open():
                self._holding().open(said.stream)
                link.send(Opened(said.stream))
            case Close():
                self._holding().close(said.stream)
                link.send(Closed(said.stream))
            case Sample():
                self._holding().sample(said.stream, _tail(said, self._holding()))
                link.send(messages.Sampling(said.stream))
            case Fence():
                self._holding().fence(said.stream, said.epoch)
            case Recall():
                link.send(Recalled(tuple(self._holding().visits)))
            case Bye() | Fault():
                pass  # the next wait says why the link has ended
            case Ask():
                held = self._held
                ran = (held.frames, held.busy_ms) if held else (0, 0.0)
                full = (len(held.streams), held.kv_bytes) if held else (0, 0)
                link.send(Facts(rss_bytes(), *ran, self.tally.refused, *full))
            case _:
                raise PeerProblem(
                    f"it said {type(said).__name__}, which no station answers", fix=SAME_VERSION
                )

    # --- loading ---

    async def _load(self, link: Link, said: Load) -> Loaded:
        """Builds the sessions asked for, telling the coordinator how far it is and what is not here."""
        self._held = None
        order = await asyncio.to_thread(understand, said)
        loader = Loader(order, Supplier(link.send, partial(self._hear_while_loading, link)), link.send)
        async with aclosing(loader.build()) as built:
            groups = {group.number: group async for group in built}
        equal = all(group.session.rows_equal(said.sessions) for group in groups.values())
        return_free_memory()  # what converting has used is of no use any more
        gather_into_huge_pages()
        self._held = Held(groups, equal, order.kv_bytes_per_token, said.sessions)
        return Loaded(self._held.weight_bytes, self._held.kv_bytes_per_token, rss_bytes(), equal)

    async def _hear_while_loading(self, link: Link, deadline_s: float) -> Said:
        """The next word about what is loaded; others are answered on the way."""
        while not isinstance(said := await link.receive(deadline_s), (Offer, Piece)):
            await self._answer(link, said)
        return said

    # --- ways on ---

    async def _join(self, link: Link, order: Join) -> None:
        """Connects to every successor; frames for our own groups stay here."""
        held = self._holding()
        await self._leave()
        held.end = order.end
        held.flows = {n: tuple(_flow(way) for way in order.ways if way.source == n) for n in held.groups}
        for way in order.ways:
            if way.target in held.groups:
                self._onward.add(way, held.take)
            elif way.address:
                self._onward.add(way, (await self._link_to(way.address)).send)
            else:
                self._onward.add(way, link.send)

    async def _link_to(self, address: str) -> Link:
        if address not in self._links:
            hello = Hello(VERSION, mesh=self._mesh or "", role="station", name=self.name)
            self._links[address] = await connect(
                address, hello=hello, deadline_s=CONNECT_DEADLINE_S, trust=self._trust
            )
        return self._links[address]

    async def _leave(self) -> None:
        self._onward = Onward()
        while self._links:
            await self._links.popitem()[1].close()

    # --- frames ---

    def _holding(self) -> Held:
        if self._held is None:
            raise PeerProblem(f"station {self.name} holds no stages", fix="load it first")
        return self._held

    def _take(self, said: Activation) -> None:
        """A frame, straight from the socket; it runs in the next turn of the loop, with what came beside it.

        A frame that makes no sense ends the link it came by; whatever stops a frame, the coordinator
        hears of it at once and need not wait for a deadline.
        """
        if self._held is None:
            return
        try:
            self._held.take(said)
        except Problem as problem:
            self._report(problem, said.stream)
            raise
        self._run_soon()

    def _run_soon(self) -> None:
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Runs what is ready: here if that is short, else in a thread, so that pings are answered."""
        self._running = False
        held = self._held
        works = held.next() if held is not None else []
        if held is None or not works:
            return
        self._running = True
        if works[0].said.rows == 1 and held.expected_ms(works) < SHORT_MS:
            self._finish(held, works, partial(held.run, works))
        else:
            running = asyncio.get_running_loop().run_in_executor(self._worker, held.run, works)
            running.add_done_callback(lambda done: self._finish(held, works, done.result))

    def _finish(self, held: Held, works: Sequence[Work], result: Callable[[], list[Activation]]) -> None:
        """Sends on what a run has left, and sees to the next."""
        said = works[0].said
        self._running = False
        try:
            for on in result():
                if held is self._held:
                    self._onward.send(on)
        except Problem as problem:
            self._report(problem, said.stream)
        except Exception as error:  # the engine's own: out of memory, above all
            self._report(self._failed(f"group {said.group} could not run: {error}"), said.stream)
        self._run_soon()

    def _failed(self, what: str) -> OwnProblem:
        """A failure nobody foresaw: its traceback goes to our output, its gist to the coordinator."""
        _LOG.exception("station %s failed", self.name)
        return OwnProblem(f"station {self.name} failed: {what}", fix="see the station's output")

    def _report(self, problem: Problem, stream: int) -> None:
        """Tells the coordinator what went wrong on the way on."""
        if self._coordinator is not None:
            with contextlib.suppress(Problem):  # its link has ended too
                self._coordinator.send(fault(problem, stream))


def _flow(way: Way) -> Flow:
    return Flow(way.source, way.target, way.residual)


def _tail(said: Sample, held: Held) -> Tail:
    """What an order to sample asks for. PeerProblem when there is no room for it, or no such tokens."""
    longest, greatest = max(said.end, len(said.ids)), max(said.ids, default=0)
    if longest > held.context or greatest >= held.vocab:
        what = f"{longest:,} ids up to {greatest:,}, with room for {held.context:,} below {held.vocab:,}"
        raise PeerProblem(what, fix=SAME_VERSION)
    how = Sampling(
        temperature=said.temperature,
        top_k=said.top_k,
        top_p=said.top_p,
        min_p=said.min_p,
        repetition_penalty=said.repetition_penalty,
        seed=said.seed,
    )
    return Tail(said.ids, how, epoch=said.epoch, end=said.end, stop_ids=frozenset(said.stop_ids))


async def serve(
    listen_at: str,
    *,
    name: str,
    announce: Callable[[str], None],
    trust: Trust = NOBODY,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Listens and serves until cancelled; `announce` is told the address it got.

    RequestProblem when the address cannot be had, or can be reached from other machines and there is
    no secret.
    """
    host, port = host_and_port(listen_at)
    station = Station(name or f"station-{os.getpid()}", trust)
    welcome = Welcome(VERSION, station.name, os.getpid(), cpu_kind(), RUNTIME)
    server = await listen(
        host, port, welcome=welcome, accept=station.accept, trust=trust, tls=tls, tally=station.tally
    )
    announce(str(Address(host, server.port, tls is not None)))
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await server.close()
