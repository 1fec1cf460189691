"""What each choice of a ladder gains alone, and what all of them gain together; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class Measured(Protocol):
    """A rung, as far as gains are told from it."""

    @property
    def cut(self) -> str: ...
    @property
    def topology(self) -> str: ...
    @property
    def levers(self) -> str: ...
    @property
    def p50_ms(self) -> float: ...
    @property
    def floor_ms(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How many times as fast a rung is as the first one.

    `by_cut`, `by_topology`, `by_levers`: each choice alone, everything else as in the first rung; None where
    that was not measured. `product` of the three; `together` as measured; `of_floors` what the floors allow;
    `beside_floors` is `together` over that.
    """

    cut: str
    topology: str
    levers: str
    by_cut: float | None
    by_topology: float | None
    by_levers: float | None
    product: float | None
    together: float
    of_floors: float
    beside_floors: float


def gains(rungs: Sequence[Measured]) -> Iterator[Gain]:
    """One for every rung but the first."""
    first = rungs[0]
    p50_ms = {(rung.cut, rung.topology, rung.levers): rung.p50_ms for rung in rungs}

    def alone(cut: str, topology: str, levers: str) -> float | None:
        ms = p50_ms.get((cut, topology, levers))
        return None if ms is None else first.p50_ms / ms

    for rung in rungs[1:]:
        by_cut = alone(rung.cut, first.topology, first.levers)
        by_topology = alone(first.cut, rung.topology, first.levers)
        by_levers = alone(first.cut, first.topology, rung.levers)
        together, of_floors = first.p50_ms / rung.p50_ms, first.floor_ms / rung.floor_ms
        yield Gain(
            cut=rung.cut,
            topology=rung.topology,
            levers=rung.levers,
            by_cut=by_cut,
            by_topology=by_topology,
            by_levers=by_levers,
            product=by_cut * by_topology * by_levers if by_cut and by_topology and by_levers else None,
            together=together,
            of_floors=of_floors,
            beside_floors=together / of_floors,
        )
