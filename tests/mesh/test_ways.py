"""Ways lead from each group to those that use its rows; routes lead where the ways lead, five hops ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mesh.test_plan import even, rooms_of
from trisplit.mesh.cuts import CUTS, NO_ENDS
from trisplit.mesh.plan import Plan, plan
from trisplit.mesh.ways import Ways, ways, with_routes
from trisplit.wire import route
from trisplit.wire.messages import Way


def drawn(cut: str, topology: str, *, layers: int = 4, stations: int = 3, parallel: bool = False) -> Plan:
    rooms = rooms_of(*[None] * stations)
    chain = [replace(stage, parallel=parallel) for stage in even(layers)]
    return plan(chain, rooms, cut=cut, topology=topology, ends=NO_ENDS)


def address(_: str, station: str) -> str:
    return f"{station}:1"


def told(plan: Plan) -> dict[str, list[Way]]:
    return with_routes(ways(plan, address))


def test_the_ways_of_a_small_chain() -> None:
    """Attention on s0, gate_up on s1, down on s2, one layer: the residual goes past s1."""
    one = drawn("thirds", "chain", layers=1)
    assert ways(one, address) == {
        "s0": [Way(0, 1, False, "s1:1", station="s1"), Way(0, 2, True, "s2:1", station="s2")],
        "s1": [Way(1, 2, False, "s2:1", station="s2")],
        "s2": [Way(2, 3, False, "")],
    }


def test_the_routes_of_a_small_chain() -> None:
    routes = {
        way.target: route.decode_response(way.route)
        for those in told(drawn("thirds", "chain", layers=2)).values()
        for way in those
    }
    # s0 numbers s1 and s2 1 and 2, s1 knows s2 alone, s2 numbers s0 and the coordinator.
    assert routes == {1: (1, 1, 1, 1, 2), 2: (1, 1, 1, 2), 3: (1, 1, 2), 4: (1, 2), 5: (2,), 6: ()}


def test_a_star_has_the_coordinator_for_its_only_neighbour() -> None:
    made = drawn("recut", "star")
    those = [way for station in told(made).values() for way in station]
    assert {way.address for way in those} == {""}
    assert {way.target: route.decode_response(way.route) for way in those} == {
        target: (1,) * min(5, len(made.homes) - target) for target in range(1, len(made.homes) + 1)
    }


@pytest.mark.parametrize("topology", ["chain", "ring"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("stations", [3, 5, 7, 12])
@pytest.mark.parametrize("parallel", [False, True])
def test_routes_lead_where_the_ways_lead(cut: str, topology: str, stations: int, parallel: bool) -> None:
    made = drawn(cut, topology, layers=6, stations=stations, parallel=parallel)
    those = told(made)
    for station in those.values():
        for way in station:
            numbers = route.decode_response(way.route)
            assert walked(made, those, way.target, numbers) == expected(made, those, way.target)


def walked(plan: Plan, those: Ways, group: int, numbers: route.Route) -> list[str]:
    """The addresses a frame for a group comes to along a route."""
    came, homes = [], {f"{name}:1": name for name in those}
    at = plan.homes[group] if numbers else ""
    for number in numbers:
        came.append([*dict.fromkeys(way.address for way in those[at])][number - 1])
        at = homes.get(came[-1], "")
    return came


def expected(plan: Plan, those: Ways, group: int) -> list[str]:
    """The addresses that rows for a group come to after it: five, or up to where they end."""
    came: list[str] = []
    while group < len(plan.homes) and len(came) < 5:
        station = those[plan.homes[group]]
        way = next((way for way in station if way.source == group and not way.residual), None)
        if way is None:  # attention of a parallel block leaves a residual and nothing else
            break
        if [*dict.fromkeys(way.address for way in station)].index(way.address) >= 7:
            break
        came.append(way.address)
        group = way.target
    return came


def test_an_eighth_neighbour_has_no_number() -> None:
    """The one attention station sends to eleven others, which send back."""
    station = [Way(2 * n, 2 * n + 1, False, f"s{n}:1") for n in range(11)]
    others = {f"s{n}": [Way(2 * n + 1, 2 * n + 2, False, "hub:1")] for n in range(11)}
    made = with_routes({"hub": station, **others})
    routes = {way.target: route.decode_response(way.route) for those in made.values() for way in those}
    assert routes[2] == (2, 1, 3, 1, 4)
    assert routes[8] == (5, 1, 6, 1, 7)
    assert routes[12] == (7, 1)
    assert routes[13] == (1,)
    assert routes[14] == ()
