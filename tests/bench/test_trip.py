"""A token's trip: legs and bytes as the plan has them, and the floor as issue and docs define it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from trisplit.bench.trip import Leg, bytes_per_token, critical_legs, floor_ms
from trisplit.bench.wires import names_of, wires_between
from trisplit.mesh.ahead import starting_ahead
from trisplit.mesh.costs import plan_model
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.overlap import Early
from trisplit.mesh.plan import Plan
from trisplit.mesh.room import Room
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.config import ModelConfig
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]

# The tiny llama: rows of 64 numbers, 96 inside a layer, 4 layers; an activation has 27 bytes of headers.
X, H, ID = 27 + 4 * 64, 27 + 4 * 96, 27 + 4
LONG, SHORT, MASK = 4, 2, 4  # headers of a WebSocket, and what a caller adds


def drawn(tiny: Tiny, cut: str, topology: str, stations: int = 3) -> tuple[Plan, ModelConfig]:
    model = open_model(tiny("llama"))
    rooms = [Room(name, None) for name in names_of(stations)]
    return plan_model(model, rooms, cut=cut, topology=topology, dtype="f32", context=32), model.config


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("stations", [3, 4])
def test_as_many_legs_as_promised(cut: str, topology: str, stations: int, tiny: Tiny) -> None:
    plan, config = drawn(tiny, cut, topology, stations)
    legs = critical_legs(plan, config)
    assert len(legs) == plan.legs_per_token
    for leg, on in pairwise(legs):
        assert leg.target == on.source
    assert (legs[-1].target == legs[0].source) or topology == "ring"


def test_a_chain_of_thirds_leg_by_leg(tiny: Tiny) -> None:
    plan, config = drawn(tiny, "thirds", "chain")
    attention, gate_up, down = plan.homes[:3]
    legs = critical_legs(plan, config)
    assert legs[:4] == [
        Leg("coordinator", attention, X + LONG + MASK),
        Leg(attention, gate_up, X + LONG + MASK),
        Leg(gate_up, down, H + LONG + MASK),
        Leg(down, attention, X + LONG + MASK),
    ]
    assert legs[-1] == Leg(down, "coordinator", X + LONG)
    residuals = 4 * (X + LONG + MASK)  # from attention to down, once a layer
    assert bytes_per_token(plan, config) == sum(leg.n_bytes for leg in legs) + residuals


def test_early_rows_are_sent_and_not_waited_for(tiny: Tiny) -> None:
    """On twelve stations each attention has its own; on three all are neighbours of themselves."""
    for stations, sent in ((12, 2 * (X + LONG + MASK)), (3, 0)):
        plan, config = drawn(tiny, "thirds", "ring", stations)
        ahead = starting_ahead(plan, [1, 3], Early())
        assert critical_legs(ahead, config) == critical_legs(plan, config)
        assert bytes_per_token(ahead, config) == bytes_per_token(plan, config) + sent


def test_a_star_carries_everything_twice(tiny: Tiny) -> None:
    plan, config = drawn(tiny, "thirds", "star")
    attention, gate_up = plan.homes[:2]
    assert critical_legs(plan, config)[:3] == [
        Leg("coordinator", attention, X + LONG + MASK),
        Leg(attention, "coordinator", X + LONG),
        Leg("coordinator", gate_up, X + LONG + MASK),
    ]
    legs_bytes = sum(leg.n_bytes for leg in critical_legs(plan, config))
    assert bytes_per_token(plan, config) == legs_bytes + 4 * (2 * (X + LONG) + MASK)


def test_a_ring_sends_ids_on_and_copies_of_them(tiny: Tiny) -> None:
    plan, config = drawn(tiny, "layers", "ring")
    legs = critical_legs(plan, config)
    assert legs == [
        Leg("s1", "s2", X + LONG + MASK),
        Leg("s2", "s3", X + LONG + MASK),
        Leg("s3", "s1", ID + SHORT + MASK),
    ]
    assert bytes_per_token(plan, config) == sum(leg.n_bytes for leg in legs) + ID + SHORT


def test_a_residual_that_stays_is_not_sent(tiny: Tiny) -> None:
    plan, config = drawn(tiny, "recut", "chain", 2)
    assert plan.homes[0] == plan.homes[2]
    assert bytes_per_token(plan, config) == sum(leg.n_bytes for leg in critical_legs(plan, config))


@pytest.mark.parametrize(
    ("how", "wire_ms"),
    [
        ({"one_way_ms": 20.0}, 3 * 20.0),
        ({"one_way_ms": 20.0, "jitter_ms": 4.0}, 3 * (20.0 + 2.0)),
        (
            {"one_way_ms": 20.0, "mbit": 8.0},
            3 * 20.0 + (2 * (X + LONG + MASK) + ID + SHORT + MASK) / 1000,
        ),
        ({"one_way_ms": 0.0}, 0.0),
    ],
)
def test_the_floor_is_nominal_legs_and_one_process(how: dict[str, Any], wire_ms: float, tiny: Tiny) -> None:
    plan, config = drawn(tiny, "layers", "ring")
    wires = wires_between(names_of(3), **how)
    assert floor_ms(plan, config, wires, 27.0) == pytest.approx(wire_ms + 27.0)


def test_the_floor_of_uneven_links_goes_by_each_leg(tiny: Tiny) -> None:
    plan, config = drawn(tiny, "thirds", "chain")
    attention, gate_up, down = plan.homes[:3]
    wires = wires_between(names_of(3), 10.0).with_far({down: 3.0})
    # A layer: attention → gate_up near, gate_up → down far, down → attention far; both ends are one leg each.
    assert floor_ms(plan, config, wires, 1.0) == 10 + 4 * (10 + 30) + 3 * 30 + 30 + 1.0
    late = wires_between(names_of(3), 10.0)
    rows = [[*row] for row in late.one_way_ms]
    rows[late.names.index(attention)][late.names.index(down)] = 35.0  # 15 more than past it through gate_up
    uneven = wires_between(names_of(3), tuple(map(tuple, rows)))
    assert floor_ms(plan, config, uneven, 0.0) == 13 * 10 + 4 * 15
    assert gate_up != down
