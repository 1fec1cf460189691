"""Which station holds which stages: facts in, a frozen plan out, or a refusal with numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Literal

from trisplit.errors import PlanProblem, RequestProblem, UnknownName
from trisplit.mesh.partition import leftovers, pack
from trisplit.table import Cell, Table, size

Kind = Literal["attention", "gate_up", "down"]
KINDS: tuple[Kind, ...] = ("attention", "gate_up", "down")

CUTS: dict[str, tuple[Kind, ...]] = {
    "layers": ("attention",),
    "thirds": ("attention", "gate_up", "down"),
    "recut": ("gate_up", "down"),
}
"""Cut → the kinds of stage before which the chain of all stages is cut.

With n such kinds, every n-th group is of one kind, a station holds groups of one kind only, and n
stations are the fewest on which neighbouring groups stay apart.
"""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage asks of the station that holds it; `kv_bytes` for the whole context length."""

    layer: int
    kind: Kind
    weight_bytes: int
    kv_bytes: int

    @property
    def n_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class Room:
    """What a station offers for weights and KV buffers; None where no limit was stated."""

    name: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring stages a token passes in one visit; `number` is the place on a token's way."""

    number: int
    stages: tuple[StageCost, ...]

    @property
    def weight_bytes(self) -> int:
        return sum(stage.weight_bytes for stage in self.stages)

    @property
    def kv_bytes(self) -> int:
        return sum(stage.kv_bytes for stage in self.stages)

    @property
    def label(self) -> str:
        """`layers 3-9`, `gate_up 4`, `down 4, attention 5`."""
        return _label(self.stages)


@dataclass(frozen=True, slots=True)
class Share:
    """A station and its groups, in the order a token visits them."""

    station: str
    groups: tuple[Group, ...]

    @property
    def weight_bytes(self) -> int:
        return sum(group.weight_bytes for group in self.groups)

    @property
    def kv_bytes(self) -> int:
        return sum(group.kv_bytes for group in self.groups)

    @property
    def label(self) -> str:
        """All stages of the station: `layers 0-7`, `attention 0-10, down 0-9`."""
        return _label(stage for group in self.groups for stage in group.stages)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every stage on exactly one station; `ends_bytes` (embed and head) stay with the coordinator."""

    cut: str
    topology: str
    shares: tuple[Share, ...]
    spares: tuple[str, ...]
    legs_per_token: int
    ends_bytes: int

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups in the order a token visits them."""
        groups = [group for share in self.shares for group in share.groups]
        return tuple(sorted(groups, key=lambda group: group.number))

    def station_of(self, group_number: int) -> str:
        """The name of the station that holds a group; KeyError for a number the plan does not have."""
        for share in self.shares:
            if any(group.number == group_number for group in share.groups):
                return share.station
        raise KeyError(group_number)

    def table(self) -> Table:
        """One row for each station, then spares, then what stays with the coordinator."""
        rows: list[tuple[Cell, ...]] = [
            (
                share.station,
                share.label,
                len(share.groups),
                size(share.weight_bytes),
                size(share.kv_bytes),
                size(share.weight_bytes + share.kv_bytes),
            )
            for share in self.shares
        ]
        rows += [(name, "spare", 0, None, None, None) for name in self.spares]
        rows.append(("coordinator", "embed, head", None, size(self.ends_bytes), None, size(self.ends_bytes)))
        return Table(
            columns=("station", "stages", "visits", "weights", "kv", "total"),
            rows=tuple(rows),
            title=f"cut {self.cut}, {self.topology}: {self.legs_per_token} legs per token",
        )


def plan(stages: Sequence[StageCost], rooms: Sequence[Room], *, cut: str, ends_bytes: int = 0) -> Plan:
    """Place every stage of layers 0 … L-1 (in any order) on the stations, balanced by bytes.

    The largest load is the smallest possible for stations taken in the order given, each with one
    kind of group and a run of neighbouring layers. If that order holds nothing, largest first and
    smallest first are tried. Pure: the same facts give the same plan.

    Raises UnknownName (cut), RequestProblem (names or limits that make no sense) and PlanProblem
    (the stages do not fit; says what is short, by how much, and where).
    """
    if cut not in CUTS:
        raise UnknownName("cut", cut, CUTS)
    chain = _chain(stages)
    _check(rooms, chain)
    units = _units(chain, cut)
    homes = _place(units, rooms, cut)
    if homes is None:
        raise _refusal(chain, rooms, cut)
    held: dict[int, list[Group]] = {}
    # Neighbours on one station are one visit: only whole layers ever are, other kinds stay apart.
    for number, (home, members) in enumerate(groupby(zip(homes, units), key=lambda pair: pair[0])):
        held.setdefault(home, []).append(Group(number, tuple(s for _, unit in members for s in unit)))
    return Plan(
        cut=cut,
        topology="chain",
        shares=tuple(Share(rooms[home].name, tuple(held[home])) for home in sorted(held)),
        spares=tuple(room.name for i, room in enumerate(rooms) if i not in held),
        legs_per_token=sum(map(len, held.values())) + 1,
        ends_bytes=ends_bytes,
    )


def parse_size(text: str) -> int:
    """Bytes from `200MB`, `1.5 GiB`, `900`; RequestProblem for anything else.

    >>> parse_size("1.5GB"), parse_size("2 KiB"), parse_size("900")
    (1500000000, 2048, 900)
    """
    factors = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([a-z]*)", text.strip().lower())
    if match is None or match[2] not in factors or ("." in match[1] and factors[match[2]] == 1):
        raise RequestProblem(
            f"{text!r} is not a size", fix="write a number with B, kB, MB, GB, KiB, MiB or GiB, such as 200MB"
        )
    return int(Decimal(match[1]) * factors[match[2]])


Unit = tuple[StageCost, ...]


def _chain(stages: Sequence[StageCost]) -> list[StageCost]:
    """All stages in the order a token passes them, checked to be whole layers 0 … L-1."""
    if not stages:
        raise PlanProblem("there are no layers to place", fix="plan a model with at least one layer")
    counts = Counter((stage.layer, stage.kind) for stage in stages)
    last = max(layer for layer, _ in counts)
    whole = [(layer, kind) for layer in range(last + 1) for kind in KINDS]
    for layer, kind in [*whole, *counts]:
        if layer < 0 or counts[layer, kind] != 1:
            raise PlanProblem(
                f"{kind} {layer} is there {counts[layer, kind]} times",
                fix="give every stage of layers 0 … L-1 exactly once",
            )
    if any(min(stage.weight_bytes, stage.kv_bytes) < 0 for stage in stages):
        raise PlanProblem("a stage has a negative number of bytes", fix="give sizes of 0 bytes or more")
    return sorted(stages, key=lambda stage: (stage.layer, KINDS.index(stage.kind)))


def _check(rooms: Sequence[Room], chain: Sequence[StageCost]) -> None:
    if not rooms:
        raise PlanProblem(
            f"no station is given for {size(sum(s.n_bytes for s in chain))} of stages",
            fix="give at least one station",
        )
    for name, count in Counter(room.name for room in rooms).items():
        if count > 1:
            raise RequestProblem(f"{count} stations are named {name!r}", fix="give each its own name")
    for room in rooms:
        if room.memory_bytes is not None and room.memory_bytes < 0:
            raise RequestProblem(
                f"station {room.name} offers {room.memory_bytes} bytes",
                fix="state a limit of 0 or more bytes",
            )


def _units(chain: Sequence[StageCost], cut: str) -> list[Unit]:
    """The chain cut into the smallest pieces that may lie apart."""
    starts = [i for i, stage in enumerate(chain) if i == 0 or stage.kind in CUTS[cut]]
    return [tuple(chain[start:stop]) for start, stop in pairwise([*starts, len(chain)])]


def _sizes(units: Iterable[Unit]) -> list[int]:
    return [sum(stage.n_bytes for stage in unit) for unit in units]


def _pools(units: Sequence[Unit], cut: str) -> list[Sequence[Unit]]:
    """Units by kind: as many kinds as the cut has places, taking turns along the chain."""
    return [units[first :: len(CUTS[cut])] for first in range(len(CUTS[cut]))]


def _limits(units: Sequence[Unit], rooms: Sequence[Room]) -> list[int]:
    """Room for stages, never more than all of them together need."""
    total = sum(_sizes(units))
    return [total if room.memory_bytes is None else min(total, room.memory_bytes) for room in rooms]


def _place(units: Sequence[Unit], rooms: Sequence[Room], cut: str) -> list[int] | None:
    """For each unit the index of its station, or None if no order tried holds them all."""
    pools = [_sizes(pool) for pool in _pools(units, cut)]
    limits = _limits(units, rooms)
    given = range(len(limits))
    largest_first = sorted(given, key=lambda i: -limits[i])
    for order in (given, largest_first, largest_first[::-1]):
        runs = pack(pools, [limits[i] for i in order])
        if runs is not None:
            homes = {
                at * len(pools) + run.pool: i
                for i, run in zip(order, runs)
                if run is not None
                for at in range(run.start, run.stop)
            }
            return [homes[number] for number in range(len(units))]
    return None


def _refusal(chain: Sequence[StageCost], rooms: Sequence[Room], cut: str) -> PlanProblem:
    """Why the stages do not fit, and what would help."""
    units = _units(chain, cut)
    sizes, limits = _sizes(units), _limits(units, rooms)
    largest, roomiest = sizes.index(max(sizes)), limits.index(max(limits))
    if sizes[largest] > limits[roomiest]:
        what = (
            f"{_label(units[largest])} needs {size(sizes[largest])}, the largest station "
            f"{rooms[roomiest].name} offers {size(limits[roomiest])}: "
            f"{size(sizes[largest] - limits[roomiest])} short"
        )
        return PlanProblem(
            what, fix=_fix(f"give a station {_at_least(sizes[largest])} or more", chain, rooms, cut)
        )
    pools = _pools(units, cut)
    left = leftovers([_sizes(pool) for pool in pools], limits)
    unplaced = [pool[len(pool) - count :] for pool, count in zip(pools, left) if count]
    usable = sum(limit >= min(sizes) for limit in limits)
    if usable < len(pools):
        what = (
            f"cut {cut} needs {len(pools)} stations, because neighbouring groups never share one; "
            f"{usable} of the {len(rooms)} given can hold a group"
        )
    else:
        what = f"{_shortage(sum(sizes), rooms)}; no place for {', '.join(map(_tally, unplaced))}"
    wanted = " and ".join(_at_least(sum(_sizes(pool))) for pool in unplaced)
    plural = "a station" if len(unplaced) == 1 else "stations"
    return PlanProblem(what, fix=_fix(f"add {plural} of {wanted}", chain, rooms, cut))


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


def _fix(first: str, chain: Sequence[StageCost], rooms: Sequence[Room], cut: str) -> str:
    """`first`, and whatever else would help: less to hold, or another cut, tried before it is named."""
    ways = [first]
    if len(rooms) >= len(CUTS[cut]):
        ways.append("use a smaller dtype or a shorter context")
    others = [name for name in CUTS if name != cut]
    fitting = [name for name in others if _place(_units(chain, name), rooms, name) is not None]
    if fitting:
        ways.append(f"take cut {' or '.join(fitting)} (fits)")
    return ", or ".join(ways)


def _tally(units: Sequence[Unit]) -> str:
    """`gate_up 25-29 (5 groups, 61.3 MB)`."""
    groups = "1 group" if len(units) == 1 else f"{len(units)} groups"
    return f"{_label(s for unit in units for s in unit)} ({groups}, {size(sum(_sizes(units)))})"


def _at_least(n_bytes: int) -> str:
    """As `size`, rounded up: what is advised must be enough."""
    thousands = min(3, (len(str(n_bytes)) - 1) // 3)
    step = 10 ** (3 * thousands - 1) if thousands else 1
    return size(-(-n_bytes // step) * step)


def _label(stages: Iterable[StageCost]) -> str:
    """Stages by kind, layers as ranges; whole layers by their numbers alone."""
    layers: dict[Kind, list[int]] = {}
    for stage in stages:
        layers.setdefault(stage.kind, []).append(stage.layer)
    spans = {kind: _span(numbers) for kind, numbers in layers.items()}
    if len(spans) == len(KINDS) and len(set(spans.values())) == 1:
        numbers = layers["attention"]
        return f"{'layer' if len(numbers) == 1 else 'layers'} {spans['attention']}"
    return ", ".join(f"{kind} {span}" for kind, span in spans.items())


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
