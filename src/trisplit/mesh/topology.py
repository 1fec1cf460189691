"""How tokens travel between stage groups: who relays, where embed and head lie, and the legs that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trisplit.mesh.cuts import StageCost, Unit

TOPOLOGIES: Final[dict[str, str]] = {
    "star": "the coordinator relays every hop and keeps embed and head",
    "chain": "station to station; the coordinator, at both ends, keeps embed and head",
    "ring": "station to station; the tail samples and hands the id to the station with embed",
}


def legs_per_token(homes: Sequence[str], topology: str) -> int:
    """One-way trips on the critical path of a token that visits `homes` in turn, one name for each group.

    In a ring the last leg, from head to embed, is none where both lie on one station. Elsewhere
    neighbouring groups are on different stations. The residual that goes past gate_up is never the
    later one, so it adds no leg.
    """
    if topology == "star":
        return 2 * len(homes)
    if topology == "chain":
        return len(homes) + 1
    return len(homes) - 1 + (homes[0] != homes[-1])


def with_ends(units: Sequence[Unit], ends: tuple[StageCost, StageCost], topology: str) -> list[Unit]:
    """In a ring embed joins the first unit and head the last; elsewhere the coordinator keeps them."""
    joined = list(units)
    if topology == "ring":
        embed, head = ends
        joined[0] = (embed, *joined[0])
        joined[-1] = (*joined[-1], head)
    return joined
