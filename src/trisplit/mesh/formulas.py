"""What speculation and early residuals take and save, by formula, on links and stages as measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trisplit.mesh.plan import Plan
from trisplit.mesh.predict import COORDINATOR, Measured
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
    busy = [
        sum(measured.run_ms(share.station, stage.kind) for stage in share.stages) for share in plan.shares
    ]
    if plan.topology != "ring":
        busy.append(measured.run_ms(COORDINATOR, "embed") + measured.run_ms(COORDINATOR, "head"))
    return max(busy)


def hidden_ms(plan: Plan, measured: Measured, ahead: Collection[int] | None = None) -> float:
    """Attention that early residuals take off the path of a token: of these layers, or all but the first.

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
    early = range(1, layers) if ahead is None else ahead
    return sum(_hidden(homes, layer - 1, plan.topology, measured) for layer in early)


def _hidden(homes: Mapping[tuple[int, Kind], str], layer: int, topology: str, measured: Measured) -> float:
    """Milliseconds by which layer `layer` + 1 is through attention earlier."""
    before, gate_up, down = homes[layer, "attention"], homes[layer, "gate_up"], homes[layer, "down"]
    after = homes[layer + 1, "attention"]
    if before == gate_up:
        return 0.0

    def leg(a: str, b: str) -> float:
        return measured.way_ms(a, b, topology)

    attention = measured.run_ms(after, "attention")
    widened = leg(before, gate_up) + measured.run_ms(gate_up, "gate_up") + leg(gate_up, down)
    at_down = max(widened, leg(before, down))
    down_ms, early = measured.run_ms(down, "down"), leg(before, after) + attention
    plain = at_down + down_ms + leg(down, after) + attention
    if down == after:
        return max(0.0, plain - max(at_down, early) - down_ms)
    return max(0.0, plain - max(at_down + down_ms + leg(down, after), early))
