"""What is done when a station is lost: others take its groups, its past is played again, the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from trisplit.errors import RequestProblem
from trisplit.mesh.failover import flows_out_of, moved, taken_over, unseen_from
from trisplit.mesh.flow import Flow
from trisplit.mesh.membership import ANSWER_DEADLINE_S, Membership
from trisplit.mesh.plan import Plan
from trisplit.mesh.pushing import Stock
from trisplit.mesh.streams import Stream
from trisplit.wire.choosing import Sampling
from trisplit.wire.losses import Again, Begun, Replay, Resume, Resumed, Seen, Skip, Survey, Surveyed
from trisplit.wire.messages import Message, Open, Opened

M = TypeVar("M", bound=Message)

MOST_TRIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One loss that was made good; seconds of the monotonic clock."""

    lost: tuple[str, ...]
    takers: tuple[str, ...]
    noticed_s: float
    loaded_s: float


@dataclass(slots=True)
class Recovery:
    """Makes good what is lost. `send` says a chunk of a stream to the first group again."""

    members: Membership
    stock: Stock
    send: Callable[[Stream, int, Sequence[int]], None]
    limits: dict[str, int | None] = field(default_factory=dict)

    async def run(self, before: Plan, lost: Collection[str], streams: Sequence[Stream]) -> Recovered:
        """From the plan that was whole last to one without those stations, every stream where it was.

        PlanProblem when nobody has room; StationLost when one more is lost on the way: run it again.
        """
        noticed_s = time.monotonic()
        for name in lost:
            if name in self.members.peers:
                self.members.peers.drop(name)
        self.members.away = frozenset(n for n, home in enumerate(before.homes) if home in lost)
        new = await self._taken(before, lost)
        loaded_s = time.monotonic()
        groups = sorted(number for numbers in new.values() for number in numbers)
        for stream in streams:
            for name in new:
                if stream.number not in self.members.peers[name].streams:  # it has come later
                    await self._ask(name, Open(stream.number), Opened)
        await self.members.join(held=groups, without=tuple(lost))
        self.members.away = frozenset()  # what was said before is played again, and comes behind
        await self._resume(new, streams)
        await self._replay(groups, streams)
        return Recovered(
            lost=tuple(lost),
            takers=tuple(new),
            noticed_s=noticed_s,
            loaded_s=loaded_s,
        )

    async def _taken(self, before: Plan, lost: Collection[str]) -> dict[str, list[int]]:
        """Has others build the lost groups; who refuses is not asked again."""
        for _ in range(MOST_TRIES):
            present = {peer.name for peer in self.members.present}
            spares = [name for name in before.spares if name in present]
            after = taken_over(before, lost, spares, self.limits)
            new = moved(before, after)
            self.members.plan = after
            try:
                for name, groups in new.items():
                    await self.members.adopt(name, groups, self.stock)
            except RequestProblem:
                self.limits[name] = 0
            else:
                return new
        raise RequestProblem("no station takes what was lost", fix="start another station")

    async def _resume(self, new: dict[str, list[int]], streams: Sequence[Stream]) -> None:
        """Tells the takers which of what they will leave others have seen, and how to choose."""
        seen = [each for peer in self.members.present for each in (await self._survey(peer.name)).seen]
        plan = self.members.plan
        takes = {number for numbers in new.values() for number in numbers}
        for stream in streams:
            _, began = stream.epochs[-1] if stream.epochs else (0, 0)
            for name, groups in new.items():
                skips = [
                    Skip(flow.target, flow.residual, self._news(stream, flow, takes, seen))
                    for flow in flows_out_of(plan, groups)
                ]
                await self._ask(name, Resume(stream.number, stream.epoch, began, tuple(skips)), Resumed)
                if self.members.end - 1 in groups and stream.order is not None:
                    # Of a prompt that is still being fed all is known; of an answer, what was fed for sure.
                    known = max(stream.order.ids, tuple(stream.ids), key=len)
                    order = msgspec.structs.replace(stream.order, epoch=stream.epoch, ids=known)
                    await self._ask(name, order, Sampling)

    def _news(self, stream: Stream, flow: Flow, takes: Collection[int], seen: Sequence[Seen]) -> int:
        """From which position on what flows is news."""
        if flow.target == self.members.end:
            return stream.sent if stream.order is not None else stream.back
        if flow.target in takes:
            return 0
        return unseen_from([each for each in seen if each.stream == stream.number], flow, stream.epochs)

    async def _replay(self, groups: Collection[int], streams: Sequence[Stream]) -> None:
        """Has all who sent something to the lost groups send it again: ourselves first."""
        first = [group for group in groups if group == 0]
        if first:
            for stream in streams:
                for position, ids in stream.fed:
                    self.send(stream, position, ids)
            await self._survey(self.members.home(0).name)  # it has them: what comes later comes behind
        for targets in (first, [group for group in groups if group != 0]):
            again = [
                Again(
                    stream.number,
                    stream.epoch,
                    len(stream.ids) if targets == first else 0,
                    tuple(Begun(epoch, began) for epoch, began in stream.epochs),
                )
                for stream in streams
            ]
            for peer in self.members.present:
                if targets:
                    peer.link.send(Replay(tuple(targets), tuple(again)))

    async def _survey(self, name: str) -> Surveyed:
        return await self._ask(name, Survey(), Surveyed)

    async def _ask(self, name: str, word: Message, kind: type[M]) -> M:
        return await self.members.peers.ask(self.members.peers[name], word, kind, ANSWER_DEADLINE_S)
