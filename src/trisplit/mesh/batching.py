"""Whether frames should leave in batches: the gate, and a mesh that is up, measured and set by it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from trisplit.errors import Problem, RequestProblem
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.line import Line
from trisplit.mesh.streams import Stream
from trisplit.mesh.together import together
from trisplit.models.generation import Generation, Request
from trisplit.models.sampling import Sampling
from trisplit.models.tokenizer import Tokenizer

MOST: Final = 0.965  # of the time without: less gain than that is not worth a lever
PROMPT: Final = "The tide comes in twice a day, since the moon"

Ran = tuple[list[int], list[float]]
"""The ids of a session, and the milliseconds from each to the next."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is run: sessions at once, of so many tokens each, so many times with batches and without."""

    cut: str
    topology: str
    stations: int
    sessions: int
    tokens: int
    rounds: int

    def verdict(self, times_ms: Mapping[bool, Sequence[float]], *, tokens_equal: bool) -> BatchVerdict:
        """What follows from these times, batched and not."""
        batched_ms, unbatched_ms = median(times_ms[True]), median(times_ms[False])
        ratio = batched_ms / unbatched_ms if unbatched_ms else 1.0
        return BatchVerdict(
            cut=self.cut,
            topology=self.topology,
            stations=self.stations,
            sessions=self.sessions,
            tokens=self.tokens,
            rounds=self.rounds,
            unbatched_ms=unbatched_ms,
            batched_ms=batched_ms,
            ratio=ratio,
            limit=MOST,
            tokens_equal=tokens_equal,
            on=tokens_equal and ratio <= MOST,
        )


def prompts_of(prompt_ids: Sequence[int], count: int) -> list[list[int]]:
    """As many prompts as long as each other: the ids turned by one more each time, then the same again."""
    return [[*prompt_ids[i:], *prompt_ids[:i]] for i in (n % len(prompt_ids) for n in range(count))]


class BatchGate:
    """Measures a mesh that is up, in sessions of its own, and leaves batches on there if they pay.

    `verdict` is the last one. Other sessions go on meanwhile, and are sent as the run under way is.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        tokenizer: Tokenizer,
        context: int,
        line: Line,
        stream: Callable[[], AbstractAsyncContextManager[Stream]],
    ) -> None:
        """Its sessions wait in `line` as everybody's do; `stream` opens one on the mesh, and closes it."""
        self._coordinator, self._tokenizer, self._context = coordinator, tokenizer, context
        self._line, self._stream = line, stream
        self._is_judging = False
        self.verdict: BatchVerdict | None = None

    async def judge(self, *, sessions: int, tokens: int, rounds: int) -> AsyncGenerator[int, None]:
        """Runs 2 × `rounds` turns; yields how many are done, at last sets `verdict` and sends by it.

        Given up or failed, the mesh sends as before. RequestProblem for what it has no room for.
        """
        prompts = prompts_of(await asyncio.to_thread(self._tokenizer.encode, PROMPT), sessions)
        self._refuse_if_short(sessions, len(prompts[0]) + tokens)
        plan, on = self._coordinator.plan, self._coordinator.members.batched
        trial = Trial(
            cut=plan.cut,
            topology=plan.topology,
            stations=len(plan.shares),
            sessions=sessions,
            tokens=tokens,
            rounds=rounds,
        )
        times_ms: dict[bool, list[float]] = {False: [], True: []}
        said = []
        with self._alone(), ExitStack() as inside:
            turns = [inside.enter_context(self._line.join()) for _ in prompts]
            for turn in turns:
                async for _ in self._line.ahead_of(turn):
                    pass
            try:
                for number in range(2 * rounds):
                    batched = number % 4 in (1, 2)  # what drifts meanwhile hits both alike
                    await self._coordinator.tune(batched=batched)
                    ran = await together(self._run(ids, tokens) for ids in prompts)
                    times_ms[batched] += [ms for _, came_ms in ran for ms in came_ms]
                    said.append([ids for ids, _ in ran])
                    yield number + 1
                self.verdict = trial.verdict(times_ms, tokens_equal=all(ids == said[0] for ids in said))
                on = self.verdict.on
            finally:
                with contextlib.suppress(Problem):  # what stops a mesh is told to who asks next
                    await self._coordinator.tune(batched=on)

    async def _run(self, prompt_ids: Sequence[int], tokens: int) -> Ran:
        request = Request(
            prompt_ids=tuple(prompt_ids), sampling=Sampling(), max_tokens=tokens, ignore_eos=True
        )
        answer = Generation(request, self._tokenizer.detokenizer(), self._context)
        async with self._stream() as stream:
            pieces = self._coordinator.generate(stream, answer)
            came_ms = [1e3 * time.monotonic() async for _ in pieces]
        return answer.token_ids, [later - sooner for sooner, later in pairwise(came_ms)]

    def _refuse_if_short(self, sessions: int, length: int) -> None:
        if sessions > self._line.places:
            what = f"{sessions} sessions at once, and the mesh has {self._line.places}"
            raise RequestProblem(what, fix="measure with fewer, or bring the mesh up with more --sessions")
        if length > self._context:
            what = f"{length:,} tokens of prompt and answer, and the mesh has room for {self._context:,}"
            raise RequestProblem(what, fix="measure with fewer --tokens, or bring it up with more --context")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._is_judging:
            raise RequestProblem("the mesh is being measured already", fix="wait until that is done")
        self._is_judging = True
        try:
            yield
        finally:
            self._is_judging = False
