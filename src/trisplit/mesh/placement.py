"""Units onto stations: which units may lie together, tried in the orders of stations that are worth a try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trisplit.mesh.cuts import CUTS, Unit, n_bytes
from trisplit.mesh.partition import pack
from trisplit.mesh.room import Room

Bundle = tuple[int, ...]
"""Numbers of units that are placed as one."""

Pool = list[Bundle]
"""Bundles in order; a station takes neighbours of one pool."""


def pools_of(n_units: int, cut: str) -> list[Pool]:
    """Units by kind: as many kinds as the cut has places, taking turns along the chain."""
    kinds = len(CUTS[cut])
    return [[(number,) for number in range(first, n_units, kinds)] for first in range(kinds)]


def pool_sizes(pools: Sequence[Pool], units: Sequence[Unit]) -> list[list[int]]:
    """Bytes of every bundle."""
    return [[n_bytes(units[number] for number in bundle) for bundle in pool] for pool in pools]


def limits_of(units: Sequence[Unit], rooms: Sequence[Room]) -> list[int]:
    """Room for stages, never more than all of them, each for itself, need."""
    total = sum(n_bytes([unit]) for unit in units)
    return [total if room.memory_bytes is None else min(total, room.memory_bytes) for room in rooms]


def place(
    units: Sequence[Unit], rooms: Sequence[Room], *, cut: str, topology: str, as_given: bool = False
) -> list[int] | None:
    """For each unit the index of its station, or None if nothing tried holds them all.

    The order of stations is tried as given, then (unless `as_given`) largest first and smallest first.
    """
    limits = limits_of(units, rooms)
    given = range(len(limits))
    largest_first = sorted(given, key=lambda i: -limits[i])
    orders = (given,) if as_given else (given, largest_first, largest_first[::-1])
    for pools in _arrangements(len(units), cut, topology):
        sizes = pool_sizes(pools, units)
        for order in orders:
            runs = pack(sizes, [limits[i] for i in order], [rooms[i].slowness_percent for i in order])
            if runs is not None:
                homes = {
                    number: i
                    for i, run in zip(order, runs)
                    if run is not None
                    for bundle in pools[run.pool][run.start : run.stop]
                    for number in bundle
                }
                return [homes[number] for number in range(len(units))]
    return None


def _arrangements(n_units: int, cut: str, topology: str) -> Iterator[list[Pool]]:
    """Ways to bundle units, best first. A ring saves its last leg where it ends on the station it began.

    `recut` ends in the kind it began with, so its last unit can lie with its first. Whole layers in a
    ring can only if one station holds them all, where a tied head is the embedding itself.
    """
    plain = pools_of(n_units, cut)
    if topology == "ring" and cut == "recut":
        (first, *between, last), other = plain
        yield [[first + last, *between], other]
    yield plain
    if topology == "ring" and cut == "layers":
        yield [[tuple(range(n_units))]]
