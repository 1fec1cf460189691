"""Which group gets what a group leaves: the ways of numbers through a plan, whoever holds what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trisplit.mesh.cuts import runs_beside
from trisplit.mesh.plan import Group, Plan


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """What group `source` leaves is for group `target`: its input, or the residual it adds."""

    source: int
    target: int
    residual: bool = False


def flows(plan: Plan) -> tuple[Flow, ...]:
    """Every flow of a plan; the target after its last group is the coordinator."""
    return tuple(flow for group in plan.groups for flow in _from(group, plan.groups))


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
