"""A process that holds stages and answers frames: empty until a coordinator loads it."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from trisplit.errors import OwnProblem, PeerProblem, Problem, RequestProblem
from trisplit.machine import available_bytes, rss_bytes
from trisplit.mesh.dialled import Dialled, unheard
from trisplit.mesh.door import Tally
from trisplit.mesh.fetching import Supplier
from trisplit.mesh.gauging import gauged_for
from trisplit.mesh.holding import Held
from trisplit.mesh.keeping import Keeper
from trisplit.mesh.link import Link, fault
from trisplit.mesh.listening import next_word
from trisplit.mesh.loading import Tell, build
from trisplit.mesh.onward import Onward, Send
from trisplit.mesh.runner import Runner
from trisplit.mesh.tail import told_to_sample
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.wire import choosing
from trisplit.wire.choosing import Drafted, Fence, Sample
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.gauging import Gauge
from trisplit.wire.greeting import VERSION, Hello
from trisplit.wire.losses import Refused, Replay, Resume, Resumed, Severed, Survey, Surveyed
from trisplit.wire.messages import (
    Adopt,
    Ask,
    Bye,
    Close,
    Closed,
    Facts,
    Fault,
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
    Way,
)
from trisplit.wire.session import Said

Build = Callable[[Load, Supplier, Tell], Awaitable[Held]]

MOST_LATER: Final = 16  # orders that wait for a load; each may be as long as a control message
SILENCE_S: Final = 30.0  # of a coordinator, which pings three times a second

_LOG = logging.getLogger(__name__)


class Station:
    """Holds stages for one coordinator at a time and passes frames along."""

    def __init__(self, name: str, trust: Trust = NOBODY, build: Build = build) -> None:
        """`build` makes what an order to load asks for."""
        self.name, self._build_with = name, build
        self.tally = Tally()
        self._trust = trust
        self._coordinator: Link | None = None
        self._mesh: str | None = None  # of the coordinator; rows of another are late or lost
        self._name_there = name
        self._held: Held | None = None
        self._later: deque[Said] = deque()  # what is to be done when what is loaded just now is here
        self._runner: Runner | None = None
        self._keeps = False
        self._keeper = Keeper()
        self._dialled = Dialled(trust)
        self._upstream: dict[str, Link] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="stages")

    async def accept(self, link: Link) -> None:
        """Serves one connection until it ends: a coordinator's orders, or a station's frames."""
        if link.hello is not None and link.hello.role == "client":
            what = f"a client has called station {self.name}, which only coordinators and stations do"
            raise PeerProblem(what, fix="ask a mesh, where `trisplit up` said it listens")
        if link.hello is not None and link.hello.role == "station":
            mesh = link.hello.mesh
            link.on_activation = lambda said: self._take(said) if mesh == self._mesh else None
            link.on_fence = lambda said: self._fence(said) if mesh == self._mesh else None
            self._upstream[link.hello.name] = link
            await link.wait_closed()
            if self._upstream.get(link.hello.name) is link:
                del self._upstream[link.hello.name]
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
        link.on_activation, link.on_fence = self._take, self._fence
        try:
            while True:
                await self._answer(
                    link, self._later.popleft() if self._later else await next_word(link, SILENCE_S)
                )
        except Problem as problem:  # also that the coordinator has left, which it need not be told
            await link.close_with(problem)
        except Exception as error:
            await link.close_with(self._failed(f"{type(error).__name__}: {error}"))
        finally:
            self._coordinator, self._mesh = None, None
            self._hold(None)
            self._later.clear()
            await self._dialled.leave()
            await link.close("the station is empty again")

    async def _answer(self, link: Link, said: Said) -> None:
        match said:
            case Gauge():
                link.send(await gauged_for(link, said, self._hello, self._trust))
            case Load():
                self._hold(None)
                self._hold(await self._build(link, said))
                self._keeps = said.keeps
                link.send(self._loaded())
            case Adopt():
                link.send(await self._adopt(link, said.order))
            case Join():
                await self._join(link, said)
                link.send(Joined())
            case Open():
                self._holding().open(said.stream)
                link.send(Opened(said.stream))
            case Close():
                self._holding().close(said.stream)
                self._keeper.forget(said.stream)
                link.send(Closed(said.stream))
            case Sample():
                self._sample(said)
                link.send(choosing.Sampling(said.stream))
            case Drafted():
                self._holding().draft(said)
            case Survey():
                link.send(self._held.survey() if self._held else Surveyed((), 0))
            case Resume():
                self._holding().resume(said.stream, said.epoch, said.began)
                self._keeper.resume(said)
                link.send(Resumed(said.stream))
            case Replay():
                self._keeper.replay(said.targets, said.streams)
            case Recall():
                visits = self._held.visits if self._held else ()
                of_stream = tuple(visit for visit in visits if visit.stream == said.stream)
                link.send(Recalled(said.stream, of_stream))
            case Bye() | Fault():
                pass  # the next wait says why the link has ended
            case Ask():
                held = self._held
                ran = (held.frames, held.busy_ms) if held else (0, 0.0)
                full = (len(held.streams), held.kv_bytes) if held else (0, 0)
                link.send(Facts(rss_bytes(), *ran, self.tally.refused, *full, available_bytes()))
            case _:
                raise PeerProblem(
                    f"it said {type(said).__name__}, which no station answers", fix=SAME_VERSION
                )

    def _sample(self, said: Sample) -> None:
        held = self._holding()
        held.sample(said.stream, told_to_sample(said, context=held.context, vocab=held.vocab))

    # --- loading ---

    def _hold(self, held: Held | None) -> None:
        """Holds this from now on, and nothing of what was before."""
        if self._runner is not None:
            self._runner.stop()
        self._held, self._runner = held, None
        if held is None:
            self._keeper.clear()
        else:
            self._runner = Runner(
                held, self._worker, self._keeper.send, self._dialled.say, self._could_not_run
            )

    async def _build(self, link: Link, said: Load) -> Held:
        """Builds the sessions asked for, telling the coordinator how far it is and what is not here."""
        async with Supplier(link.send, partial(self._hear_while_loading, link)) as supplier:
            return await self._build_with(said, supplier, link.send)

    async def _adopt(self, link: Link, said: Load) -> Loaded | Refused:
        """Builds groups whose station was lost, beside those that are here."""
        held = self._holding()
        try:
            built = await self._build(link, said)
        except RequestProblem as problem:
            return Refused(problem.what, problem.fix)
        held.adopt(built)
        return self._loaded()

    def _loaded(self) -> Loaded:
        held = self._holding()
        return Loaded(held.weight_bytes, held.kv_bytes_per_token, rss_bytes(), held.rows_equal)

    async def _hear_while_loading(self, link: Link) -> Offer | Piece:
        """The next word about what is loaded; others are answered on the way.

        What is to be loaded too, and ways to what is not here yet, wait in their order until it is.
        """
        while not isinstance(said := await next_word(link, SILENCE_S), (Offer, Piece)):
            if isinstance(said, Load):
                what = "it said Load before its last order was carried out"
                raise PeerProblem(what, fix=SAME_VERSION)
            if isinstance(said, (Adopt, Join)):
                if len(self._later) >= MOST_LATER:
                    what = f"it said {type(said).__name__} while {MOST_LATER} orders wait for a load"
                    raise PeerProblem(what, fix="wait for Loaded and Joined")
                self._later.append(said)
            else:
                await self._answer(link, said)
        return said

    # --- ways on ---

    async def _join(self, link: Link, order: Join) -> None:
        """Connects to every successor; frames for our own groups stay here."""
        held = self._holding()
        held.join(order)
        self._name_there = order.name
        for name in order.without:
            if name in self._upstream:
                self._dialled.part(self._upstream.pop(name), "its station was given up")
        self._dialled.keep_only({way.address for way in order.ways}.union(order.told))
        onward, kept = Onward(), set()
        for way in order.ways:
            onward.add(way, await self._sender(link, way))
            if self._keeps and way.target != order.end and (way.held or way.target not in held.groups):
                kept.add(way.target)
        self._keeper.point(onward, order, kept=kept)
        await self._dialled.tell(order.told, self._hello)
        for each in (link, *self._dialled):
            each.batched = order.batched

    async def _sender(self, link: Link, way: Way) -> Send:
        """Who brings frames where a way leads."""
        if way.target in self._holding().groups:
            return self._take
        if not way.address:
            return link.send
        try:
            return partial(self._pass_on, await self._dialled.to(way.address, self._hello), way)
        except PeerProblem as problem:
            link.send(Severed(way.station, problem.what))
            return unheard

    def _pass_on(self, link: Link, way: Way, said: Activation) -> None:
        """To a successor. If it is gone the coordinator hears of it, and sees to what was said."""
        try:
            link.send(said)
        except PeerProblem as problem:
            if self._dialled.has(way.address, link) and self._coordinator is not None:
                self._dialled.drop(way.address, "")
                with contextlib.suppress(Problem):  # that link has ended too
                    self._coordinator.send(Severed(way.station, problem.what))

    @property
    def _hello(self) -> Hello:
        """How we greet other stations."""
        return Hello(VERSION, mesh=self._mesh or "", role="station", name=self._name_there)

    # --- frames ---

    def _holding(self) -> Held:
        if self._held is None:
            raise PeerProblem(f"station {self.name} holds no stages", fix="load it first")
        return self._held

    def _take(self, said: Activation) -> None:
        """A frame, straight from the socket or from ourselves.

        One that makes no sense ends the link it came by; whatever stops a frame, the coordinator hears of it
        at once and need not wait for a deadline.
        """
        if self._runner is None:
            return
        try:
            self._runner.take(said)
        except Problem as problem:
            self._report(problem, said.stream)
            raise

    def _fence(self, said: Fence) -> None:
        if self._held is not None:
            self._held.fence(said.stream, said.epoch)

    def _could_not_run(self, error: Exception, said: Activation) -> None:
        if not isinstance(error, Problem):
            error = self._failed(f"group {said.group} could not run: {error}")
        self._report(error, said.stream)

    def _failed(self, what: str) -> OwnProblem:
        """A failure nobody foresaw: its traceback goes to our output, its gist to the coordinator."""
        _LOG.exception("station %s failed", self.name)
        return OwnProblem(f"station {self.name} failed: {what}", fix="see the station's output")

    def _report(self, problem: Problem, stream: int) -> None:
        """Tells the coordinator what went wrong on the way on."""
        if self._coordinator is not None:
            with contextlib.suppress(Problem):  # its link has ended too
                self._coordinator.send(fault(problem, stream))
