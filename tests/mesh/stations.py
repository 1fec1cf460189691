"""Stations s0, s1, … and equal stages for them, for tests that count and predict."""

from __future__ import annotations

from trisplit.mesh.cuts import StageCost
from trisplit.mesh.room import Room
from trisplit.models.config import LAYER_KINDS, Kind

MS: dict[Kind, float] = {"embed": 1.0, "attention": 2.0, "gate_up": 3.0, "down": 4.0, "head": 10.0}


def stages(n_layers: int, *, parallel: bool = False) -> list[StageCost]:
    """Ten bytes each."""
    return [
        StageCost(layer, kind, 10, 0, parallel=parallel) for layer in range(n_layers) for kind in LAYER_KINDS
    ]


def names(n_stations: int) -> list[str]:
    return [f"s{i}" for i in range(n_stations)]


def rooms(n_stations: int) -> list[Room]:
    return [Room(name, None) for name in names(n_stations)]
