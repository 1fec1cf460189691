"""Layers that are to start ahead: what a person typed, and what is said of it afterwards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.errors import RequestProblem
from trisplit.mesh.cuts import runs_beside
from trisplit.mesh.overlap import Ahead, Early, Kv, Seed, spans
from trisplit.mesh.plan import Plan
from trisplit.mesh.record import read_record
from trisplit.models.convert import Dtype
from trisplit.models.model import Model

NONE: Final = "none"
ALL: Final = "all"

_NUMBERS: Final = re.compile(r"[0-9,\s-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which layers of a mesh overlap with the one before, as `asked` for by --overlap.

    `exact`: in their parallel blocks attention and FFN run at once, which changes nothing; `seed` and `kv`
    are None then. Else it is another function than the model's, if there are any layers.
    """

    asked: str
    layers: tuple[int, ...]
    exact: bool
    seed: Seed | None = None
    kv: Kv | None = None

    @property
    def withholds(self) -> str:
        """Why the answer may be another than that of one process; empty if it may not."""
        if self.exact or not self.layers:
            return ""
        return f"layers {spans(self.layers)} start ahead, which is another function than the model's"

    def lines(self) -> Iterator[str]:
        """What a person is told."""
        if self.exact:
            yield f"overlap: in layers {spans(self.layers)} attention and FFN run at once, exactly"
        elif self.layers:
            how = f"on {self.seed}, keys and values {self.kv}"
            yield f"overlap: layers {spans(self.layers)} start ahead {how} (--overlap {self.asked})"
        else:
            yield f"overlap: OFF, no layer may start ahead (--overlap {self.asked})"


def overlap_in(plan: Plan, asked: str) -> Overlap | None:
    """What overlaps in a plan; None where nothing does and nobody has asked."""
    beside = [group.stages[0].layer for group in plan.groups if runs_beside(group.number, group.stages)]
    if beside:
        return Overlap(asked=asked, layers=tuple(beside), exact=True)
    if plan.ahead is not None:
        early = plan.ahead.early
        return Overlap(asked=asked, layers=plan.ahead.layers, exact=False, seed=early.seed, kv=early.kv)
    return None if asked == NONE else Overlap(asked=asked, layers=(), exact=False)


def ahead_typed(text: str, layers: int, model: Model | None, dtype: Dtype) -> Ahead | None:
    """What --overlap asks for: `none`, `all`, a set of layers, or what the record of a gate allows.

    None where nothing is to start ahead. `model` is None where only the number of `layers` is known.
    RequestProblem for layers that cannot, for what is no record, and for one of another model.
    """
    if text == NONE:
        return None
    if text == ALL or _NUMBERS.fullmatch(text):
        chosen = layers_typed("" if text == ALL else text, layers, "--overlap")
        return Ahead(tuple(chosen), Early())
    if not os.path.exists(text):
        raise RequestProblem(
            f"--overlap {text} is neither layers nor a file",
            fix="write all, none, layers such as 3,5-9, or the file of `trisplit gate overlap --out`",
        )
    record = read_record(Path(text))
    if model is None:
        what = f"the record {text} is of {record.model}, and no model was named"
        raise RequestProblem(what, fix="name the model, or layers such as 3,5-9")
    ahead = record.ahead_in(model, dtype)
    return ahead if ahead.layers else None


def layers_typed(text: str, count: int, option: str) -> list[int]:
    """The numbers in `2-9,12`, in order; without any, all layers that have one before them.

    >>> layers_typed("3, 1-2", 5, "--layers"), layers_typed("", 3, "--layers")
    ([1, 2, 3], [1, 2])
    """
    if count < 2:
        raise RequestProblem("the model has one layer, with none before it", fix="use a model with more")
    if not text:
        return list(range(1, count))
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last < count:
            what = f"{option} {part.strip()!r} are no layers that have one before them"
            raise RequestProblem(what, fix=f"write numbers from 1 to {count - 1}, such as 1-3,{count - 1}")
        chosen |= set(range(first, last + 1))
    return sorted(chosen)
