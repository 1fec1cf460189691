"""Which station holds which stages: facts in, a frozen plan out, or a refusal with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from trisplit.errors import UnknownName
from trisplit.mesh.cuts import (
    CUTS,
    NO_ENDS,
    StageCost,
    Unit,
    kv_bytes,
    label,
    runs_beside,
    weight_bytes,
    whole_chain,
)
from trisplit.mesh.overlap import Ahead
from trisplit.mesh.refusal import Wish, refusal
from trisplit.mesh.room import Room, check_rooms
from trisplit.mesh.topology import TOPOLOGIES, legs_per_token
from trisplit.table import Cell, Table, size


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring stages a token passes in one visit; `number` is the place on a token's way.

    In a ring the first group begins with embed and the last ends with head.
    """

    number: int
    stages: tuple[StageCost, ...]

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self.stages)

    @property
    def kv_bytes(self) -> int:
        return kv_bytes(self.stages)

    @property
    def label(self) -> str:
        """`layers 3-9`, `gate_up 4`, `down 4, attention 5`, `embed, attention 0`."""
        return label(self.stages)


@dataclass(frozen=True, slots=True)
class Share:
    """A station and its groups, in the order a token visits them."""

    station: str
    groups: tuple[Group, ...]

    @property
    def stages(self) -> tuple[StageCost, ...]:
        """All stages of the station."""
        return tuple(stage for group in self.groups for stage in group.stages)

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self.stages)

    @property
    def kv_bytes(self) -> int:
        return kv_bytes(self.stages)

    @property
    def label(self) -> str:
        """`layers 0-7`, `attention 0-10, down 0-9`."""
        return label(self.stages)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every stage on exactly one station; `ends_bytes` is what the coordinator keeps of embed and head.

    `ahead` is set by `trisplit.mesh.ahead` alone: nothing starts ahead unless somebody asks for it.
    """

    cut: str
    topology: str
    shares: tuple[Share, ...]
    spares: tuple[str, ...]
    ends_bytes: int
    ahead: Ahead | None = None

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups in the order a token visits them."""
        groups = [group for share in self.shares for group in share.groups]
        return tuple(sorted(groups, key=lambda group: group.number))

    @property
    def homes(self) -> tuple[str, ...]:
        """The station of every group, in the order a token visits them."""
        homes = {group.number: share.station for share in self.shares for group in share.groups}
        return tuple(homes[number] for number in sorted(homes))

    @property
    def legs_per_token(self) -> int:
        """One-way network trips on the critical path of a token."""
        passed = [
            home
            for home, group in zip(self.homes, self.groups)
            if not runs_beside(group.number, group.stages)
        ]
        return legs_per_token(passed, self.topology)

    @property
    def _who_is_ahead(self) -> str:
        if self.ahead is None:
            return ""
        first = [stage for group in self.groups for stage in group.stages if stage.kind == "attention"]
        return f", {label(stage for stage in first if stage.layer in self.ahead.layers)} ahead"

    def table(self, *, with_bytes: bool = True) -> Table:
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
        held = "nothing" if self.topology == "ring" else "embed, head"
        rows.append(("coordinator", held, None, size(self.ends_bytes), None, size(self.ends_bytes)))
        columns = ("station", "stages", "visits", "weights", "kv", "total")
        shown = len(columns) if with_bytes else columns.index("weights")
        return Table(
            columns=columns[:shown],
            rows=tuple(row[:shown] for row in rows),
            title=f"cut {self.cut}, {self.topology}: {self.legs_per_token} legs per token"
            + self._who_is_ahead,
        )


def plan(
    stages: Sequence[StageCost],
    rooms: Sequence[Room],
    *,
    cut: str,
    topology: str = "chain",
    ends: tuple[StageCost, StageCost] = NO_ENDS,
) -> Plan:
    """Place every stage of layers 0 … L-1 (in any order) on the stations, balanced by bytes.

    In a ring embed lies with the first stage and head with the last; elsewhere the coordinator keeps
    both. The largest load is the smallest possible for stations taken in the order given, each with
    one kind of group and a run of neighbouring layers. If that order holds nothing, largest first and
    smallest first are tried. Pure: the same facts give the same plan.

    Raises UnknownName (cut, topology), RequestProblem (names or limits that make no sense) and
    PlanProblem (the stages do not fit; says what is short, by how much, and where).
    """
    wish = wished(stages, rooms, cut=cut, topology=topology, ends=ends)
    homes = wish.homes()
    if homes is None:
        raise refusal(wish)
    return drawn(wish, homes)


def wished(
    stages: Sequence[StageCost],
    rooms: Sequence[Room],
    *,
    cut: str,
    topology: str,
    ends: tuple[StageCost, StageCost] = NO_ENDS,
) -> Wish:
    """The facts of a plan, checked; Problems as of `plan`, but for what does not fit."""
    for kind, name, known in (("cut", cut, CUTS), ("topology", topology, TOPOLOGIES)):
        if name not in known:
            raise UnknownName(kind, name, known)
    chain = whole_chain(stages)
    check_rooms(rooms, sum(stage.n_bytes for stage in chain))
    return Wish(chain=chain, ends=ends, rooms=rooms, cut=cut, topology=topology)


def groups_of(units: Sequence[Unit], homes: Sequence[int]) -> list[tuple[int, tuple[StageCost, ...]]]:
    """Home and stages of every visit; neighbouring units on one station are one.

    Only whole layers ever are; units of other cuts stay apart.
    """
    visits = groupby(zip(homes, units), key=lambda pair: pair[0])
    return [(home, tuple(stage for _, unit in members for stage in unit)) for home, members in visits]


def drawn(wish: Wish, homes: Sequence[int]) -> Plan:
    """The plan that has each unit of the wish at the room of this index."""
    held: dict[int, list[Group]] = {}
    for number, (home, stages) in enumerate(groups_of(wish.units(), homes)):
        held.setdefault(home, []).append(Group(number, stages))
    return Plan(
        cut=wish.cut,
        topology=wish.topology,
        shares=tuple(Share(wish.rooms[home].name, tuple(held[home])) for home in sorted(held)),
        spares=tuple(room.name for i, room in enumerate(wish.rooms) if i not in held),
        ends_bytes=0 if wish.topology == "ring" else weight_bytes(wish.ends),
    )
