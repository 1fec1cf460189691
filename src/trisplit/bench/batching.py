"""Whether frames should leave in batches on a mesh: with and without, in turns, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Final

from trisplit.bench.driven import driven
from trisplit.bench.levers import Levers
from trisplit.bench.meshes import MeshFacts
from trisplit.bench.progress import shown
from trisplit.bench.sessions import between, prompts_of
from trisplit.mesh.trust import NOBODY, Trust
from trisplit.models.model import context_for

MOST: Final = 0.965  # of the time without: less gain than that is not worth a lever


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchVerdict:
    """Medians from one token to the next with batches and without, over all rounds, and what follows.

    `on`: whether the first is at most `limit` of the second, and no token was another.
    """

    cut: str
    topology: str
    stations: int
    sessions: int
    tokens: int
    rounds: int
    unbatched_ms: float
    batched_ms: float
    ratio: float
    limit: float
    tokens_equal: bool
    on: bool

    @property
    def reason(self) -> str:
        """The verdict in a line."""
        if not self.tokens_equal:
            return "OFF: tokens were not the same"
        says = f"{self.batched_ms:,.2f} ms a token batched, {self.unbatched_ms:,.2f} ms not"
        compared = "at most" if self.on else "over"
        return f"{'ON' if self.on else 'OFF'}: {says}: {self.ratio:.3f}, {compared} {self.limit:g}"


async def judge_batches(
    facts: MeshFacts,
    addresses: Mapping[str, str] | None = None,
    trust: Trust = NOBODY,
    *,
    tokens: int,
    rounds: int,
) -> BatchVerdict:
    """Loads one mesh and has all its sessions run, batched and not, `rounds` times each; two tokens or more.

    The context of `facts` is the one that takes.
    """
    subject = facts.ground.subject
    model = subject.opened()
    prompts = prompts_of(subject.prompt_of(model), facts.sessions)
    facts = replace(facts, context=context_for(model.config, len(prompts[0]) + tokens))
    order = {"prompts": prompts, "tokens": tokens}
    times_ms: dict[bool, list[float]] = {False: [], True: []}
    said = []
    async with driven(facts, addresses, trust) as mesh:
        for number in shown(range(2 * rounds), "measuring"):
            batched = number % 2 == 1
            answer = await mesh.sessions(order | {"levers": asdict(Levers(batched=batched))})
            times_ms[batched] += between(answer)
            said.append(answer["token_ids"])
    return verdict(
        facts, len(mesh.plan.shares), times_ms, tokens, rounds, all(ids == said[0] for ids in said)
    )


def verdict(
    facts: MeshFacts,
    stations: int,
    times_ms: Mapping[bool, list[float]],
    tokens: int,
    rounds: int,
    tokens_equal: bool,
) -> BatchVerdict:
    """What follows from these times, batched and not."""
    batched_ms, unbatched_ms = median(times_ms[True]), median(times_ms[False])
    ratio = batched_ms / unbatched_ms
    return BatchVerdict(
        cut=facts.cut,
        topology=facts.topology,
        stations=stations,
        sessions=facts.sessions,
        tokens=tokens,
        rounds=rounds,
        unbatched_ms=unbatched_ms,
        batched_ms=batched_ms,
        ratio=ratio,
        limit=MOST,
        tokens_equal=tokens_equal,
        on=tokens_equal and ratio <= MOST,
    )
