"""Whether frames should leave in batches on a mesh: with and without, in turns, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from trisplit.bench.driven import driven
from trisplit.bench.levers import Levers
from trisplit.bench.meshes import MeshFacts
from trisplit.bench.progress import shown
from trisplit.bench.sessions import between
from trisplit.mesh.batching import BatchVerdict, Trial, prompts_of
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.models.model import context_for


async def judge_batches(
    facts: MeshFacts,
    addresses: Mapping[str, str] | None = None,
    trust: Trust = NOBODY,
    *,
    tokens: int,
    rounds: int,
) -> BatchVerdict:
    """Loads one mesh and has all its sessions run, batched and not, `rounds` times each; two tokens or more.

    The context of `facts` is the one that takes; what it has `ahead` starts ahead with both.
    """
    subject = facts.ground.subject
    model = subject.opened()
    prompts = prompts_of(subject.prompt_of(model), facts.sessions)
    facts = replace(facts, context=context_for(model.config, len(prompts[0]) + tokens))
    order = {"prompts": prompts, "tokens": tokens}
    times_ms: dict[bool, list[float]] = {False: [], True: []}
    said, overlap = [], facts.ahead is not None
    facts.pulled(facts.plan(model), Levers(overlap=overlap))  # to be refused now, if it is to be
    async with driven(facts, addresses, trust) as mesh:
        for number in shown(range(2 * rounds), "measuring"):
            batched = number % 2 == 1
            answer = await mesh.sessions(order | {"levers": asdict(Levers(batched=batched, overlap=overlap))})
            times_ms[batched] += between(answer)
            said.append(answer["token_ids"])
    trial = Trial(
        cut=facts.cut,
        topology=facts.topology,
        stations=len(mesh.plan.shares),
        sessions=facts.sessions,
        tokens=tokens,
        rounds=rounds,
    )
    return trial.verdict(times_ms, tokens_equal=all(ids == said[0] for ids in said))
