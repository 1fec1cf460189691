"""The energy of very many runs of a small script, from the processor time of a sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from trisplit.bench.cache import placed, ways_of
from trisplit.bench.progress import shown
from trisplit.bench.script_peers import LeftOut, Peer
from trisplit.bench.ways import Ground, Way
from trisplit.cache.ledger import Rates
from trisplit.cache.power import Energy, energy
from trisplit.paths import scratch

DAYS: Final = 365

# What the origin takes a start of bun to be, and the power it multiplies that with.
ORIGIN_CPU_MS: Final = 45.0
ORIGIN_WATTS: Final = 112.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """So many operations by one way. `cpu_ms` is of one, the mean of `samples`; the rest follows from it.

    `rapl_joules`: what the processor says it drew meanwhile, with all else that ran, for as many operations;
    None where it does not say. `year_…`: of a fleet. The row `origin` is what is stated there, and measured
    nowhere.
    """

    path: str
    engine_version: str
    warm: bool | None
    operations: int
    samples: int
    cpu_ms: float
    cpu_s: float
    watts: float
    joules: float
    kwh: float
    money: float
    rapl_joules: float | None
    year_kwh: float | None
    year_money: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How much of it: operations, of which `samples` are run; and those of a fleet in a year, or none."""

    operations: int
    samples: int
    ops_per_day: float = 0.0
    nodes: int = 1


def measure_energy(
    command: str, peers: Sequence[Peer], node: Peer | None, asked: Asked, rates: Rates, *, own: bool
) -> tuple[list[EnergyRow], list[LeftOut]]:
    """Hits by every door, and every peer, one way after the other: the processor counts what all draw."""
    with scratch() as folder, Ground.laid(folder, own=own) as ground:
        ways, left_out = ways_of(ground, placed(command, folder), peers, node)
        for way in sorted(ways, key=lambda way: way.warm):
            way.before()
            way.once()  # the first cold one is what the warm ones find
        hits = [way for way in ways if way.warm or way.is_peer]
        rows = [_sampled(way, asked, rates) for way in shown(hits, "ways")]
    stated = Rates(watts=ORIGIN_WATTS, price_per_kwh=rates.price_per_kwh, pue=rates.pue)
    rows.append(_row("origin", "bun, as stated", None, 0, ORIGIN_CPU_MS, None, asked, stated))
    return rows, left_out


def _sampled(way: Way, asked: Asked, rates: Rates) -> EnergyRow:
    before = energy()
    cpu_ms = fmean([way.once().cpu_ms for _ in range(asked.samples)])
    after = energy()
    drawn = None
    if isinstance(before, Energy) and isinstance(after, Energy):
        drawn = after.joules_since(before) / asked.samples * asked.operations
    version, warm = way.engine_version, None if way.is_peer else way.warm
    return _row(way.path, version, warm, asked.samples, cpu_ms, drawn, asked, rates)


def _row(
    path: str,
    version: str,
    warm: bool | None,
    samples: int,
    cpu_ms: float,
    drawn: float | None,
    asked: Asked,
    rates: Rates,
) -> EnergyRow:
    joules = rates.joules(1) * 1e3 * cpu_ms  # of one operation
    money = rates.money(1) * 1e3 * cpu_ms
    yearly = asked.ops_per_day * asked.nodes * DAYS
    return EnergyRow(
        path=path,
        engine_version=version,
        warm=warm,
        operations=asked.operations,
        samples=samples,
        cpu_ms=cpu_ms,
        cpu_s=cpu_ms / 1e3 * asked.operations,
        watts=rates.watts,
        joules=joules * asked.operations,
        kwh=joules * asked.operations / 3.6e6,
        money=money * asked.operations,
        rapl_joules=drawn,
        year_kwh=joules * yearly / 3.6e6 if yearly else None,
        year_money=money * yearly if yearly else None,
    )
