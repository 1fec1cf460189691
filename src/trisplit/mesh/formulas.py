"""What speculation and early residuals take and save, by formula, on links and stages as measured."""

from __future__ import annotations

from collections.abc import Mapping

from trisplit.mesh.plan import Plan
from trisplit.mesh.predict import COORDINATOR, KINDS, Measured
from trisplit.mesh.profile import Speculation
from trisplit.models.config import Kind


def accepted(acceptance: float, drafted: int) -> float:
    """Tokens a verified round yields: its own, and the drafted up to the first that is wrong.

    (1 - α^(K+1)) / (1 - α), see Leviathan et al. 2023, "Fast inference from transformers via
    speculative decoding", eq. 1.
    """
    return float(sum(acceptance**n for n in range(drafted + 1)))


def in_rounds_ms(traversal_ms: float, s: Speculation) -> float:
    """Milliseconds a token when each round drafts K tokens and sends them round as one frame."""
    return (traversal_ms + s.drafted * s.draft_ms) / accepted(s.acceptance, s.drafted)


def in_stream_ms(traversal_ms: float, bottleneck_ms: float, s: Speculation) -> float:
    """Milliseconds a token when drafted tokens follow each other: the busiest place, and a trip per miss."""
    return max(bottleneck_ms, s.draft_ms) + (1 - s.acceptance) * traversal_ms


def bottleneck_ms(plan: Plan, measured: Measured) -> float:
    """What the busiest place computes for one token: all visits of a station, or the coordinator's ends."""
    busy = [sum(_run(measured, share.station, stage.kind) for stage in share.stages) for share in plan.shares]
    if plan.topology != "ring":
        busy.append(_run(measured, COORDINATOR, "embed") + _run(measured, COORDINATOR, "head"))
    return max(busy)


def hidden_ms(plan: Plan, measured: Measured) -> float:
    """Attention that early residuals take off the path of a token, from the second layer on.

    Attention of layer l+1 starts on what attention of layer l leaves, sent ahead, while gate_up and
    down of layer l still run; what they add is added when it comes. Where down and the next
    attention share a station, they run there one after the other. None of it where a layer is whole.
    """
    homes = {
        (stage.layer, stage.kind): home
        for home, group in zip(plan.homes, plan.groups)
        for stage in group.stages
    }
    layers = 1 + max(layer for layer, _ in homes)
    return sum(_hidden(homes, layer, plan.topology, measured) for layer in range(layers - 1))


def _hidden(homes: Mapping[tuple[int, Kind], str], layer: int, topology: str, measured: Measured) -> float:
    """Milliseconds by which layer `layer` + 1 is through attention earlier."""
    before, gate_up, down = homes[layer, "attention"], homes[layer, "gate_up"], homes[layer, "down"]
    after = homes[layer + 1, "attention"]
    if before == gate_up:
        return 0.0

    def leg(a: str, b: str) -> float:
        return _leg(measured, a, b, topology)

    attention = _run(measured, after, "attention")
    widened = leg(before, gate_up) + _run(measured, gate_up, "gate_up") + leg(gate_up, down)
    at_down = max(widened, leg(before, down))
    down_ms, early = _run(measured, down, "down"), leg(before, after) + attention
    plain = at_down + down_ms + leg(down, after) + attention
    if down == after:
        return max(0.0, plain - max(at_down, early) - down_ms)
    return max(0.0, plain - max(at_down + down_ms + leg(down, after), early))


def _leg(measured: Measured, a: str, b: str, topology: str) -> float:
    if a == b:
        return 0.0
    if topology == "star" and COORDINATOR not in (a, b):
        return _leg(measured, a, COORDINATOR, "") + _leg(measured, COORDINATOR, b, "")
    return measured.one_way_ms[measured.index(a)][measured.index(b)]


def _run(measured: Measured, station: str, kind: Kind) -> float:
    return measured.stage_ms[measured.index(station)][KINDS.index(kind)]
