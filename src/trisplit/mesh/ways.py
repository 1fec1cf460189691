"""What each station is told when it joins: where what its groups leave goes, and the routes on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from trisplit.mesh.flow import flows
from trisplit.mesh.plan import Plan
from trisplit.wire import route
from trisplit.wire.messages import Way
from trisplit.wire.route import MOST_HOPS, MOST_NEIGHBOURS, Route

Ways = Mapping[str, Sequence[Way]]


def ways(plan: Plan, address: Callable[[str, str], str]) -> dict[str, list[Way]]:
    """The ways of each station by name, without routes; in a star all lead to the coordinator.

    `address` is what one station dials to reach another.
    """
    homes, star = plan.homes, plan.topology == "star"
    those: dict[str, list[Way]] = {share.station: [] for share in plan.shares}
    for flow in flows(plan):
        source = homes[flow.source]
        target = "" if star or flow.target == len(homes) else homes[flow.target]
        where = address(source, target) if target else ""
        way = Way(flow.source, flow.target, flow.residual, where, station=target, early=flow.early)
        those[source].append(way)
    return those


def with_routes(those: Ways) -> dict[str, list[Way]]:
    """The same ways, each with the route that frames take on from where it leads.

    A route follows the rows, not the residual beside them, for five hops, to the end of the trip, or until
    a station's neighbour is beyond its first seven: whoever comes to its end goes by its own ways again.
    """
    hops = {source: hop for station in those.values() for source, hop in _hops(station).items()}

    def told(group: int) -> bytes:
        numbers: Route = ()
        while len(numbers) < MOST_HOPS and group in hops:
            number, group = hops[group]
            numbers = (*numbers, number)
        return route.encode_response(numbers)

    return {
        name: [msgspec.structs.replace(way, route=told(way.target)) for way in station]
        for name, station in those.items()
    }


def _hops(station: Sequence[Way]) -> dict[int, tuple[int, int]]:
    """By source group: the number of the neighbour that its rows go to, and the group they are for."""
    numbers = {address: n for n, address in enumerate(dict.fromkeys(way.address for way in station), 1)}
    hops: dict[int, tuple[int, int]] = {}
    for way in station:
        if not (way.residual or way.early) and numbers[way.address] <= MOST_NEIGHBOURS:
            hops.setdefault(way.source, (numbers[way.address], way.target))
    return hops
