"""What lies where is decided in pieces: stages and their bytes, and how a cut makes units of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from trisplit.errors import PlanProblem
from trisplit.models.config import LAYER_KINDS, Kind, LayerKind

CUTS: Final[dict[str, tuple[LayerKind, ...]]] = {
    "layers": ("attention",),
    "thirds": ("attention", "gate_up", "down"),
    "recut": ("gate_up", "down"),
}
"""Cut → the kinds of stage before which the chain of all stages is cut.

With n such kinds, every n-th unit is of one kind, a station holds units of one kind only, and n
stations are the fewest on which neighbouring units stay apart.
"""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage asks of the station that holds it; `kv_bytes` for the whole context length.

    Of a head that is the embedding's own matrix, `shared_bytes` are not held again where embed is.
    `parallel`: of a block whose attention and FFN both read its input.
    """

    layer: int
    kind: Kind
    weight_bytes: int
    kv_bytes: int
    shared_bytes: int = 0
    parallel: bool = False

    @property
    def n_bytes(self) -> int:
        """All it asks for when it lies alone."""
        return self.weight_bytes + self.kv_bytes


Unit = tuple[StageCost, ...]
"""Neighbouring stages that never lie apart."""

NO_ENDS: Final = (StageCost(-1, "embed", 0, 0), StageCost(-1, "head", 0, 0))


def runs_beside(number: int, stages: Sequence[StageCost]) -> bool:
    """Whether a group runs while the next one does: attention of a parallel block, by itself.

    The first never does: it hands the x it was given to the second when it is done.
    """
    return number > 0 and [(stage.kind, stage.parallel) for stage in stages] == [("attention", True)]


def weight_bytes(stages: Iterable[StageCost]) -> int:
    """Bytes of weights of stages on one station."""
    held = tuple(stages)
    beside_embed = any(stage.kind == "embed" for stage in held)
    return sum(stage.weight_bytes - beside_embed * stage.shared_bytes for stage in held)


def kv_bytes(stages: Iterable[StageCost]) -> int:
    """Bytes of keys and values of stages on one station."""
    return sum(stage.kv_bytes for stage in stages)


def n_bytes(units: Iterable[Unit]) -> int:
    """All that units on one station ask for."""
    stages = [stage for unit in units for stage in unit]
    return weight_bytes(stages) + kv_bytes(stages)


def whole_chain(stages: Sequence[StageCost]) -> list[StageCost]:
    """All stages in the order a token passes them; PlanProblem unless they are whole layers 0 … L-1."""
    if not stages:
        raise PlanProblem("there are no layers to place", fix="plan a model with at least one layer")
    counts = Counter((stage.layer, stage.kind) for stage in stages)
    last = max(layer for layer, _ in counts)
    whole = [(layer, kind) for layer in range(last + 1) for kind in LAYER_KINDS]
    for layer, kind in [*whole, *counts]:
        if layer < 0 or counts[layer, kind] != 1:
            raise PlanProblem(
                f"{kind} {layer} is there {counts[layer, kind]} times",
                fix="give every stage of layers 0 … L-1 exactly once",
            )
    if any(min(stage.weight_bytes, stage.kv_bytes) < 0 for stage in stages):
        raise PlanProblem("a stage has a negative number of bytes", fix="give sizes of 0 bytes or more")
    by_place = {(stage.layer, stage.kind): stage for stage in stages}
    return [by_place[place] for place in whole]


def units_of(chain: Sequence[StageCost], cut: str) -> list[Unit]:
    """The chain cut into the smallest pieces that may lie apart."""
    starts = [i for i, stage in enumerate(chain) if i == 0 or stage.kind in CUTS[cut]]
    return [tuple(chain[start:stop]) for start, stop in pairwise([*starts, len(chain)])]


def label(stages: Iterable[StageCost]) -> str:
    """Stages by kind, layers as ranges; whole layers by their numbers alone; embed first, head last."""
    layers: dict[Kind, list[int]] = {}
    for stage in stages:
        layers.setdefault(stage.kind, []).append(stage.layer)
    first, last = ([kind] if layers.pop(kind, []) else [] for kind in ("embed", "head"))
    spans = {kind: _span(numbers) for kind, numbers in layers.items()}
    if len(spans) == len(LAYER_KINDS) and len(set(spans.values())) == 1:
        plural = "layer" if len(layers["attention"]) == 1 else "layers"
        between = [f"{plural} {spans['attention']}"]
    else:
        between = [f"{kind} {span}" for kind, span in spans.items()]
    return ", ".join([*first, *between, *last])


def _span(numbers: Sequence[int]) -> str:
    """`4`, `0-7`, `0+29`."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or number != numbers[i - 1] + 1]
    runs = [(numbers[start], numbers[stop - 1]) for start, stop in pairwise([*starts, len(numbers)])]
    return "+".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
