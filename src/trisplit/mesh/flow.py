"""Which group gets what a group leaves: the ways of numbers through a plan, whoever holds what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trisplit.mesh.cuts import runs_beside
from trisplit.mesh.overlap import Ahead
from trisplit.mesh.plan import Group, Plan


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """What group `source` leaves is for group `target`: its input, or the residual it adds.

    If `early` it is what the target starts on before its input comes, for decoded tokens alone.
    """

    source: int
    target: int
    residual: bool = False
    early: bool = False


def flows(plan: Plan) -> tuple[Flow, ...]:
    """Every flow of a plan; the target after its last group is the coordinator."""
    return (*(flow for group in plan.groups for flow in _from(group, plan.groups)), *_early(plan.ahead))


def _early(ahead: Ahead | None) -> list[Flow]:
    """x + attn comes from the attention before, x from the down before that; in thirds all are groups."""
    if ahead is None:
        return []
    back = 3 if ahead.early.seed == "x+attn" else 4
    return [Flow(3 * layer - back, 3 * layer, early=True) for layer in ahead.layers]


def _from(group: Group, groups: Sequence[Group]) -> list[Flow]:
    number, last = group.number, group.stages[-1]
    if last.kind == "head":  # the id that was chosen: on to where embed is, with a copy for who asked
        return [Flow(number, 0), Flow(number, len(groups))]
    on = [] if runs_beside(number, group.stages) else [Flow(number, number + 1)]
    if last.kind == "attention":  # past gate_up, which has no use for the residual
        on.append(Flow(number, number + 2, residual=True))
    elif number + 1 < len(groups) and runs_beside(number + 1, groups[number + 1].stages):
        on.append(Flow(number, number + 2))  # attention and gate_up both read this
    return on
