"""How the answers of a mesh are drafted, each by a draft of its own, and what that has gained one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from trisplit.errors import RequestProblem
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.drafts import Source
from trisplit.mesh.speculating import Mode, Speculate, Speculation
from trisplit.mesh.streams import Stream
from trisplit.models.generation import Generation, Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """Where drafts come from, and how they are sent; see `Speculate`."""

    source: Source
    mode: Mode = "auto"
    k: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Of one answer: guesses that were judged, and how long a token's whole trip took, where one was seen."""

    draft: str
    right: int
    wrong: int
    trip_ms: float | None

    def times(self, ms_per_token: float | None) -> float | None:
        """How many times as fast the answer was as one token a trip."""
        return self.trip_ms / ms_per_token if self.trip_ms and ms_per_token else None


class DraftedAnswer:
    """One answer of a mesh, drafted if `drafting` says how. Its tokens are the same either way."""

    def __init__(
        self, coordinator: Coordinator, stream: Stream, answer: Generation, drafting: Drafting | None
    ) -> None:
        self._coordinator, self._stream, self._answer = coordinator, stream, answer
        self._drafting = drafting
        self._speculation: Speculation | None = None

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """The pieces of the answer, as they come."""
        async with contextlib.AsyncExitStack() as stack:
            if self._drafting is None:
                pieces = self._coordinator.generate(self._stream, self._answer)
            else:
                draft = self._drafting.source.draft(self._answer.request.sampling)
                stack.callback(draft.close)
                how = Speculate(draft=draft, mode=self._drafting.mode, k=self._drafting.k)
                self._speculation = self._coordinator.speculation(self._stream, self._answer, how)
                pieces = self._speculation.pieces()
            async for piece in await stack.enter_async_context(aclosing(pieces)):
                yield piece

    @property
    def gain(self) -> Gain | None:
        """What drafts have done so far; None where there are none."""
        if self._speculation is None or self._drafting is None:
            return None
        pace = self._speculation.pace
        trip_ms = None if pace.trip_s is None else 1e3 * pace.trip_s
        return Gain(draft=self._drafting.source.name, right=pace.hits, wrong=pace.misses, trip_ms=trip_ms)


def usual_ms(times_s: Sequence[float], *, drafted: bool) -> float | None:
    """From one token to the next, of tokens that came at these times: the median, None for less than two.

    Of drafted ones the mean: several come at once, then none for a while.
    """
    gaps_s = [later - sooner for sooner, later in pairwise(times_s)]
    if not gaps_s:
        return None
    return 1e3 * (fmean if drafted else median)(gaps_s)


def way_of_drafts(text: str) -> tuple[Mode, int]:
    """`auto`, `stream`, `rounds` or `rounds:K` as a mode and the size of a round."""
    kind, _, size = text.partition(":")
    modes: dict[str, Mode] = {"auto": "auto", "stream": "stream", "rounds": "rounds"}
    if kind not in modes or (size and (kind != "rounds" or not size.isdecimal() or not 1 <= int(size) <= 64)):
        raise RequestProblem(f"drafts cannot go as {text!r}", fix="write auto, stream, rounds, or rounds:8")
    return modes[kind], int(size or 8)
