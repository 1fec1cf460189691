"""SPINE: a prompt in, once round the mesh per token, tokens out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Final

from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.ahead import refuse_with_drafts, refuse_with_failover
from trisplit.mesh.facts import StationFacts, of_stations, of_this_process
from trisplit.mesh.membership import ANSWER_DEADLINE_S, Membership
from trisplit.mesh.peers import SILENCE_S, Loss, Peer, Peers, StationLost
from trisplit.mesh.plan import Plan
from trisplit.mesh.pushing import How, Progress, Stock, Weights, to_the_end
from trisplit.mesh.recovery import Recovered, Recovery
from trisplit.mesh.speculating import Speculate, Speculation
from trisplit.mesh.streams import Stream, order_to_sample
from trisplit.mesh.trips import Trips
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.models.convert import Dtype
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Piece
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.wire.frame import DECODED, SAME_VERSION, Activation
from trisplit.wire.messages import Ask, Close, Closed, Facts, Open, Opened

QUESTIONS: Final = 5  # of which the quickest answer tells how far a station is


class Coordinator:
    """Drives a mesh of stations; keeps embed and head unless it is a ring, where stations hold them.

    Use `async with Coordinator(...)`; then `async for … in load()`, `open` for each sequence, `generate`,
    `close`. A station that is lost takes the mesh with it: every wait ends with a PeerProblem that names it.
    With `recovers` others take its groups and every sequence goes on; who returns is a spare.
    """

    def __init__(
        self,
        model: Model,
        ends: Ends | None,
        plan: Plan,
        addresses: Mapping[str, str],
        *,
        between: Mapping[str, Mapping[str, str]] | None = None,
        sessions: int = 1,
        silence_s: float | None = None,
        recovers: bool = False,
        limits: Mapping[str, int | None] | None = None,
        routed: bool = False,
        trust: Trust = NOBODY,
    ) -> None:
        """`ends` is None for a ring. `sessions` may be open at once; one more waits. `routed`: see `ways`.

        `between` is caller → station → address, where stations reach each other by others than ours. Routes
        of frames under way do not survive a recovery, so there are none where there may be one. `limits` are
        the bytes stations offer for weights and KV, None where none was stated. RequestProblem when layers of
        the plan start ahead and the mesh `recovers`: early rows are not replayed.
        """
        refuse_with_failover(plan, recovers=recovers)
        self.model, self.ends, self.sessions = model, ends, sessions
        self._plan, self._addresses, self._between = plan, addresses, between or {}
        self._trust = trust
        self._silence_s = SILENCE_S if silence_s is None else silence_s
        self._recovers, self._routed = recovers, routed and not recovers
        self._limits = dict(limits or {})
        self.recoveries: list[Recovered] = []
        self.last_loss: Loss | None = None
        self._streams: dict[int, Stream] = {}
        self._opened = 0
        self._free = asyncio.Semaphore(sessions)
        self._broken: Problem | None = None
        self._returns: dict[str, asyncio.Task[None]] = {}
        self._drafting = ThreadPoolExecutor(1, thread_name_prefix="drafts")

    @property
    def plan(self) -> Plan:
        """Who holds what now."""
        return self._members.plan

    @property
    def members(self) -> Membership:
        """The stations, and how they are told where to send."""
        return self._members

    async def __aenter__(self) -> Coordinator:
        peers = Peers(self._silence_s, self._trust)
        self._members = Membership(self._plan, peers, self._addresses, self._between, self._routed)
        self._trips = Trips(self.model.config.hidden, self.ends, self._members, self._streams, self._recovers)
        self._guarding = asyncio.create_task(self._guard())
        try:
            for name in [share.station for share in self.plan.shares]:
                await self._members.meet(name, self._arrive)
            if self._recovers:
                for name in self.plan.spares:
                    await self._members.meet(name, self._arrive)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._guarding, *self._returns.values()):
            task.cancel()
        await self._members.peers.leave("the coordinator is done")
        self._drafting.shutdown(cancel_futures=True)

    async def load(
        self, dtype: Dtype, *, context: int, threads: int, weights: Weights = "auto"
    ) -> AsyncGenerator[Progress, None]:
        """Has every station build its stages, all at once; yields how far each is. To be closed."""
        self._members.how = How(
            context=context,
            threads=threads,
            sessions=self.sessions,
            keeps=self._recovers,
        )
        stock = Stock(self.model, dtype, weights)
        self._recovery = Recovery(self._members, stock, self._trips.send, self._limits)
        async with aclosing(self._members.load(stock)) as steps:
            async for step in steps:
                yield step
        await self._members.join()
        self._trips.whole.set()

    async def leg_ms(self) -> float:
        """One way over the wire to a station, in the middle, once each has answered some questions."""
        await asyncio.gather(*map(self._question, self._members.present))
        return 1e3 * self._trips.leg_s

    async def _question(self, peer: Peer) -> None:
        for _ in range(QUESTIONS):
            asked_s = time.monotonic()
            await self._members.peers.ask(peer, Ask(), Facts, ANSWER_DEADLINE_S)
            peer.note_trip(time.monotonic() - asked_s)

    async def facts(self, *, silent: bool = False) -> list[StationFacts]:
        """What each station holds and does now; see `of_stations`."""
        return await of_stations(self._members.peers, self.plan.shares, ANSWER_DEADLINE_S, silent=silent)

    def own_facts(self) -> StationFacts:
        """What this process holds."""
        if self.ends is None:
            return of_this_process("coordinator", "", 0)
        return of_this_process("coordinator", "embed, head", self.ends.weight_bytes)

    async def tune(self, *, batched: bool) -> None:
        """Has everybody send in batches from now on, or not; also under answers, not while one is lost."""
        await self._trips.whole.wait()
        with contextlib.suppress(*([StationLost] if self._recovers else [])):  # a recovery tells it everybody
            await self._members.tune(batched=batched, routed=self._members.routed)

    # --- loss and return ---

    async def _guard(self) -> None:
        """Sees to what is lost, one loss after the other."""
        while True:
            loss = await self._members.peers.losses.get()
            if not self._members.peers.has(loss.peer):  # it was given up with another
                continue
            self.last_loss = loss
            if not self._recovers or not self._trips.whole.is_set():
                self._members.peers.fail(loss.problem)
                return
            if not loss.peer.is_member:  # it had come back, and nobody relied on it yet
                self._members.peers.drop(loss.name)
                self._look_for(loss.name)
                continue
            self._trips.whole.clear()
            await self._make_good(loss)
            self._trips.whole.set()

    async def _make_good(self, loss: Loss) -> None:
        """Recovers from a loss, and from those on the way; without room all streams end with the reason."""
        before, lost = self.plan, [loss.name, *self._members.missing]
        self._members.peers.mend()
        for name in lost:
            if name in self._returns:
                self._returns.pop(name).cancel()
        for stream in self._streams.values():
            if stream.known is not None:  # what was drafted is not played again
                stream.restart()
                self._trips.fence(stream)
        while True:
            try:
                self.recoveries.append(await self._recovery.run(before, lost, [*self._streams.values()]))
                self._broken = None
                break
            except StationLost:
                name = (await self._members.peers.losses.get()).name
                lost += [name] if name not in lost else []
            except Problem as problem:
                self._break(before, problem)
                break
        for name in lost:
            self._look_for(name)

    def _look_for(self, name: str) -> None:
        """Takes a lost station back as soon as it is there; one search at a time."""
        if name in self._returns:
            self._returns[name].cancel()
        self._returns[name] = asyncio.create_task(self._await_return(name))

    def _break(self, before: Plan, problem: Problem) -> None:
        """Ends every stream, and opens none until who is missing is back."""
        self._members.plan = before
        self._broken = problem
        self._members.peers.fail(problem)
        for number in [*self._streams]:
            del self._streams[number]
            self._free.release()
            for peer in self._members.present:
                with contextlib.suppress(Problem):
                    self._members.peers.question(peer, Close(number), Closed)

    async def _await_return(self, name: str) -> None:
        """Takes a station back that was lost, once: for what it held if nobody does, else as a spare."""
        members = self._members
        peer = await members.meet_again(name, self._arrive)
        with contextlib.suppress(Problem):  # lost again: it will be seen to
            members.peers.mend()
            await to_the_end(members.load(self._recovery.stock, [name]))
            await self._trips.whole.wait()
            if self._broken is None:
                await members.join([name])
                await self._trips.whole.wait()  # another may have been lost meanwhile
            members.take_in(peer, self._streams)
            if self._broken is not None and members.is_whole:
                await members.join()
                members.away, self._broken = frozenset(), None

    # --- streams ---

    async def open(self) -> Stream:
        """Starts a stream on every station; waits until one is free and all have room for it.

        While nobody holds some of the groups, the Problem that says so.
        """
        await self._free.acquire()
        await self._trips.whole.wait()
        if self._broken is not None:
            self._free.release()
            raise self._broken
        self._opened += 1
        stream = self._streams[self._opened] = Stream(self._opened, self.model.config.hidden)
        await self._members.everyone(Open(stream.number), Opened)
        return stream

    async def close(self, stream: Stream) -> None:
        """Ends a stream; its keys and values are forgotten everywhere."""
        await self._trips.whole.wait()
        if self._streams.pop(stream.number, None) is not None:
            try:
                await self._members.everyone(Close(stream.number), Closed)
            finally:
                self._free.release()

    # --- tokens ---

    def speculation(self, stream: Stream, answer: Generation, how: Speculate) -> Speculation:
        """An answer that is drafted ahead, to the same tokens. RequestProblem where layers start ahead."""
        refuse_with_drafts(self.plan)
        return Speculation(self._trips, stream, answer, how, self._drafting)

    async def generate(self, stream: Stream, answer: Generation) -> AsyncGenerator[Piece, None]:
        """Runs an answer to its end, piece by piece."""
        if self.ends is None:
            async with aclosing(self._round(stream, answer)) as pieces:
                async for piece in pieces:
                    yield piece
        while not answer.finished:
            decoded = bool(answer.token_ids)
            yield answer.take(await self.forward(stream, answer.pending, answer.position, decoded=decoded))

    async def forward(
        self, stream: Stream, ids: Sequence[int], position: int, *, decoded: bool = False
    ) -> Floats:
        """Logits [vocab] after the last of `ids`: one trip down a chain or over a star.

        The chunks of a prompt follow each other closely; `decoded`: it is one id, and no prompt's, with which
        attentions may start ahead. The next trip of any stream overwrites what this one returned.
        """
        trips = self._trips
        stream.move_to(position, len(ids))
        await trips.feed(stream, ids, position, DECODED if decoded else 0)
        while stream.back < stream.sent:
            await trips.wait(stream, "an answer to a token")
        return await trips.logits(stream.last())

    async def _round(self, stream: Stream, answer: Generation) -> AsyncGenerator[Piece, None]:
        """The same in a ring: the tail chooses and feeds, and we listen."""
        trips = self._trips
        stream.move_to(answer.position, len(answer.pending))
        stream.order = order_to_sample(stream, answer)
        try:
            await trips.order(stream.order)
            await trips.feed(stream, answer.pending, answer.position)
            while not answer.finished:
                while (came := stream.next_came()) is None:
                    await trips.wait(stream, "a token")
                yield answer.accept(came.token_id)
        finally:  # what the ring still does for it is void: it may have run past a stop
            stream.void()
            trips.fence(stream)

    def _arrive(self, said: Activation) -> None:
        """A frame, straight from the socket: the end of a trip, or in a star a hop to hand on."""
        if said.group == self._members.end:
            stream = self._streams.get(said.stream)
            if stream is not None:
                stream.arrive(said)
        elif self.plan.topology == "star" and said.group < self._members.end:
            self._trips.hand_on(said)
        else:
            raise PeerProblem(f"{said.rows} rows for group {said.group}", fix=SAME_VERSION)
