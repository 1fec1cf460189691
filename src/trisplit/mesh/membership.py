"""The stations of one mesh: who is met, who holds which groups, and how they are told where to send."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from trisplit.errors import Problem
from trisplit.mesh import pushing
from trisplit.mesh.flow import flows
from trisplit.mesh.link import Link
from trisplit.mesh.peers import Peer, Peers, StationLost
from trisplit.mesh.plan import Plan, Share
from trisplit.mesh.pushing import How, Progress, Stock
from trisplit.mesh.ways import ways, with_routes
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import VERSION, Hello
from trisplit.wire.messages import (
    Adopt,
    Join,
    Joined,
    Load,
    Message,
    Open,
    Opened,
    Recall,
    Recalled,
    Visit,
    Way,
)

JOIN_DEADLINE_S: Final = 30.0  # more than a station gives its successors to answer
ANSWER_DEADLINE_S: Final = 10.0
RETURN_EVERY_S: Final = 1.0  # how often a lost station is looked for


@dataclass(slots=True)
class Membership:
    """Stations by name and what each holds; `addresses` are those we dial, `between` those that others do.

    `between` is caller → station → HOST:PORT, for links that are not the same from everywhere; who is not in
    it dials as we do.
    """

    plan: Plan
    peers: Peers
    addresses: Mapping[str, str]
    between: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    routed: bool = False
    batched: bool = False
    away: frozenset[int] = frozenset()
    """Groups that are lost, until who takes them is ready for their rows."""
    mesh: str = field(default_factory=lambda: secrets.token_hex(8))
    how: How = field(init=False)  # as of the last load

    @property
    def end(self) -> int:
        """The number frames to the coordinator are addressed to."""
        return len(self.plan.groups)

    @property
    def present(self) -> list[Peer]:
        """All stations but those that are back and not ready yet."""
        return [peer for peer in self.peers if peer.is_member]

    @property
    def is_whole(self) -> bool:
        """Whether every group's station is here and has loaded."""
        return not self.missing

    @property
    def missing(self) -> list[str]:
        """Stations of the plan that are not here, or not ready yet."""
        present = {peer.name for peer in self.present}
        return [name for name in dict.fromkeys(self.plan.homes) if name not in present]

    def home(self, group: int) -> Peer:
        """The station that holds a group."""
        return self.peers[self.plan.homes[group]]

    def link(self, group: int) -> Link:
        """The way to the station that holds a group."""
        return self.home(group).link

    async def meet(self, name: str, on_activation: Callable[[Activation], None]) -> None:
        """Connects to a station. PeerProblem when it cannot be reached or works for another."""
        hello = Hello(VERSION, mesh=self.mesh, role="coordinator", name="coordinator")
        await self.peers.meet(name, self.addresses[name], hello, on_activation)
        self.peers[name].link.batched = self.batched

    async def meet_again(self, name: str, on_activation: Callable[[Activation], None]) -> Peer:
        """The same, however long it takes until one answers there."""
        while True:
            await asyncio.sleep(RETURN_EVERY_S)
            with contextlib.suppress(Problem):
                await self.meet(name, on_activation)
                return self.peers[name]

    def take_in(self, peer: Peer, streams: Iterable[int]) -> None:
        """One that is back has loaded: a member now, these streams open; a spare if it holds nothing."""
        if peer.is_lost:
            return
        peer.is_member = True
        for number in streams:
            self.peers.question(peer, Open(number), Opened)
        if peer.name not in (*self.plan.homes, *self.plan.spares):
            self.plan = replace(self.plan, spares=(*self.plan.spares, peer.name))

    async def load(self, stock: Stock, names: Collection[str] = ()) -> AsyncGenerator[Progress, None]:
        """Has these stations, or all, build what they hold; those that hold nothing have everything ready."""
        shares = {share.station: share for share in self.plan.shares}
        orders: dict[str, Load | Adopt] = {}
        for peer in self.peers:
            if not names or peer.name in names:
                share = shares.get(peer.name) or Share("", self.plan.groups)
                orders[peer.name] = stock.order(share.groups, self.how, builds=peer.name in shares)
        async with aclosing(pushing.load(self.peers, orders, stock)) as steps:
            async for step in steps:
                yield step
        for peer in () if names else self.peers:
            peer.is_member = True

    async def adopt(self, name: str, groups: Sequence[int], stock: Stock) -> None:
        """Has a station build these groups too. RequestProblem when it has no room."""
        share = Share(name, tuple(group for group in self.plan.groups if group.number in groups))
        order = {name: Adopt(stock.order(share.groups, self.how))}
        await pushing.to_the_end(pushing.load(self.peers, order, stock))

    async def join(
        self, names: Collection[str] = (), *, held: Collection[int] = (), without: Sequence[str] = ()
    ) -> None:
        """Tells these stations, or all, where what they leave goes; to `held` groups after a replay."""
        told = ways(self.plan, self._address)
        if self.routed:
            told = with_routes(told)
        early = [flow.target for flow in flows(self.plan) if flow.early]
        rewrites = self.plan.ahead is None or self.plan.ahead.early.kv == "canonical"
        joining = []
        for peer in [self.peers[name] for name in names] or self.present:
            those = [self._held(way, held) for way in told.get(peer.name, ())]
            ahead = tuple(group for group in early if self.home(group) is peer)
            word = Join(
                ways=tuple(those),
                end=self.end,
                name=peer.name,
                without=tuple(without),
                ahead=ahead,
                rewrites=rewrites,
                batched=self.batched,
                told=self._told_by(peer.name),
            )
            joining.append(self.peers.question(peer, word, Joined))
        for joined in joining:
            await self.peers.wait(joined, JOIN_DEADLINE_S, "the stations' connections to each other")

    async def tune(self, *, batched: bool, routed: bool) -> None:
        """Has everybody send by these levers from now on, between one trip and the next."""
        self.batched, self.routed = batched, routed
        for peer in self.peers:
            peer.link.batched = batched
        await self.join()

    async def visits(self, stream: int) -> dict[str, tuple[Visit, ...]]:
        """Which rows of a stream have passed each station lately, and when."""
        found = {}
        for peer in self.peers:
            said = await self.peers.ask(peer, Recall(stream), Recalled, ANSWER_DEADLINE_S)
            found[peer.name] = said.visits
        return found

    def _told_by(self, name: str) -> tuple[str, ...]:
        """Whom a station tells what is void: a ring's tail everybody who holds something."""
        if self.plan.topology != "ring" or self.plan.homes[-1] != name:
            return ()
        others = [share.station for share in self.plan.shares if share.station != name]
        return tuple(self._address(name, other) for other in others)

    def _held(self, way: Way, held: Collection[int]) -> Way:
        return msgspec.structs.replace(way, held=True) if way.target in held else way

    def _address(self, caller: str, station: str) -> str:
        """Where a station finds another; itself, in a ring of one, where we find it."""
        known = self.addresses if caller == station else self.between.get(caller, self.addresses)
        return known[station]

    async def everyone(self, word: Message, answer: type[Message]) -> None:
        """Says this to every station and waits for all answers; who is lost meanwhile need not answer."""
        said = [self.peers.question(peer, word, answer) for peer in self.present]
        for each in said:
            try:
                await self.peers.wait(each, ANSWER_DEADLINE_S, f"{answer.__name__} of every station")
            except StationLost:
                continue
