"""The quickest order of stations for one cut and topology: all orders of few, a climb among many.

What a station holds follows from its place in the order (`placement`), what a token then takes from the
links (`predict`). Stations that are alike, in room and slowness, change places without placing anew, so
orders are compared in batches, one placement each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from math import comb, factorial, inf
from typing import Final

import numpy as np

from trisplit.mesh.placement import place
from trisplit.mesh.plan import Plan, drawn, groups_of
from trisplit.mesh.predict import Measured, Path, path_of, times
from trisplit.mesh.refusal import Wish

MOST_ORDERS: Final = 20_000  # seven stations, each of which may be left out, have 13,699
MOST_PLACEMENTS: Final = 400  # of about 2 ms
MANY: Final = 40  # stations
MOST_ROUNDS: Final = 40
NEIGHBOURS: Final = 1_000  # pairs of stations looked at in a round

Order = tuple[int, ...]
"""Indices of rooms; those that are not in it are left out."""

Likeness = tuple[int, ...]
"""For each station of an order the first that is like it: all that their shares depend on."""

Placed = dict[Likeness, tuple[int, ...] | None]
"""For every unit its home's place in the order; None where the order does not hold them."""


@dataclass(frozen=True, slots=True)
class Found:
    """The quickest order, for every unit its home's place in it, and the predicted milliseconds."""

    order: Order
    homes: tuple[int, ...]
    ms: float


class Orders:
    """Orders of the stations of a wish, compared by what a token would take; counts those it compared."""

    def __init__(self, wish: Wish, measured: Measured, placed: Placed) -> None:
        """`placed` is filled on the way; wishes that differ in nothing but star and chain may share it."""
        self.compared = 0
        self._wish, self._measured, self._units = wish, measured, wish.units()
        self._seats = np.array([measured.index(room.name) for room in wish.rooms])
        kinds = [(room.memory_bytes, room.slowness_percent) for room in wish.rooms]
        self._alike = [kinds.index(kind) for kind in kinds]
        self._optional = {i for i, room in enumerate(wish.rooms) if room.memory_bytes is not None}
        self._placed = placed

    @property
    def given(self) -> Order:
        """All stations as they were named."""
        return tuple(range(len(self._seats)))

    def best(self) -> tuple[Found | None, bool]:
        """The quickest order and whether it was compared with all others; None if none holds the stages.

        A station whose limit was stated may be left out: it offers what it has. One without is
        there to share the work.
        """
        orders = self._all()
        return (self._climb(), False) if orders is None else (self.quickest(orders), True)

    def quickest(self, orders: Iterable[Order]) -> Found | None:
        """The quickest of these, the first if several are."""
        batches: dict[Likeness, list[Order]] = {}
        for order in orders:
            batches.setdefault(self._key(order), []).append(order)
        found: Found | None = None
        for batch in batches.values():
            homes = self._place(batch[0])
            if homes is None:
                continue
            path = self._path(homes)
            seats = np.insert(self._seats[np.array(batch)], 0, 0, axis=1)
            wire, compute, late = times(path, self._measured, seats)
            ms = wire + compute + late
            self.compared += len(batch)
            at = int(np.argmin(ms))
            if found is None or ms[at] < found.ms:
                found = Found(batch[at], homes, float(ms[at]))
        return found

    def plan(self, found: Found) -> Plan:
        """The plan of what was found: its stations in that order, then those that hold nothing."""
        seats = sorted(set(found.homes))
        used = [found.order[seat] for seat in seats]
        ordered = [*used, *(i for i in self.given if i not in used)]
        wish = replace(self._wish, rooms=[self._wish.rooms[i] for i in ordered])
        return drawn(wish, [seats.index(home) for home in found.homes])

    def _key(self, order: Order) -> Likeness:
        return tuple(map(self._alike.__getitem__, order))

    def _place(self, order: Order) -> tuple[int, ...] | None:
        """For every unit the place of its home in the order."""
        key = self._key(order)
        if key not in self._placed:
            cut, topology = self._wish.cut, self._wish.topology
            rooms = [self._wish.rooms[i] for i in order]
            homes = place(self._units, rooms, cut=cut, topology=topology, as_given=True)
            self._placed[key] = None if homes is None else tuple(homes)
        return self._placed[key]

    def _path(self, homes: Sequence[int]) -> Path:
        """The path of a token; seat 0 is the coordinator's, then come the stations of the order."""
        visits = groups_of(self._units, homes)
        seats, groups = [1 + home for home, _ in visits], [stages for _, stages in visits]
        return path_of(seats, groups, self._wish.topology)

    def _all(self) -> list[Order] | None:
        """All orders of all stations, then with some left out; None where they are too many."""
        if self._are_alike():
            fewest = 1 if self._optional else len(self.given)
            return [self.given[:n] for n in range(len(self.given), fewest - 1, -1)]
        optional = sorted(self._optional)
        kept = [i for i in self.given if i not in self._optional]
        sizes = range(len(optional), -1, -1)
        if sum(comb(len(optional), n) * factorial(len(kept) + n) for n in sizes) > MOST_ORDERS:
            return None
        sets = (sorted([*kept, *some]) for n in sizes for some in combinations(optional, n))
        orders = [order for members in sets for order in permutations(members) if order]
        return orders if len({self._key(order) for order in orders}) <= MOST_PLACEMENTS else None

    def _are_alike(self) -> bool:
        """Whether stations could change names without a difference."""
        at = [0, *self._seats]
        legs = {self._measured.one_way_ms[a][b] for a in at for b in at if a != b}
        speeds = {self._measured.stage_ms[seat] for seat in self._seats}
        return max(len(legs), len(speeds), len(set(self._alike))) <= 1

    # --- climbing ---

    def _climb(self) -> Found | None:
        """From each of a few orders to better ones near it, until none is."""
        best: Found | None = None
        for start in self._starts():
            found = self._climb_from(start)
            if best is None or (found is not None and found.ms < best.ms):
                best = found
        return best

    def _climb_from(self, start: Order) -> Found | None:
        found = self.quickest([start])
        for _ in range(MOST_ROUNDS):
            if found is None:
                return None
            near = self.quickest(self._affordable(_neighbours(found.order, self._optional)))
            if near is None or near.ms >= found.ms:
                break
            found = near
        return found

    def _starts(self) -> list[Order]:
        """As named, by room either way, from the nearest to the next; of many stations the best alone."""
        by_room = sorted(self.given, key=self._room)
        starts = [self.given, tuple(by_room[::-1]), tuple(by_room), self._nearest_first()]
        if len(self.given) <= MANY:
            return starts
        best = self.quickest(starts)
        return [] if best is None else [best.order]

    def _room(self, i: int) -> float:
        limit = self._wish.rooms[i].memory_bytes
        return inf if limit is None else limit

    def _nearest_first(self) -> Order:
        """From the coordinator always to the nearest station not yet in it."""
        at, left, order = 0, list(self.given), []
        while left:
            nearest = min(left, key=lambda i: self._measured.one_way_ms[at][self._seats[i]])
            left.remove(nearest)
            order.append(nearest)
            at = self._seats[nearest]
        return tuple(order)

    def _affordable(self, orders: Iterable[Order]) -> Iterator[Order]:
        """Those whose placement is known, and others until enough were placed."""
        new: set[Likeness] = set()
        for order in orders:
            key = self._key(order)
            if key in self._placed or len(self._placed) + len(new) < MOST_PLACEMENTS:
                new.add(key)
                yield order


def _neighbours(order: Order, may_be_left_out: set[int]) -> Iterator[Order]:
    """Two stations swapped, a stretch reversed, one moved, one or the later ones left out."""
    optional, n = [i for i in order if i in may_be_left_out], len(order)
    if n > 1:
        yield from (tuple(i for i in order if i != out) for out in optional)
    for kept in (len(optional) >> halvings for halvings in range(1, len(optional).bit_length())):
        out = set(optional[kept:])
        yield tuple(i for i in order if i not in out)
    reach = max(1, NEIGHBOURS // n)
    for i in range(n):
        for j in range(i + 1, min(n, i + 1 + reach)):
            yield (*order[:i], order[j], *order[i + 1 : j], order[i], *order[j + 1 :])
            yield (*order[:i], *reversed(order[i : j + 1]), *order[j + 1 :])
            yield (*order[:i], *order[i + 1 : j + 1], order[i], *order[j + 1 :])
            yield (*order[:i], order[j], *order[i:j], *order[j + 1 :])
