"""How far everybody in a mesh is from everybody else, measured by the stations before anything is loaded."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.address import Address
from trisplit.mesh.gauging import gauge
from trisplit.mesh.link import plain
from trisplit.mesh.peers import SILENCE_S, Peers
from trisplit.mesh.predict import COORDINATOR
from trisplit.mesh.profile import Links, Matrix
from trisplit.mesh.together import together
from trisplit.mesh.trust import Trust
from trisplit.table import Cell, Table, size
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.gauging import Gauge, Gauged
from trisplit.wire.greeting import VERSION, Hello, Role
from trisplit.wire.losses import Refused
from trisplit.wire.messages import Ask, Facts

ROUNDS: Final = 20
PAIR_DEADLINE_S: Final = 10.0  # to connect and for all rounds
LATE_S: Final = 5.0  # what a station may take beyond that to say so
OFFERED: Final = 0.9  # of the memory a host has to spare: the rest is for everything else on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """Round trips in milliseconds from each to each, the coordinator first, then the stations of `addresses`.

    `p50_ms` are medians over `rounds` pings, `best_ms` the least of them. `free_bytes` is what the host of
    each station has to spare, None where it does not say.
    """

    addresses: Mapping[str, str]
    p50_ms: Matrix
    best_ms: Matrix
    rounds: int
    free_bytes: tuple[int | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Who the rows and columns are."""
        return (COORDINATOR, *self.addresses)

    @property
    def links(self) -> Links:
        """One way is half of a median round trip."""
        return Links(tuple(tuple(round(ms / 2, 4) for ms in row) for row in self.p50_ms))

    @property
    def limits(self) -> list[int | None]:
        """What each station can offer for weights and KV; those of one host share what it has to spare."""
        hosts = [Address.read(address).host for address in self.addresses.values()]
        shared = Counter(hosts)
        return [
            None if free is None else int(OFFERED * free / shared[host])
            for host, free in zip(hosts, self.free_bytes)
        ]

    def as_json(self) -> dict[str, Any]:
        """The same facts; rows and columns of `p50_ms` and `best_ms` are the names."""
        return {
            "names": self.names,
            "addresses": [*self.addresses.values()],
            "free_bytes": self.free_bytes,
            "rounds": self.rounds,
            "p50_ms": self.p50_ms,
            "best_ms": self.best_ms,
        }

    def table(self) -> Table:
        """One row for each caller: its median round trips, where it is, and what it has to spare."""
        spare: list[str | None] = [None if free is None else size(free) for free in self.free_bytes]
        ends: list[tuple[Cell, Cell]] = [(None, None), *zip(self.addresses.values(), spare)]
        rows = (
            (name, *(None if a == b else ms for b, ms in enumerate(row)), *end)
            for a, (name, row, end) in enumerate(zip(self.names, self.p50_ms, ends))
        )
        columns = ("from", *("us" if name == COORDINATOR else name for name in self.names))
        title = f"round trips in ms, medians of {self.rounds}"
        return Table((*columns, "address", "to spare"), tuple(rows), title=title)


@dataclass(slots=True)
class Meter:
    """Has stations that hold nothing measure their links; `between` is for links as in `Membership`."""

    addresses: Mapping[str, str]
    trust: Trust
    rounds: int = ROUNDS
    between: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    deadline_s: float = PAIR_DEADLINE_S
    _mesh: str = field(default_factory=lambda: secrets.token_hex(8))
    _seen: dict[tuple[str, str], Gauged] = field(default_factory=dict)
    _free_bytes: dict[str, int | None] = field(default_factory=dict)

    @property
    def pairs(self) -> int:
        """How many links are measured: from everybody to every station."""
        return len(self.addresses) ** 2

    async def run(self) -> AsyncGenerator[int, None]:
        """Measures; yields how many links are done. Those measured at once have no end in common.

        PeerProblem that names both ends when there is no way from one to the other, or no answer in time.
        """
        peers = Peers(SILENCE_S, self.trust)
        try:
            for name in self.addresses:
                await self._meet(peers, name)
            for pairs in _apart((COORDINATOR, *self.addresses)):
                await together(self._measure(peers, *pair) for pair in pairs)
                yield len(self._seen)
        finally:
            await peers.leave("the links are measured")

    def distances(self) -> Distances:
        """What was found, once `run` is done; a way back to us is as long as the way there."""
        names = (COORDINATOR, *self.addresses)
        seen = {(b, a): gauged for (a, b), gauged in self._seen.items() if a == COORDINATOR} | self._seen
        p50_ms, best_ms = (
            tuple(tuple(getattr(seen[a, b], which) if a != b else 0.0 for b in names) for a in names)
            for which in ("p50_ms", "best_ms")
        )
        free = tuple(self._free_bytes[name] for name in self.addresses)
        return Distances(
            addresses=self.addresses, p50_ms=p50_ms, best_ms=best_ms, rounds=self.rounds, free_bytes=free
        )

    async def _meet(self, peers: Peers, name: str) -> None:
        address = self._address(COORDINATOR, name)
        try:
            await peers.meet(name, address, self._hello("coordinator", COORDINATOR), _unheard)
            facts = await peers.ask(peers[name], Ask(), Facts, self.deadline_s)
        except Problem as problem:
            raise self._no_link(COORDINATOR, name, problem.what, problem.fix) from None
        self._free_bytes[name] = facts.free_bytes

    async def _measure(self, peers: Peers, caller: str, station: str) -> None:
        order = Gauge(self._address(caller, station), self.rounds, int(1e3 * self.deadline_s))
        try:
            if caller == COORDINATOR:
                said: object = await gauge(order, self._hello("station", COORDINATOR), self.trust)
            else:
                peers[caller].link.send(order)
                said = await peers.next(peers[caller], self.deadline_s + LATE_S)
        except Problem as problem:
            raise self._no_link(caller, station, problem.what, problem.fix) from None
        if isinstance(said, Refused):
            raise self._no_link(caller, station, plain(said.what), plain(said.fix))
        if not isinstance(said, Gauged):
            what = f"station {caller} said {type(said).__name__} where Gauged was due"
            raise PeerProblem(what, fix=SAME_VERSION)
        self._seen[caller, station] = said

    def _hello(self, role: Role, name: str) -> Hello:
        return Hello(VERSION, mesh=self._mesh, role=role, name=name)

    def _address(self, caller: str, station: str) -> str:
        return self.between.get(caller, self.addresses)[station]

    def _no_link(self, caller: str, station: str, why: str, fix: str) -> PeerProblem:
        us = caller == COORDINATOR
        who = "the coordinator" if us else f"station {caller} at {self._address(COORDINATOR, caller)}"
        what = f"{who} has no link to station {station} at {self._address(caller, station)}: {why}"
        return PeerProblem(what, fix=fix)


def _apart(names: tuple[str, ...]) -> Iterator[list[tuple[str, str]]]:
    """Every pair of a caller and a station once, in lists in which nobody calls twice or is called twice.

    The first of `names` is us, whom nobody calls.
    """
    for step in range(1, len(names)):
        pairs = zip(names, names[step:] + names[:step])
        yield [(caller, station) for caller, station in pairs if station != names[0]]


def _unheard(_: Activation) -> None:
    """No station that holds nothing has rows to send."""
