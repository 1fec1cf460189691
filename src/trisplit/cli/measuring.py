"""Has running stations measure their links to one another, and orders them by that."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from trisplit.cli.progress import bars
from trisplit.mesh.costs import choose_for_model
from trisplit.mesh.distances import ROUNDS, Distances, Meter
from trisplit.mesh.plan import Plan
from trisplit.mesh.profile import Profile
from trisplit.mesh.room import Room
from trisplit.mesh.trust import Trust
from trisplit.models.convert import Dtype
from trisplit.models.model import Model


async def measured(addresses: Mapping[str, str], trust: Trust, rounds: int = ROUNDS) -> Distances:
    """All links between the stations and from here, by `rounds` pings each; PeerProblem as of `Meter`."""
    meter = Meter(addresses, trust, rounds)
    with bars() as show:
        async with aclosing(meter.run()) as steps:
            async for done in steps:
                show.advance("links", done, meter.pairs, f"{done:,} of {meter.pairs:,}")
    return meter.distances()


def ordered(
    model: Model,
    rooms: Sequence[Room],
    seen: Distances,
    *,
    cut: str,
    topology: str,
    dtype: Dtype,
    context: int,
) -> Plan:
    """The plan whose order of stations has the shortest legs; says on standard error what that is worth."""
    told = Profile(links=seen.links).measured([room.name for room in rooms], model.config.layers)
    pinned = {"cuts": [cut], "topologies": [topology]}
    best = choose_for_model(model, rooms, told, dtype=dtype, context=context, **pinned).best
    order = ", ".join(f"{share.station} ({seen.addresses[share.station]})" for share in best.plan.shares)
    named = "" if best.as_named_ms is None else f"; in the order they were named {best.as_named_ms:,.1f} ms"
    legs = f"legs {best.prediction.ms:,.1f} ms a token{named}"
    print(f"stations by measured links: {order}: {legs}", file=sys.stderr)
    return best.plan
