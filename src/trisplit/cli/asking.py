"""One question to a model: asked, streamed, measured, compared, and reported."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import replace

from trisplit.cli.answered import Answered, show
from trisplit.cli.engines import Engine, alone, engine
from trisplit.cli.names import find_model
from trisplit.cli.overlap import Overlap
from trisplit.cli.progress import bars
from trisplit.cli.replaying import Replays
from trisplit.cli.settings import Settings
from trisplit.cli.talking import common_prefix
from trisplit.mesh.drafting import usual_ms
from trisplit.mesh.facts import mixed
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, context_for, open_model
from trisplit.models.tokenizer import Tokenizer
from trisplit.models.wish import Wish


async def ask(
    name: str, wish: Wish, where: Settings, *, check: bool, as_json: bool, cached: bool | None = None
) -> Answered:
    """The whole way of `trisplit generate`."""
    model = open_model(find_model(name))
    tokenizer = model.tokenizer()
    request = wish.request(tokenizer)
    # What cannot be answered is refused before anything is loaded.
    Generation(request, tokenizer.detokenizer(), context_for(model.config, where.context))
    replays = None if check else Replays.unless_refused(model, where, request, cached)
    answered = replays.answer(tokenizer, aloud=not as_json) if replays else None
    if answered is None:
        answered = await _answer(model, where, request, tokenizer, aloud=not as_json)
        if replays:
            replays.keep(answered, name)
    if check:
        answered = _compared(answered, model, where, request, tokenizer)
    show(answered, as_json=as_json)
    return answered


async def _answer(
    model: Model, where: Settings, request: Request, tokenizer: Tokenizer, *, aloud: bool
) -> Answered:
    """Loads, answers, and lets go of what was loaded."""
    async with engine(model, where) as loaded:
        return await _run(loaded, request, tokenizer, aloud=aloud)


async def _run(loaded: Engine, request: Request, tokenizer: Tokenizer, *, aloud: bool) -> Answered:
    """Runs one answer to its end, printing the text as it comes if `aloud`."""
    answer = Generation(request, tokenizer.detokenizer(), loaded.context)
    await loaded.start()
    times = [time.perf_counter()]
    async with aclosing(loaded.generate(answer)) as pieces:
        async for piece in pieces:
            times.append(time.perf_counter())
            if aloud:
                print(piece.text, end="", flush=True)
    if aloud:
        print(flush=True)
    facts = await loaded.facts()
    ms = usual_ms(times[1:], drafted=loaded.gain is not None)
    return Answered(
        text=answer.text,
        token_ids=list(answer.token_ids),
        finish_reason=answer.finished or "",
        prompt_tokens=len(request.prompt_ids),
        stations=facts,
        spares=list(loaded.spares),
        legs_per_token=loaded.legs_per_token,
        threads=loaded.threads,
        context=loaded.context,
        max_tokens=request.max_tokens,
        first_token_ms=1e3 * (times[1] - times[0]),
        ms_per_token=ms,
        tok_per_s=1e3 / ms if ms else None,
        identity_withheld=_doubts(mixed(facts), loaded.overlap),
        overlap=loaded.overlap,
        drafts=loaded.gain,
    )


def _doubts(kinds: str, overlap: Overlap | None) -> str | None:
    """Why the answer need not be that of one process; None if it must."""
    return "; ".join(filter(None, (kinds, overlap.withholds if overlap else ""))) or None


def _compared(
    answered: Answered, model: Model, where: Settings, request: Request, tokenizer: Tokenizer
) -> Answered:
    """The answer, and whether the decoder in one process gives the same tokens.

    Machines of different kinds may well differ in the last bit, so nothing is claimed of those.
    """
    if kinds := mixed(answered.stations, here=True):
        return replace(answered, identity_withheld=_doubts(kinds, answered.overlap))
    one = alone(model, where)
    answer = Generation(request, tokenizer.detokenizer(), one.context)
    with bars() as show:
        for _ in show.over(one.decoder.generate(answer), "comparing", len(answered.token_ids)):
            pass
    theirs = list(answer.token_ids)
    return replace(
        answered,
        identical_to_one_machine=theirs == answered.token_ids,
        tokens_alike=common_prefix(theirs, answered.token_ids),
    )
