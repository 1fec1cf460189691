"""The words of a refusal: why stages do not fit, in numbers, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trisplit.errors import PlanProblem
from trisplit.mesh.cuts import CUTS, StageCost, Unit, label, n_bytes, units_of
from trisplit.mesh.partition import leftovers
from trisplit.mesh.placement import limits_of, place, pool_sizes, pools_of
from trisplit.mesh.room import Room
from trisplit.mesh.topology import TOPOLOGIES, with_ends
from trisplit.table import size


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was to be placed, and how."""

    chain: Sequence[StageCost]
    ends: tuple[StageCost, StageCost]
    rooms: Sequence[Room]
    cut: str
    topology: str

    def units(self, *, cut: str = "", topology: str = "") -> list[Unit]:
        """The chain in units, as wished unless said otherwise."""
        return with_ends(units_of(self.chain, cut or self.cut), self.ends, topology or self.topology)

    def homes(self, *, cut: str = "", topology: str = "") -> list[int] | None:
        """For each unit its station, as wished unless said otherwise; None if they do not fit."""
        cut, topology = cut or self.cut, topology or self.topology
        return place(self.units(cut=cut, topology=topology), self.rooms, cut=cut, topology=topology)


def refusal(wish: Wish) -> PlanProblem:
    """Why nothing that was tried holds the wished, and what would."""
    units, rooms, cut = wish.units(), wish.rooms, wish.cut
    sizes, limits = [n_bytes([unit]) for unit in units], limits_of(units, rooms)
    largest, roomiest = sizes.index(max(sizes)), limits.index(max(limits))
    if sizes[largest] > limits[roomiest]:
        what = (
            f"{label(units[largest])} needs {size(sizes[largest])}, the largest station "
            f"{rooms[roomiest].name} offers {size(limits[roomiest])}: "
            f"{size(sizes[largest] - limits[roomiest])} short"
        )
        return PlanProblem(what, fix=_fix(f"give a station {_at_least(sizes[largest])} or more", wish))
    pools = pools_of(len(units), cut)
    left = leftovers(pool_sizes(pools, units), limits)
    unplaced = [
        [units[number] for (number,) in pool[len(pool) - count :]]
        for pool, count in zip(pools, left)
        if count
    ]
    usable = sum(limit >= min(sizes) for limit in limits)
    if usable < len(pools):
        what = (
            f"cut {cut} needs {len(pools)} stations, because neighbouring groups never share one; "
            f"{usable} of the {len(rooms)} given can hold a group"
        )
    else:
        what = f"{_shortage(sum(sizes), rooms)}; no place for {', '.join(map(_tally, unplaced))}"
    wanted = " and ".join(_at_least(_separately(pool)) for pool in unplaced)
    plural = "a station" if len(unplaced) == 1 else "stations"
    return PlanProblem(what, fix=_fix(f"add {plural} of {wanted}", wish))


def _shortage(needed: int, rooms: Sequence[Room]) -> str:
    """All that is asked against all that is offered."""
    limits = [room.memory_bytes for room in rooms if room.memory_bytes is not None]
    offered, open_ended = sum(limits), len(rooms) - len(limits)
    text = f"the stages need {size(needed)}, the {len(rooms)} stations offer {size(offered)}"
    if offered < needed and not open_ended:
        return f"{text}: {size(needed - offered)} short"
    no_limit = f" ({open_ended} without limit)" if open_ended else ""
    tried = "tried as given, largest first, smallest first"
    return f"{text}{no_limit}: enough in sum, but whole groups do not fit ({tried})"


def _fix(first: str, wish: Wish) -> str:
    """`first`, and whatever else would help: less to hold, another cut or topology, tried before named."""
    ways = [first]
    if len(wish.rooms) >= len(CUTS[wish.cut]):
        ways.append("use a smaller dtype or a shorter context")
    cuts = [cut for cut in CUTS if cut != wish.cut and wish.homes(cut=cut) is not None]
    if cuts:
        ways.append(f"take cut {' or '.join(cuts)} (fits)")
    topologies = [t for t in TOPOLOGIES if t != wish.topology and wish.homes(topology=t) is not None]
    if topologies:
        ways.append(f"take topology {' or '.join(topologies)} (fits)")
    return ", or ".join(ways)


def _separately(units: Sequence[Unit]) -> int:
    return sum(n_bytes([unit]) for unit in units)


def _tally(units: Sequence[Unit]) -> str:
    """`gate_up 25-29 (5 groups, 61.3 MB)`."""
    groups = "1 group" if len(units) == 1 else f"{len(units)} groups"
    return f"{label(s for unit in units for s in unit)} ({groups}, {size(_separately(units))})"


def _at_least(n_bytes: int) -> str:
    """As `size`, rounded up: what is advised must be enough."""
    thousands = min(3, (len(str(n_bytes)) - 1) // 3)
    step = 10 ** (3 * thousands - 1) if thousands else 1
    return size(-(-n_bytes // step) * step)
