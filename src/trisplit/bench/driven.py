"""A mesh in the hands of a bench: the coordinator in this process, stations and relays as its children."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from itertools import pairwise
from typing import Final

from trisplit.bench.levers import Levers
from trisplit.bench.meshes import MeshFacts
from trisplit.bench.peers import Answer, Order
from trisplit.bench.relay import Relays, relays
from trisplit.bench.waiting import WaitingEnds
from trisplit.machine import rss_bytes
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.fleet import local_stations
from trisplit.mesh.plan import Plan
from trisplit.mesh.predict import COORDINATOR
from trisplit.mesh.pushing import to_the_end
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.models.decoder import chunks
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model
from trisplit.models.sampling import Sampling
from trisplit.models.session import Floats

# Nobody is asked whether it lives: of the meshes of a bench all but one should sleep.
SILENCE_S: Final = math.inf  # a mesh that is not its turn is asleep; it is pinged so seldom that none leaves


class NoText:
    """A detokenizer for those who want ids alone."""

    def push(self, _: int, /) -> str:
        return ""

    def flush(self) -> str:
        return ""


class TimedEnds(Ends):
    """Other ends, and when they ran: milliseconds of the monotonic clock."""

    def __init__(self, ends: Ends) -> None:
        self._ends, self.weight_bytes = ends, ends.weight_bytes
        self.forget()

    def forget(self) -> None:
        """Begins the notes anew."""
        self.embeds: list[tuple[float, float]] = []
        self.heads: list[tuple[float, float]] = []

    def embed(self, ids: Sequence[int]) -> Floats:
        """As `Ends.embed`."""
        began_s = time.monotonic()
        rows = self._ends.embed(ids)
        self.embeds.append((1e3 * began_s, 1e3 * time.monotonic()))
        return rows

    def logits(self, rows: Sequence[Floats]) -> list[Floats]:
        """As `Ends.logits`."""
        began_s = time.monotonic()
        logits = self._ends.logits(rows)
        self.heads.append((1e3 * began_s, 1e3 * time.monotonic()))
        return logits


class Driven:
    """A mesh that has loaded, and what a bench has it do."""

    def __init__(
        self, facts: MeshFacts, plan: Plan, mesh: Coordinator, ends: TimedEnds | None, slow: Relays | None
    ) -> None:
        self.facts, self.plan, self.mesh = facts, plan, mesh
        self._ends, self._relays = ends, slow
        self._levers = Levers()

    async def pull(self, levers: Levers) -> None:
        """Has the mesh use these levers from now on."""
        if levers != self._levers:
            self.mesh.members.plan = self.facts.pulled(self.plan, levers)
            await self.mesh.members.tune(batched=levers.batched, routed=levers.routed)
            self._levers = levers

    async def stretch(self, order: Order) -> Answer:
        """As `peers.stretch`, and what was seen of the tokens that count: see `seen.tokens_seen`.

        `order` names `levers`, too; the answer tells what the processes hold.
        Times are from one token to the next, at the coordinator.
        """
        await self.pull(Levers(**order.get("levers", {})))
        if self._ends is not None:
            self._ends.forget()
        prompt_ids, tokens = tuple(order["prompt_ids"]), 1 + order["warm"] + order["tokens"]
        answer = generation(prompt_ids, tokens, self.facts.context)
        stream, came_ms = await self.mesh.open(), list[float]()
        async for _ in self.mesh.generate(stream, answer):
            came_ms.append(1e3 * time.monotonic())
        first, past = len(prompt_ids) + order["warm"], len(prompt_ids) + tokens - 1
        visits = [
            (v.group, v.position, v.arrived_ms, v.began_ms, v.ended_ms)
            for of_station in (await self.mesh.members.visits(stream.number)).values()
            for v in of_station
            if first <= v.position < past
        ]
        await self.mesh.close(stream)
        ms = [later - sooner for sooner, later in pairwise(came_ms)]
        seen = {"visits": visits, **self._ends_seen(first, past)}
        return {
            "token_ids": answer.token_ids,
            "ms": ms[order["warm"] :],
            **seen,
            "processes": await self._processes(),
        }

    def _ends_seen(self, first: int, past: int) -> Answer:
        """When embed and head ran for the rows at these positions, which were the last."""
        if self._ends is None:
            return {"embeds": [], "heads": []}
        n = past - first
        positions = range(first, past)
        return {
            what: [(position, *times) for position, times in zip(positions, notes[-n:])]
            for what, notes in (("embeds", self._ends.embeds), ("heads", self._ends.heads))
        }

    async def sessions(self, order: Order) -> Answer:
        """Several stretches at once, one for each of `prompts`, of `tokens` each.

        Answers the `token_ids` of each, and `came_ms`, when each of them came.
        """
        await self.pull(Levers(**order["levers"]))
        ran = await asyncio.gather(
            *(self._run(prompt_ids, order["tokens"]) for prompt_ids in order["prompts"])
        )
        return {"token_ids": [ids for ids, _ in ran], "came_ms": [came_ms for _, came_ms in ran]}

    async def _run(self, prompt_ids: Sequence[int], tokens: int) -> tuple[list[int], list[float]]:
        answer = generation(prompt_ids, tokens, self.facts.context)
        stream, came_ms = await self.mesh.open(), list[float]()
        async for _ in self.mesh.generate(stream, answer):
            came_ms.append(1e3 * time.monotonic())
        await self.mesh.close(stream)
        return answer.token_ids, came_ms

    async def prompt(self, order: Order) -> Answer:
        """How long `prompt_ids` take, and the id that follows: all chunks sent close together, or `apart`.

        Apart a chunk is sent only once the one before has come back; no logits are asked of what comes back
        but the last, so the time of those heads is taken off. Not for a ring.
        """
        assert self._ends is not None
        self._ends.forget()
        stream, ids, began_s = await self.mesh.open(), order["prompt_ids"], time.monotonic()
        for piece, position in chunks(ids, 0) if order["apart"] else [(ids, 0)]:
            logits = await self.mesh.forward(stream, piece, position)
        took_ms = 1e3 * (time.monotonic() - began_s)
        extra_ms = sum(ended - began for began, ended in self._ends.heads[:-1])
        await self.mesh.close(stream)
        return {"first_ms": took_ms - extra_ms, "token_ids": [int(logits.argmax())]}

    async def _processes(self) -> list[Answer]:
        """What coordinator and stations hold, and their memory now."""
        weight_bytes = self._ends.weight_bytes if self._ends is not None else 0
        stages = "embed, head" if self._ends is not None else "nothing"
        own = {"name": "coordinator", "stages": stages, "weight_bytes": weight_bytes}
        return [*map(asdict, await self.mesh.facts()), own | {"rss_bytes": rss_bytes()}]

    async def lateness(self) -> Answer:
        """How exact the relays were since this was last asked; empty where there are none."""
        late = await self._relays.lateness() if self._relays is not None else None
        if self._relays is None or late is None:
            return {}
        return asdict(late) | {"is_real_time": self._relays.is_real_time}


def generation(prompt_ids: Sequence[int], tokens: int, context: int) -> Generation:
    """The likeliest `tokens` after a prompt, whatever they mean."""
    request = Request(prompt_ids=tuple(prompt_ids), sampling=Sampling(), max_tokens=tokens, ignore_eos=True)
    return Generation(request, NoText(), context)


@asynccontextmanager
async def driven(
    facts: MeshFacts, addresses: Mapping[str, str] | None = None, trust: Trust = NOBODY
) -> AsyncIterator[Driven]:
    """Loads stations that run at `addresses`, or ones it starts, behind relays unless the wires are bare.

    Ends all that it has started.
    """
    model = facts.ground.subject.opened()
    plan = facts.plan(model)
    ends = None if plan.topology == "ring" else TimedEnds(_ends(facts, model))
    async with AsyncExitStack() as stack:
        slow, silence_s = None, SILENCE_S if addresses is None else None
        if addresses is None:
            names = [share.station for share in plan.shares]
            addresses = await stack.enter_async_context(local_stations(names, options=facts.options()))
        if not facts.wires.is_bare:
            slow = await stack.enter_async_context(relays(facts.wires.links(addresses)))
        apart = slow.addresses_for if slow is not None else {}
        between = {caller: {**addresses, **dialled} for caller, dialled in apart.items()}
        mesh = Coordinator(
            model,
            ends,
            plan,
            between.get(COORDINATOR, addresses),
            between=between,
            sessions=facts.sessions,
            silence_s=silence_s,
            trust=trust,
        )
        await stack.enter_async_context(mesh)
        ground = facts.ground
        await to_the_end(mesh.load(ground.dtype, context=facts.context, threads=ground.threads))
        yield Driven(facts, plan, mesh, ends, slow)


def _ends(facts: MeshFacts, model: Model) -> Ends:
    if facts.ground.subject.waits:
        return WaitingEnds(model.config, facts.ground.subject.waits)
    return Ends(model.config, *model.files(model.ends, facts.ground.dtype), threads=facts.ground.threads)
