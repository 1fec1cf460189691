"""An answer and what it took, as JSON or as a table with some lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console

from trisplit.cli.overlap import Overlap
from trisplit.mesh.drafting import Gain
from trisplit.mesh.facts import StationFacts
from trisplit.table import Cell, Table, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer and what it took; `ms_per_token` is the median after the first, of drafted ones the mean.

    `identity_withheld` says why equal bits cannot be promised, where that is so. `tokens_alike`: how many
    from the first on are those of one process, where that was looked at.
    """

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
    identity_withheld: str | None = None
    tokens_alike: int | None = None
    overlap: Overlap | None = None
    drafts: Gain | None = None
    from_cache: bool = False

    def as_json(self) -> dict[str, Any]:
        """The same facts as the table."""
        return asdict(self)

    def table(self) -> Table:
        """One row per process; of different kinds, with its kind."""
        rows: list[tuple[Cell, ...]] = []
        for s in self.stations:
            rss = None if s.rss_bytes is None else size(s.rss_bytes)
            rows.append((s.name, s.stages, size(s.weight_bytes), rss))
        columns: tuple[str, ...] = ("station", "stages", "weights", "rss")
        if self.identity_withheld and len({s.cpu for s in self.stations if s.cpu}) > 1:
            columns, rows = (*columns, "cpu"), [(*row, s.cpu) for row, s in zip(rows, self.stations)]
        return Table(columns=columns, rows=tuple(rows))

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
        if self.from_cache:
            return [f"ended by {self.ending}", "from the cache: nothing was computed"]
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
        if self.drafts is not None:
            lines.append(self._drafted(self.drafts))
        if self.overlap is not None:
            lines += self.overlap.lines()
        return [*lines, *self._identity()]

    def _drafted(self, drafts: Gain) -> str:
        """What guessing ahead has gained."""
        judged = drafts.right + drafts.wrong
        if not judged:
            return f"drafted by {drafts.draft}: no guess was tried"
        line = f"drafted by {drafts.draft}: {drafts.right} of {judged} guesses right"
        times = drafts.times(self.ms_per_token)
        return line if times is None else f"{line}, {times:.1f} × a token a trip ({drafts.trip_ms:.0f} ms)"

    def _identity(self) -> Iterator[str]:
        """What is claimed of the answer, and what was seen."""
        n = len(self.token_ids)
        if self.identity_withheld:
            yield f"identical to one machine: not claimed, {self.identity_withheld}"
            if self.identical_to_one_machine:
                yield f"beside one process: all {n} tokens alike"
            elif self.tokens_alike is not None:
                yield f"beside one process: the first {self.tokens_alike} of {n} tokens alike, then others"
        elif self.identical_to_one_machine is not None:
            yield f"identical to one machine: {'yes' if self.identical_to_one_machine else 'NO'} ({n} tokens)"


def show(answered: Answered, *, as_json: bool) -> None:
    """One object on standard output; or, after the text, what it took on standard error."""
    if as_json:
        print(json.dumps(answered.as_json()))
        return
    console = Console(stderr=True)
    console.print()
    if answered.stations:
        console.print(answered.table())
    for line in answered.summary():
        console.print(line, highlight=False)
