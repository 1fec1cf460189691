"""Rows of one sequence on a station: waiting for their other half, or ready to run."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from trisplit.errors import PeerProblem
from trisplit.mesh.group import LoadedGroup
from trisplit.mesh.tail import Tail
from trisplit.models.session import Floats
from trisplit.wire.fields import MOST_DRAFTED
from trisplit.wire.frame import SAME_VERSION, Activation

Step = Literal["whole", "early", "join", "rewrite"]
"""Rows run whole; or an early row runs, its input joins what that left, and its input is run for the keys."""


@dataclass(slots=True)
class Guess:
    """What a group left of an early row, kept until its input has come."""

    early: Floats
    left: Floats | None = None

    def corrected(self, x: Floats) -> Floats:
        """x plus what was added to the early row. PeerProblem when that could not run."""
        if self.left is None:
            raise PeerProblem("the input of an early row that could not run", fix=SAME_VERSION)
        rows: Floats = self.left + (x - self.early)
        return rows


@dataclass(slots=True)
class Stream:
    """One sequence on this station: its slot, and rows waiting for their other half.

    Rows that a thread runs while the stream is closed go on in its slot. Whoever has it next runs behind them
    and begins at its first position.
    """

    slot: int
    is_closed: bool = False
    halves: dict[tuple[int, int, bool], deque[Floats]] = field(default_factory=dict)
    epoch: int = 0
    tail: Tail | None = None
    resumed: tuple[int, int] | None = None  # the epoch its past comes again in, and where that began
    seen: dict[tuple[int, bool], tuple[int, int]] = field(default_factory=dict)  # epoch and end
    guesses: dict[tuple[int, int], Guess] = field(default_factory=dict)  # by group and position
    too_soon: dict[tuple[int, int], Work] = field(default_factory=dict)  # inputs before their early rows
    fed_in: int = -1  # the epoch of the last row for the first group that was no draft
    drafts: list[Activation] = field(default_factory=list)  # that came before such a row
    _half_rows: Counter[int] = field(default_factory=Counter)  # by group

    def fence(self, epoch: int) -> None:
        """From here on rows of earlier epochs are void: halves of them meet nobody."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.halves.clear()
            self.guesses.clear()
            self.too_soon.clear()
            self._half_rows.clear()

    def keep_draft(self, said: Activation) -> None:
        """A drafted row that has overtaken what its epoch begins with: it comes from elsewhere."""
        if len(self.drafts) == MOST_DRAFTED:
            raise PeerProblem(f"more than {MOST_DRAFTED} drafts of epoch {said.epoch}", fix=SAME_VERSION)
        self.drafts.append(msgspec.structs.replace(said, payload=bytes(said.payload)))

    def drafts_behind(self, said: Activation) -> list[Activation]:
        """The drafts that have waited for this row of the first group."""
        self.fed_in = said.epoch
        behind = [draft for draft in self.drafts if draft.epoch == said.epoch]
        self.drafts = [draft for draft in self.drafts if draft.epoch > said.epoch]
        return behind

    def halves_for(self, group: int) -> int:
        """How many rows wait there for their other half."""
        return self._half_rows[group]

    def inputs(self, group: LoadedGroup, said: Activation) -> dict[str, Floats] | None:
        """What the group runs on; None while the other half of a join is still on its way.

        Residual and widened rows come over different links and in either order; when a past with rewinds is
        played again, several wait for one position.
        """
        rows = group.rows(said)
        self.seen[said.group, said.residual] = said.epoch, said.position + said.rows
        if not group.joins:
            return {group.main: rows}
        waiting = self.halves.get((said.group, said.position, not said.residual))
        if not waiting:
            self.halves.setdefault((said.group, said.position, said.residual), deque()).append(rows)
            self._half_rows[said.group] += len(rows)
            return None
        other = waiting.popleft()
        self._half_rows[said.group] -= len(other)
        if not waiting:
            del self.halves[said.group, said.position, not said.residual]
        if len(other) != said.rows:
            what = f"halves of {len(other)} and {said.rows} rows meet at position {said.position}"
            raise PeerProblem(what, fix=SAME_VERSION)
        return {group.main: other, "r": rows} if said.residual else {group.main: rows, "r": other}

    def ahead(self, work: Work) -> list[Work]:
        """What to run for a row of a group that starts ahead: an early row at once, its input behind that.

        The early row is used even if the input comes first: what is said must not hang on who was quicker.
        """
        place = work.said.group, work.said.position
        if work.said.early:
            guess = Guess(work.inputs[work.group.main])
            early = replace(work, step="early", guess=guess)
            if place in self.too_soon:
                return [early, replace(self.too_soon.pop(place), step="join", guess=guess)]
            self.guesses[place] = guess
            return [early]
        if place in self.guesses:
            return [replace(work, step="join", guess=self.guesses.pop(place))]
        self.too_soon[place] = work
        return []


@dataclass(frozen=True, slots=True)
class Work:
    """Rows that are ready to run: the frame that made them so, without its payload, and their inputs."""

    group: LoadedGroup
    stream: Stream
    said: Activation
    inputs: dict[str, Floats]
    arrived_s: float
    step: Step = "whole"
    guess: Guess | None = None

    @property
    def lane(self) -> tuple[int, int]:
        """What must stay in order: a stream's rows for a group."""
        return self.said.stream, self.said.group

    def follows(self, other: Work) -> bool:
        """Whether it stands right behind another and can pass with it."""
        ours, theirs = self.said, other.said
        return (
            ours.position == theirs.position + theirs.rows
            and ours.epoch == theirs.epoch
            and self.step == other.step == "whole"
        )

    @property
    def ends_in_the_past(self) -> bool:
        """Whether these are rows played again of which a rewind has left only the first."""
        epoch, began = self.stream.resumed or (-1, 0)
        return self.said.epoch == epoch and self.said.position < began < self.said.position + self.said.rows

    @property
    def is_void(self) -> bool:
        """Whether nobody wants it any more; a rewrite is wanted as long as its keys are."""
        is_late = self.said.epoch < self.stream.epoch and self.step != "rewrite"
        return is_late or self.stream.is_closed
