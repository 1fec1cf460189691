"""One question to a model: asked, streamed, measured, compared, and reported."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from rich.console import Console

from trisplit.cli.engines import Engine, Settings, alone, engine
from trisplit.cli.names import find_model
from trisplit.cli.progress import bars
from trisplit.mesh.coordinator import StationFacts
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, context_for, open_model
from trisplit.models.sampling import Sampling
from trisplit.models.tokenizer import Tokenizer
from trisplit.table import Table, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person asked for."""

    prompt: str
    as_chat: bool
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...]
    ignore_eos: bool

    def request(self, tokenizer: Tokenizer) -> Request:
        """The wish in tokens."""
        message = [{"role": "user", "content": self.prompt}]
        ids = tokenizer.encode_chat(message) if self.as_chat else tokenizer.encode(self.prompt)
        return Request(
            prompt_ids=tuple(ids),
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            stop=self.stop,
            eos_ids=tokenizer.eos_ids,
            ignore_eos=self.ignore_eos,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer and what it took; `ms_per_token` is the median after the first token."""

    text: str
    token_ids: list[int]
    finish_reason: str
    prompt_tokens: int
    stations: list[StationFacts] = field(default_factory=list)
    spares: list[str]
    legs_per_token: int
    threads: int
    context: int
    max_tokens: int
    first_token_ms: float
    ms_per_token: float | None
    tok_per_s: float | None
    identical_to_one_machine: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """The same facts as the table."""
        return asdict(self)

    def table(self) -> Table:
        """One row per process."""
        return Table(
            columns=("station", "stages", "weights", "rss"),
            rows=tuple((s.name, s.stages, size(s.weight_bytes), size(s.rss_bytes)) for s in self.stations),
        )

    @property
    def ending(self) -> str:
        """The finish reason with its numbers."""
        n = len(self.token_ids)
        return {
            "stop": f"stop, after {n} tokens",
            "length": f"length: {self.max_tokens} tokens were asked for",
            "context": f"context: {self.prompt_tokens} + {n} tokens fill the room for {self.context}",
        }[self.finish_reason]

    def summary(self) -> Sequence[str]:
        """The lines under the table."""
        speed = (
            "one token only: no speed to tell"
            if self.ms_per_token is None or self.tok_per_s is None
            else f"{self.ms_per_token:.1f} ms per token, {self.tok_per_s:.1f} tokens per second"
        )
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        lines = [
            f"ended by {self.ending}",
            f"legs per token: {self.legs_per_token}",
            f"{speed} ({threads} a process)",
        ]
        if self.spares:
            lines.append(f"spare stations: {', '.join(self.spares)}")
        if self.identical_to_one_machine is not None:
            word = "yes" if self.identical_to_one_machine else "NO"
            lines.append(f"identical to one machine: {word} ({len(self.token_ids)} tokens)")
        return lines


async def ask(name: str, wish: Wish, where: Settings, *, check: bool, as_json: bool) -> Answered:
    """The whole way of `trisplit generate`."""
    model = open_model(find_model(name))
    tokenizer = model.tokenizer()
    request = wish.request(tokenizer)
    # What cannot be answered is refused before anything is loaded.
    Generation(request, tokenizer.detokenizer(), context_for(model.config, where.context))
    answered = await _answer(model, where, request, tokenizer, aloud=not as_json)
    if check:
        answered = _compared(answered, model, where, request, tokenizer)
    if as_json:
        print(json.dumps(answered.as_json()))
        return answered
    console = Console(stderr=True)
    console.print()
    console.print(answered.table())
    for line in answered.summary():
        console.print(line, highlight=False)
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
    async for piece in loaded.generate(answer):
        times.append(time.perf_counter())
        if aloud:
            print(piece.text, end="", flush=True)
    if aloud:
        print(flush=True)
    gaps_ms = [1e3 * (b - a) for a, b in pairwise(times[1:])]
    ms = statistics.median(gaps_ms) if gaps_ms else None
    return Answered(
        text=answer.text,
        token_ids=list(answer.token_ids),
        finish_reason=answer.finished or "",
        prompt_tokens=len(request.prompt_ids),
        stations=await loaded.facts(),
        spares=list(loaded.spares),
        legs_per_token=loaded.legs_per_token,
        threads=loaded.threads,
        context=loaded.context,
        max_tokens=request.max_tokens,
        first_token_ms=1e3 * (times[1] - times[0]),
        ms_per_token=ms,
        tok_per_s=1e3 / ms if ms else None,
    )


def _compared(
    answered: Answered, model: Model, where: Settings, request: Request, tokenizer: Tokenizer
) -> Answered:
    """The answer, and whether the decoder in one process gives the same tokens."""
    one = alone(model, where)
    answer = Generation(request, tokenizer.detokenizer(), one.context)
    with bars() as show:
        for _ in show.over(one.decoder.generate(answer), "comparing", len(answered.token_ids)):
            pass
    return replace(answered, identical_to_one_machine=list(answer.token_ids) == answered.token_ids)
