"""Long prompts: chunks that follow each other through the stations, beside one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from trisplit.bench.meshes import Ground, MeshFacts
from trisplit.bench.peers import Order
from trisplit.bench.rounds import Turn, alternate, started
from trisplit.models.decoder import chunks
from trisplit.models.model import context_for


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillRow:
    """Time to the first token of a prompt, in milliseconds; medians over the rounds.

    `streamed_ms`: chunk k + 1 enters while chunk k is further down. `apart_ms`: a chunk is sent only once the
    one before has come back. `ratio` is the first over the second. `one_process_ms`: the decoder alone.
    `token_equal`: whether all chose the same.
    """

    cut: str
    topology: str
    stations: int
    one_way_ms: float | None
    dtype: str
    threads: int
    prompt_tokens: int
    chunks: int
    streamed_ms: float
    apart_ms: float
    ratio: float
    one_process_ms: float
    token_equal: bool


async def prefill(ground: Ground, cut: str, *, prompt_tokens: int, rounds: int) -> PrefillRow:
    """A chain's prompt, both ways and in one process, in turns."""
    model = ground.subject.opened()
    some_ids = ground.subject.prompt_of(model)
    prompt_ids = [some_ids[n % len(some_ids)] for n in range(prompt_tokens)]
    context = context_for(model.config, prompt_tokens + 1)
    facts = MeshFacts(ground=ground, cut=cut, topology="chain", context=context)
    plan = facts.plan(model)
    ground.subject.refuse_copies(model, ground.dtype, 2)
    order: Order = {"what": "prompt", "prompt_ids": prompt_ids}
    async with started([ground.references(context)[0], facts.post()]) as (one, mesh):
        turns: list[Turn] = [
            (one, {"prompt_ids": prompt_ids, "warm": 0, "tokens": 0}),
            (mesh, order | {"apart": False}),
            (mesh, order | {"apart": True}),
        ]
        taken = await alternate(turns, rounds)
    one_ms, streamed_ms, apart_ms = (median(answer["first_ms"] for answer in answers) for answers in taken)
    return PrefillRow(
        cut=plan.cut,
        topology=plan.topology,
        stations=len(plan.shares),
        one_way_ms=ground.wires.even_ms,
        dtype=ground.dtype,
        threads=ground.threads,
        prompt_tokens=prompt_tokens,
        chunks=len(list(chunks(prompt_ids, 0))),
        streamed_ms=streamed_ms,
        apart_ms=apart_ms,
        ratio=streamed_ms / apart_ms,
        one_process_ms=one_ms,
        token_equal=len({answer["token_ids"][0] for answers in taken for answer in answers}) == 1,
    )
