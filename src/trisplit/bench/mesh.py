"""What splitting costs: chains of station processes beside the decoder in one process, in the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trisplit.bench.peers import Answer
from trisplit.bench.posts import Settings, context_of, decoding
from trisplit.bench.rounds import Turn, alternate, spread, started
from trisplit.mesh.costs import plan_model
from trisplit.mesh.plan import Plan
from trisplit.mesh.room import Room
from trisplit.models.convert import Dtype
from trisplit.models.model import Model, context_for, open_model, refuse_if_short


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshRow:
    """One cut; times are of a token once round the mesh, over all rounds.

    `one_process_ms`: the median of the decoder in one process, as many threads, in the same rounds; `ratio`:
    p50_ms over that. `tokens_equal`: whether every round chose the decoder's own tokens.
    """

    cut: str
    topology: str
    stations: int
    one_way_ms: float
    legs_per_token: int
    dtype: str
    threads: int
    p50_ms: float
    best_ms: float
    p95_ms: float
    one_process_ms: float
    ratio: float
    tokens_equal: bool


def planned(model: Model, cut: str, stations: int, *, dtype: Dtype, context: int) -> Plan:
    """The plan for stations s1, s2, … that state no limit; PlanProblem where the cut needs more."""
    rooms = [Room(f"s{i}", None) for i in range(1, stations + 1)]
    return plan_model(model, rooms, cut=cut, dtype=dtype, context=context)


async def mesh(
    path: Path,
    *,
    stations: int,
    cuts: Sequence[str],
    tokens: int,
    dtype: Dtype,
    threads: int,
    rounds: int,
) -> list[MeshRow]:
    """Measures every cut over loopback; all are loaded before the first round, and take turns."""
    model = open_model(path)
    order = decoding(model, tokens)
    context = context_for(model.config, context_of(order))
    plans = [planned(model, cut, stations, dtype=dtype, context=context) for cut in cuts]
    weights = sum(model.weight_bytes(stage, dtype) for stage in model.stages)
    refuse_if_short((1 + len(cuts)) * weights, f"the weights, {1 + len(cuts)} times over,")
    how = Settings(model=model.checkpoint.path, dtype=dtype, threads=threads, context=context)
    posts = [how.decoder(), *(how.chain(cut, stations) for cut in cuts)]
    async with started(posts) as workers:
        turns: list[Turn] = [(worker, order) for worker in workers]
        one, *meshes = await alternate(turns, rounds)
    return [_row(drawn, answers, one, dtype=dtype, threads=threads) for drawn, answers in zip(plans, meshes)]


def _row(
    drawn: Plan, answers: Sequence[Answer], one: Sequence[Answer], *, dtype: Dtype, threads: int
) -> MeshRow:
    times, alone = spread(answers), spread(one)
    return MeshRow(
        cut=drawn.cut,
        topology=drawn.topology,
        stations=len(drawn.shares),
        one_way_ms=0.0,
        legs_per_token=drawn.legs_per_token,
        dtype=dtype,
        threads=threads,
        p50_ms=times.p50_ms,
        best_ms=times.best_ms,
        p95_ms=times.p95_ms,
        one_process_ms=alone.p50_ms,
        ratio=times.p50_ms / alone.p50_ms,
        tokens_equal=all(a["token_ids"] == o["token_ids"] for a, o in zip(answers, one)),
    )
