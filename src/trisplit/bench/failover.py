"""What a lost station costs: each, killed, stopped or cut off, at the first, a middle, the last token."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from trisplit.bench.delays import Delay
from trisplit.bench.posts import context_of, decoding
from trisplit.bench.progress import shown
from trisplit.bench.relay import Relays, links_between, relays
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.fleet import local_stations
from trisplit.mesh.plan import Plan
from trisplit.mesh.pushing import to_the_end
from trisplit.mesh.room import Room
from trisplit.models.convert import Dtype
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, context_for, open_model
from trisplit.models.sampling import Sampling

SPARE: Final = "spare"
SILENCE_S: Final = 0.9  # with a ping every 0.3 s a silent station is known for lost within 1.5 s
HOWS: Final[Mapping[str, str]] = {
    "kill": "the process is killed, and its sockets close",
    "stop": "the process is stopped, and its sockets stay",
    "cut": "the process runs on, and nothing it says or should hear comes through",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRow:
    """One loss. `gap_ms` is the longest wait for a token after it: noticing, loading, playing the past again.

    `replay_ms` is what is left of the gap beside `detect_ms` and `load_ms`, the lost token's own trip in it.
    """

    killed: str
    stages: str
    at_token: int
    how: str
    topology: str
    detect_ms: float
    load_ms: float
    replay_ms: float
    gap_ms: float
    tokens_equal: bool


class _Ids:
    """A detokenizer for those who look at ids only."""

    def push(self, _: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class _Case:
    station: str
    at_token: int
    how: str


async def failover(
    path: Path,
    *,
    stations: int,
    cut: str,
    topology: str,
    tokens: int,
    dtype: Dtype,
    threads: int,
    hows: Sequence[str],
) -> list[FailoverRow]:
    """A fresh mesh with a spare for each loss; tokens are compared with the decoder's in this process."""
    model = open_model(path)
    prompt = decoding(model, tokens)
    request = Request(
        prompt_ids=tuple(prompt["prompt_ids"]), sampling=Sampling(), max_tokens=tokens, ignore_eos=True
    )
    context = context_for(model.config, context_of(prompt))
    truth = _truth(path, request, dtype, threads=threads, context=context)
    rooms = [Room(f"s{i}", None) for i in range(1, stations + 1)]
    drawn = plan_model(model, rooms, cut=cut, topology=topology, dtype=dtype, context=context)
    drawn = replace(drawn, spares=(SPARE,))
    ends = None
    if topology != "ring":
        ends = Ends(model.config, *model.files(model.ends, dtype), threads=threads)
    cases = [_Case(share.station, at, how) for how in hows for share in drawn.shares for at in _times(tokens)]
    rows = []
    for case in shown(cases, "losing stations"):
        async with _mesh(model, ends, drawn, cuts=case.how == "cut") as (mesh, way):
            await to_the_end(mesh.load(dtype, context=context, threads=threads))
            rows.append(await _lose(mesh, case, Generation(request, _Ids(), context), way, truth))
    return rows


def _times(tokens: int) -> list[int]:
    return sorted({1, max(1, tokens // 2), max(1, tokens - 1)})


def _truth(path: Path, request: Request, dtype: Dtype, *, threads: int, context: int) -> list[int]:
    decoder = Decoder.load(path, dtype, threads=threads, context=context)
    answer = Generation(request, _Ids(), context)
    return [piece.token_id for piece in decoder.generate(answer)]


@asynccontextmanager
async def _mesh(
    model: Model, ends: Ends | None, drawn: Plan, *, cuts: bool
) -> AsyncIterator[tuple[Coordinator, Relays | None]]:
    names = [*(share.station for share in drawn.shares), *drawn.spares]
    async with local_stations(names) as addresses:
        links = links_between(addresses, Delay(one_way_ms=0.0))
        async with relays(links) if cuts else nullcontext() as way:
            between = way.addresses_for if way is not None else {}
            ours = between.get("coordinator", addresses)
            mesh = Coordinator(model, ends, drawn, ours, between=between, silence_s=SILENCE_S, recovers=True)
            async with mesh:
                yield mesh, way


async def _lose(
    mesh: Coordinator, case: _Case, answer: Generation, way: Relays | None, truth: Sequence[int]
) -> FailoverRow:
    """One answer, in the middle of which a station is lost."""
    (facts,) = [facts for facts in await mesh.facts() if facts.name == case.station]
    assert facts.pid is not None  # it has just answered
    stream, lost_s, times_s = await mesh.open(), 0.0, [time.monotonic()]
    async for _ in mesh.generate(stream, answer):
        times_s.append(time.monotonic())
        if len(answer.token_ids) == case.at_token:
            lost_s = time.monotonic()
            await _take_away(case, facts.pid, way)
    while not mesh.recoveries:  # the last token was past the station already
        await asyncio.sleep(0.05)
    (done,) = mesh.recoveries
    after = [(then - before, then) for before, then in pairwise(times_s) if then > lost_s]
    gap_s, arrived_s = max(after)
    if case.how == "stop":
        os.kill(facts.pid, signal.SIGKILL)
    return FailoverRow(
        killed=case.station,
        stages=facts.stages,
        at_token=case.at_token,
        how=case.how,
        topology=mesh.plan.topology,
        detect_ms=1e3 * (done.noticed_s - lost_s),
        load_ms=1e3 * (done.loaded_s - done.noticed_s),
        replay_ms=1e3 * max(0.0, arrived_s - done.loaded_s),
        gap_ms=1e3 * gap_s,
        tokens_equal=answer.token_ids == truth,
    )


async def _take_away(case: _Case, pid: int, way: Relays | None) -> None:
    if way is not None:
        await way.cut(case.station)
    else:
        os.kill(pid, signal.SIGSTOP if case.how == "stop" else signal.SIGKILL)
