"""Many sessions at once: tokens a second of all of them, beside those of one alone on the same mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median

from trisplit.bench.levers import Levers
from trisplit.bench.meshes import Ground, MeshFacts
from trisplit.bench.peers import Answer, Order
from trisplit.bench.rounds import Turn, alternate, started
from trisplit.mesh.batching import prompts_of
from trisplit.mesh.overlap import Ahead
from trisplit.models.model import context_for


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsRow:
    """So many sessions at once; figures are medians over the rounds.

    `tok_per_s`: of all together, from the first token of any to the last of all. `gain`: over one session,
    with the same levers in the same rounds. `p50_ms`: from token to token of one. `tokens_equal`: whether
    each chose what the decoder chooses alone, in every round; with `overlap` that is no fault.
    """

    cut: str
    topology: str
    stations: int
    levers: str
    one_way_ms: float | None
    legs_per_token: int
    dtype: str
    threads: int
    sessions: int
    tok_per_s: float
    gain: float
    p50_ms: float
    tokens_equal: bool


async def sessions(
    ground: Ground,
    cut: str,
    topology: str,
    *,
    sessions: int,
    levers: Sequence[Levers],
    tokens: int,
    rounds: int,
    ahead: Ahead | None = None,
) -> list[SessionsRow]:
    """One session, then all of them, with each of the levers in turns; `tokens` of each, two or more.

    `ahead`: what starts ahead with the lever `overlap`. RequestProblem where that cannot.
    """
    model = ground.subject.opened()
    prompts = prompts_of(ground.subject.prompt_of(model), sessions)
    context = context_for(model.config, len(prompts[0]) + tokens)
    facts = MeshFacts(
        ground=ground, cut=cut, topology=topology, context=context, sessions=sessions, ahead=ahead
    )
    plan = facts.plan(model)
    for each in levers:
        facts.pulled(plan, each)
    ground.subject.refuse_copies(model, ground.dtype, 2)
    asked: list[tuple[Levers, int, Order]] = [
        (each, n, {"what": "sessions", "prompts": prompts[:n], "tokens": tokens, "levers": asdict(each)})
        for each in levers
        for n in dict.fromkeys((1, sessions))
    ]
    async with started([ground.references(context)[0], facts.post()]) as (one, mesh):
        alone = [
            (await one.ask({"prompt_ids": ids, "warm": 0, "tokens": tokens - 1}))["token_ids"]
            for ids in prompts
        ]
        turns: list[Turn] = [(mesh, order) for *_, order in asked]
        taken = await alternate(turns, rounds)
    rates = {(each, n): median(map(rate, answers)) for (each, n, _), answers in zip(asked, taken)}
    return [
        SessionsRow(
            cut=plan.cut,
            topology=plan.topology,
            stations=len(plan.shares),
            levers=each.name,
            one_way_ms=ground.wires.even_ms,
            legs_per_token=plan.legs_per_token,
            dtype=ground.dtype,
            threads=ground.threads,
            sessions=n,
            tok_per_s=rates[each, n],
            gain=rates[each, n] / rates[each, 1],
            p50_ms=median(ms for answer in answers for ms in between(answer)),
            tokens_equal=all(answer["token_ids"] == alone[:n] for answer in answers),
        )
        for (each, n, _), answers in zip(asked, taken)
    ]


def rate(answer: Answer) -> float:
    """Tokens a second of all sessions: from the first token of any of them to the last one of all."""
    came_ms: list[float] = sorted(at for ms in answer["came_ms"] for at in ms)
    return 1e3 * (len(came_ms) - 1) / (came_ms[-1] - came_ms[0])


def between(answer: Answer) -> list[float]:
    """Milliseconds from token to token, of every session."""
    return [later - sooner for ms in answer["came_ms"] for sooner, later in pairwise(ms)]
