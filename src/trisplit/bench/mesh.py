"""The ladder: every cut, topology and lever on the same links, beside its floor, in the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from statistics import median

from trisplit.bench import probe
from trisplit.bench.gains import Gain, gains
from trisplit.bench.levers import Levers
from trisplit.bench.mesh_rows import MeshRow, Rung
from trisplit.bench.meshes import Ground, MeshFacts
from trisplit.bench.peers import Answer, Order
from trisplit.bench.rounds import Turn, Worker, alternate, started
from trisplit.bench.waterfall import Span
from trisplit.bench.wires import Wires
from trisplit.errors import RequestProblem
from trisplit.mesh.overlap import Ahead
from trisplit.mesh.predict import COORDINATOR
from trisplit.models.config import Kind
from trisplit.models.model import Model, context_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The ladder that is to be climbed: a rung for each cut, topology and set of levers.

    Each turn makes `tokens`, the first of which follows the prompt; those numbered `first` to `last` count,
    2 or higher. `ahead`: what starts ahead with the lever `overlap`.
    """

    ground: Ground
    cuts: Sequence[str]
    topologies: Sequence[str]
    levers: Sequence[Levers]
    tokens: int
    first: int
    last: int
    rounds: int
    ahead: Ahead | None = None

    def order(self, model: Model) -> Order:
        """What every engine is asked in its turn."""
        warm, prompt_ids = self.first - 2, self.ground.subject.prompt_of(model)
        return {"prompt_ids": prompt_ids, "warm": warm, "tokens": self.tokens - 1 - warm}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayRow:
    """How much longer than nominal bytes were held.

    By the probe, between two processes that do nothing else, before anything else starts; then as each mesh's
    relays saw it of themselves. `is_real_time`: whether the system lets them run before others.
    """

    links: str
    is_real_time: bool | None
    n: int
    p50_ms: float
    best_ms: float
    p95_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A rung that was asked for and cannot be, and why."""

    cut: str
    topology: str
    levers: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """What a ladder gave; `token` is one of its quickest rung, `best`, about as long as its median."""

    rows: tuple[MeshRow, ...]
    left_out: tuple[LeftOut, ...]
    gains: tuple[Gain, ...]
    relays: tuple[RelayRow, ...]
    best: MeshRow
    token: tuple[Span, ...]


async def mesh(asked: Asked) -> Climbed:
    """Loads every mesh before the first round; then they, the decoder and the single stages take turns.

    Problems of a plan come before anything starts; RequestProblem when the meshes do not fit into memory, or
    there is no rung.
    """
    ground, model = asked.ground, asked.ground.subject.opened()
    order = asked.order(model)
    context = context_for(model.config, len(order["prompt_ids"]) + asked.tokens)
    meshes, left_out = _possible(asked, model, context)
    ground.subject.refuse_copies(model, ground.dtype, 2 + len(meshes))
    relays = [] if ground.wires.is_bare else [await _probed(ground.wires)]
    async with started(ground.references(context)) as (one, alone):
        stage_ms = _medians([await alone.ask(order)])
        meshes = [(replace(each, stage_ms=stage_ms), able) for each, able in meshes]
        async with started([each.post() for each, _ in meshes]) as workers:
            rungs = [(each, one, levers) for (each, able), one in zip(meshes, workers) for levers in able]
            turns: list[Turn] = [(one, order), (alone, order)]
            turns += [(worker, order | {"levers": asdict(levers)}) for _, worker, levers in rungs]
            ones, steps, *answers = await alternate(turns, asked.rounds)
            for (each, _), worker in zip(meshes, workers):
                relays += await _lateness(each, worker)
    # Token n stands n - 1 after the prompt, and is made from the one before.
    fed = len(order["prompt_ids"]) - 2
    climbed = [
        Rung(
            facts=facts,
            plan=facts.pulled(facts.plan(model), levers),
            config=model.config,
            levers=levers,
            answers=taken,
            first=fed + asked.first,
            last=fed + asked.last,
        )
        for (facts, _, levers), taken in zip(rungs, answers)
    ]
    rows = [rung.row(ones, _medians(steps)) for rung in climbed]
    best = min(range(len(rows)), key=lambda n: rows[n].p50_ms)
    return Climbed(
        rows=tuple(rows),
        left_out=tuple(left_out),
        gains=tuple(gains(rows)),
        relays=tuple(relays),
        best=rows[best],
        token=tuple(climbed[best].typical()),
    )


def _possible(
    asked: Asked, model: Model, context: int
) -> tuple[list[tuple[MeshFacts, list[Levers]]], list[LeftOut]]:
    """Which of the levers each mesh can pull, and what is left out; RequestProblem where that is all."""
    possible, left_out, why = [], list[LeftOut](), None
    for cut, topology in product(asked.cuts, asked.topologies):
        facts = MeshFacts(ground=asked.ground, cut=cut, topology=topology, context=context, ahead=asked.ahead)
        plan, able = facts.plan(model), list[Levers]()
        for each in asked.levers:
            try:
                facts.pulled(plan, each)
                able.append(each)
            except RequestProblem as problem:
                left_out.append(LeftOut(cut=cut, topology=topology, levers=each.name, why=problem.what))
                why = why or problem
        if able:
            possible.append((facts, able))
    if why is not None and not possible:
        raise why
    return possible, left_out


def _medians(answers: Sequence[Answer]) -> dict[Kind, float]:
    """What a stage of each kind takes."""
    kinds: dict[Kind, list[float]] = {}
    for answer in answers:
        for kind, ms in answer["stage_ms"].items():
            kinds.setdefault(kind, []).extend(ms)
    return {kind: median(ms) for kind, ms in kinds.items()}


async def _probed(wires: Wires) -> RelayRow:
    late = await probe.measure(wires.delay(COORDINATOR, wires.stations[0]))
    return RelayRow(links="probe", is_real_time=None, **asdict(late))


async def _lateness(facts: MeshFacts, worker: Worker) -> list[RelayRow]:
    late = await worker.ask({"what": "lateness"})
    return [RelayRow(links=facts.name, **late)] if late else []
