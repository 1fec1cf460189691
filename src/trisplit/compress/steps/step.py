"""What a step of a recipe is: it looks at a model and says what it would change, and how to write that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from trisplit.compress.anatomy import Anatomy
from trisplit.compress.passages import Passage
from trisplit.compress.reading import Report, silent
from trisplit.errors import RequestProblem
from trisplit.models.convert import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What steps work with: the text they may calibrate on, threads, who is told how far they are."""

    passages: Sequence[Passage]
    threads: int = 1
    report: Report = silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of a copy is worth counting: files fill narrow layers up and hold factors multiplied out.

    `widths`: neurons that each layer keeps. `ranks`: of each stored matrix, (layer, role), that is a product
    of two factors. `dtype`: whose grid the weights lie on.
    """

    widths: tuple[int, ...]
    ranks: Mapping[tuple[int, str], int] = field(default_factory=dict)
    dtype: Dtype = "f32"

    def narrower(self, widths: Sequence[int]) -> Shape:
        """The same with other widths."""
        return replace(self, widths=tuple(widths))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change: `what` of which layer (None: of the model), from what to what, numbers and bytes saved."""

    layer: int | None
    what: str
    before: str
    after: str
    parameters: int
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a step would do to a model. Without edits nothing is to be written, and `notes` say why.

    `facts` are what it was decided by, for the receipt. `write` puts the model into a folder that does not
    exist yet, and `shape` is what it then has.
    """

    edits: tuple[Edit, ...]
    shape: Shape
    write: Callable[[Path], None]
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Step(Protocol):
    """One step; a frozen dataclass of its parameters. `method` is its word in a recipe's file."""

    method: ClassVar[str]
    what: ClassVar[str]

    def plan(self, anatomy: Anatomy, shape: Shape, means: Means) -> Plan:
        """What it would do to the model that the step before has left; Problems when it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken: what it changed, what there is to say, and what it was decided by."""

    step: Step
    edits: tuple[Edit, ...]
    notes: tuple[str, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Made:
    """A copy: where it lies, what of it counts, and the steps it came by."""

    folder: Path
    shape: Shape
    taken: tuple[Taken, ...]


def refuse_no_share(name: str, value: float) -> None:
    """RequestProblem when the parameter is no share."""
    if not 0 < value <= 1:
        raise RequestProblem(f"{name} {value} is no share", fix="write a number above 0, up to 1")
