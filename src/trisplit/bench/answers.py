"""Answers of a mesh, drafted ahead or not, and of one process: their tokens, and when each of them came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import median

from trisplit.bench.driven import Driven, NoText
from trisplit.bench.peers import Answer, Order
from trisplit.mesh.drafts import Draft, Source, Target, source_named
from trisplit.mesh.speculating import Speculate, Speculation
from trisplit.models.decoder import Decoder
from trisplit.models.generation import Generation, Request
from trisplit.models.sampling import Sampling


def asked(order: Order, context: int) -> Generation:
    """What an order asks: `tokens` after `prompt_ids`, chosen by `sampling`, whatever they mean."""
    request = Request(
        prompt_ids=tuple(order["prompt_ids"]),
        sampling=Sampling(**order["sampling"]),
        max_tokens=order["tokens"],
        ignore_eos=True,
    )
    return Generation(request, NoText(), context)


def answered_alone(decoder: Decoder, order: Order) -> Answer:
    """One process: all `token_ids`, and when each came, in milliseconds of the monotonic clock."""
    answer, came_ms = asked(order, decoder.context), list[float]()
    for _ in decoder.generate(answer):
        came_ms.append(1e3 * time.monotonic())
    return {"token_ids": answer.token_ids, "came_ms": came_ms}


class Timed:
    """Another draft, and the processor's time that each of its guesses took in its own thread.

    That time does not grow while stations use the same cores.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft, self.ms = draft, list[float]()

    @property
    def name(self) -> str:
        """As of the other."""
        return self._draft.name

    def guess(self, ids: Sequence[int]) -> int | None:
        """As of the other."""
        began_s = time.thread_time()
        guess = self._draft.guess(ids)
        self.ms.append(1e3 * (time.thread_time() - began_s))
        return guess

    def close(self) -> None:
        """As of the other."""
        self._draft.close()

    @property
    def usual_ms(self) -> float:
        """Of a guess, the first one aside, which reads the prompt; 0 where there was no other."""
        return median(self.ms[1:] or [0.0])


class Answers:
    """A mesh that answers, and the drafts it was asked to use: each is loaded once."""

    def __init__(self, driven: Driven) -> None:
        self._driven = driven
        self._sources: dict[str, Source] = {}

    async def give(self, order: Order) -> Answer:
        """As `given`; `order` names the `draft`, and the `places` of models that have names."""
        if order["mode"] == "plain":
            return await given(self._driven, order, None)
        draft = await asyncio.to_thread(self._draft, order)
        try:
            return await given(self._driven, order, draft)
        finally:
            draft.close()

    def _draft(self, order: Order) -> Draft:
        text, places, facts = order["draft"], order["places"], self._driven.facts
        if text not in self._sources:
            model, dtype = facts.ground.subject.opened(), facts.ground.dtype
            target = Target(model=model, dtype=dtype, context=facts.context)
            self._sources[text] = source_named(text, target, find=lambda name: Path(places.get(name, name)))
        return self._sources[text].draft(Sampling(**order["sampling"]))


async def given(driven: Driven, order: Order, draft: Draft | None) -> Answer:
    """An answer as `asked`, by `mode` (and `k`), or plain without a draft; ended `most_ms` after its first.

    Answers `token_ids` and `came_ms`; for each token whether it was guessed, `hits`, and how many guesses
    behind it were under way, `ahead`; and what was `judged`: right and wrong guesses; the last `window`, and
    `draft_ms`, what a guess took.
    """
    mesh, answer = driven.mesh, asked(order, driven.facts.context)
    stream = await mesh.open()
    timed, ahead_of = None if draft is None else Timed(draft), None
    if timed is not None:
        how = Speculate(draft=timed, mode=order["mode"], k=order["k"] or 1)
        ahead_of = mesh.speculation(stream, answer, how)
    came_ms, hits, ahead = list[float](), list[bool](), list[int]()
    async with aclosing(mesh.generate(stream, answer) if ahead_of is None else ahead_of.pieces()) as pieces:
        async for _ in pieces:
            came_ms.append(1e3 * time.monotonic())
            hits.append(ahead_of is not None and ahead_of.was_hit)
            ahead.append(0 if ahead_of is None else ahead_of.ahead)
            if len(came_ms) > 1 and came_ms[-1] - came_ms[0] >= order["most_ms"]:
                break
    await mesh.close(stream)
    return {
        "token_ids": answer.token_ids[: len(came_ms)],
        "came_ms": came_ms,
        "hits": hits,
        "ahead": ahead,
        "draft_ms": 0.0 if timed is None else timed.usual_ms,
        **_paced(ahead_of),
    }


def _paced(speculation: Speculation | None) -> Answer:
    if speculation is None:
        return {"judged": [0, 0], "window": 0}
    pace = speculation.pace
    return {"judged": [pace.hits, pace.misses], "window": pace.window}
