"""A token's trip as a plan lays it down: its legs, the bytes on them, and the floor under its time; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from trisplit.bench.wires import Wires
from trisplit.mesh.cuts import runs_beside
from trisplit.mesh.flow import Flow, flows
from trisplit.mesh.plan import Group, Plan
from trisplit.mesh.predict import COORDINATOR, KINDS, Measured, predict
from trisplit.models.config import ModelConfig, Stage
from trisplit.models.stages import leaves
from trisplit.wire.frame import F32, IDS, Activation, encode_activation

_ITEM_BYTES: Final = 4
_MASK_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Leg:
    """One frame from one process to another, and the bytes it takes on the way: payload and all headers."""

    source: str
    target: str
    n_bytes: int


def critical_flows(plan: Plan) -> list[Flow]:
    """Which group gets its input from which, where a token waits for it."""
    copies = {Flow(flow.source, len(plan.groups)) for flow in flows(plan) if plan.topology == "ring"}
    beside = {group.number for group in plan.groups if runs_beside(group.number, group.stages)}
    by_the_way = {flow for flow in flows(plan) if flow.residual or flow.early} | copies
    return [flow for flow in flows(plan) if flow not in by_the_way and flow.target not in beside]


def critical_legs(plan: Plan, config: ModelConfig) -> list[Leg]:
    """The legs that a token waits for, in their order; as many as the plan promises."""
    first = [] if plan.topology == "ring" else [_leg(COORDINATOR, plan.homes[0], config.hidden, F32)]
    return first + [leg for flow in critical_flows(plan) for leg in _legs(flow, plan, config)]


def bytes_per_token(plan: Plan, config: ModelConfig) -> int:
    """All that is sent for a token: critical legs, residuals past gate_up, early rows, a ring's id copies."""
    first = [] if plan.topology == "ring" else [_leg(COORDINATOR, plan.homes[0], config.hidden, F32)]
    legs = [*first, *(leg for flow in flows(plan) for leg in _legs(flow, plan, config))]
    return sum(leg.n_bytes for leg in legs)


def floor_ms(plan: Plan, config: ModelConfig, wires: Wires, one_process_ms: float) -> float:
    """What a token takes at least: the nominal time of its legs and the work of one process.

    A leg takes its one way, the mean of the jitter, and its bytes at the rate. Where a residual's direct link
    is longer than the way past it, the difference counts too. Nothing measured on stations is in it.
    """
    legs = critical_legs(plan, config)
    delays = [wires.delay(leg.source, leg.target) for leg in legs]
    wire_ms = sum(delay.mean_ms + delay.sending_ms(leg.n_bytes) for delay, leg in zip(delays, legs))
    return wire_ms + predict(plan, nominal(wires)).late_ms + one_process_ms


def nominal(wires: Wires) -> Measured:
    """The wires as a planner takes them, between stations that need no time."""
    return Measured(wires.names, wires.one_way_ms, ((0.0,) * len(KINDS),) * len(wires.names))


def _legs(flow: Flow, plan: Plan, config: ModelConfig) -> Iterator[Leg]:
    homes = plan.homes
    source = homes[flow.source]
    target = homes[flow.target] if flow.target < len(homes) else COORDINATOR
    stops = [source, target]
    if source == target:
        return
    if plan.topology == "star" and target != COORDINATOR:
        stops.insert(1, COORDINATOR)
    width, dtype = _left_by(plan.groups[flow.source], config)
    for a, b in pairwise(stops):
        yield _leg(a, b, width, dtype)


def _left_by(group: Group, config: ModelConfig) -> tuple[int, int]:
    """How many numbers a group leaves, and of which type."""
    last = group.stages[-1]
    if last.kind == "head":
        return 1, IDS
    return leaves(config, Stage(last.layer, last.kind))[1], F32


def _leg(source: str, target: str, width: int, dtype: int) -> Leg:
    frame = encode_activation(Activation(1, 0, 0, 0, 1, bytes(_ITEM_BYTES * width), dtype), 0)
    # RFC 6455 §5.2; who has called masks, and only the coordinator hears from somebody it has called itself.
    header = 2 if len(frame) < 126 else 4 if len(frame) < 2**16 else 10
    return Leg(source, target, len(frame) + header + (0 if target == COORDINATOR else _MASK_BYTES))
