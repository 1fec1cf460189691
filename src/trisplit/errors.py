"""The ways we fail, each saying what happened and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class Problem(Exception):
    """Something a person can act on: `what` happened and the `fix`.

    Kinds are split by who must act, not by which module noticed. The CLI prints
    both lines and exits with `exit_code`; nothing else catches a Problem to hide it.
    """

    exit_code = 1

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what} ({self.fix})"


class CheckpointProblem(Problem):
    """The files of a model are missing, damaged, or of a kind we do not run."""


class RequestProblem(Problem):
    """What was asked cannot be done as asked: a prompt, an option, a length."""


class PlanProblem(Problem):
    """The stages do not fit the stations; the message carries the numbers."""


class FetchProblem(Problem):
    """A named file could not be had, or is not the file that was promised."""


class PeerProblem(Problem):
    """The other side of a connection died, stalled, or said something it may not."""


class OwnProblem(Problem):
    """We tried to say something out of turn: a defect of ours, not of the peer."""


class UnknownName(Problem):
    """A name that is not in a list; says which one was probably meant."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
        super().__init__(f"no {kind} is named {name!r}", fix=hint)
