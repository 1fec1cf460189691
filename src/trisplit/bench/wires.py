"""What lies between the processes of a bench, as it is meant to be: one-way times, jitter, rate; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trisplit.bench.delays import Delay
from trisplit.bench.relay import RelayLink
from trisplit.errors import RequestProblem, UnknownName
from trisplit.mesh.predict import COORDINATOR

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """`one_way_ms[a][b]` from the a-th of `names`, the coordinator and the stations, to the b-th.

    `jitter_ms` and `mbit` are those of `Delay`, the same everywhere.
    """

    names: tuple[str, ...]
    one_way_ms: Matrix
    jitter_ms: float = 0.0
    mbit: float | None = None

    @property
    def stations(self) -> tuple[str, ...]:
        """All but the coordinator."""
        return self.names[1:]

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing to emulate."""
        return not (self.jitter_ms or self.mbit or any(map(any, self.one_way_ms)))

    @property
    def even_ms(self) -> float | None:
        """The one way that all links have; None where they differ."""
        n = len(self.names)
        found = {self.one_way_ms[a][b] for a in range(n) for b in range(n) if a != b}
        return found.pop() if len(found) == 1 else None

    def delay(self, source: str, target: str) -> Delay:
        """What bytes from one to the other meet."""
        one_way_ms = self.one_way_ms[self.names.index(source)][self.names.index(target)]
        return Delay(one_way_ms=one_way_ms, jitter_ms=self.jitter_ms, mbit=self.mbit)

    def with_far(self, factors: Mapping[str, float]) -> Wires:
        """The same with some so many times as far from everybody; between two such the larger counts.

        UnknownName for one that is not there.
        """
        for name in factors.keys() - {*self.names}:
            raise UnknownName("station", name, self.names)
        times = [factors.get(name, 1.0) for name in self.names]
        rows = (
            tuple(ms * max(times[a], times[b]) for b, ms in enumerate(row))
            for a, row in enumerate(self.one_way_ms)
        )
        return replace(self, one_way_ms=tuple(rows))

    def at_scale(self, factor: float) -> Wires:
        """The same where time passes so many times as slowly."""
        rows = tuple(tuple(factor * ms for ms in row) for row in self.one_way_ms)
        mbit = None if self.mbit is None else self.mbit / factor
        return replace(self, one_way_ms=rows, jitter_ms=factor * self.jitter_ms, mbit=mbit)

    def links(self, addresses: Mapping[str, str]) -> list[RelayLink]:
        """A relay's link for every caller and every station it could call.

        RequestProblem where there and back differ for the coordinator: one connection carries both.
        """
        for station in self.stations:
            there, back = self.delay(COORDINATOR, station), self.delay(station, COORDINATOR)
            if there != back:
                what = (
                    f"the coordinator is {there.one_way_ms:g} ms from {station}, and {back.one_way_ms:g} back"
                )
                raise RequestProblem(what, fix="give both the same")
        return [
            RelayLink(caller=caller, station=s, address=address, delay=self.delay(caller, s))
            for caller in self.names
            for s, address in addresses.items()
            if caller != s
        ]


def names_of(stations: int) -> list[str]:
    """`s1`, `s2`, …"""
    return [f"s{i}" for i in range(1, stations + 1)]


def wires_between(
    stations: Sequence[str], one_way_ms: float | Matrix, *, jitter_ms: float = 0.0, mbit: float | None = None
) -> Wires:
    """Wires all alike, or one by one; RequestProblem for what no links can be."""
    names, n = (COORDINATOR, *stations), len(stations) + 1
    if not isinstance(one_way_ms, tuple):
        one_way_ms = tuple(tuple(one_way_ms * (a != b) for b in names) for a in names)
    if {len(one_way_ms), *map(len, one_way_ms)} != {n}:
        raise RequestProblem(
            f"the links are {len(one_way_ms)} rows for {len(stations)} stations",
            fix=f"give {n} rows of {n} numbers: the coordinator first",
        )
    wires = Wires(names=names, one_way_ms=one_way_ms, jitter_ms=jitter_ms, mbit=mbit)
    for a in names:
        for b in names:
            wires.delay(a, b)
    return wires
