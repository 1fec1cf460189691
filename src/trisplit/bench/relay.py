"""Slow links between processes of one machine: every caller dials a relay's port instead of a station's.

A link is an ordered pair, who dials whom: it has a port of its own, so that the bench knows whose bytes pass.
The coordinator tells stations by Join whom to dial, so it must be given the addresses *as each caller knows
them*, `addresses_for[caller][station]`: its own under `addresses_for["coordinator"]`, and for the Join of
station s the addresses in `addresses_for[s]`.
"""

from __future__ import annotations

import select
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Final

from trisplit.bench.delays import Delay
from trisplit.bench.measure import Spread
from trisplit.bench.posts import Post
from trisplit.bench.rounds import Worker, running
from trisplit.errors import RequestProblem, UnknownName
from trisplit.mesh.address import host_and_port

COORDINATOR: Final = "coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLink:
    """What `caller` dials to reach `station`, which listens at `address` (HOST:PORT, HOST an IP address)."""

    caller: str
    station: str
    address: str
    delay: Delay


def links_between(
    addresses: Mapping[str, str], delay: Delay, *, farther: Mapping[str, float] | None = None
) -> list[RelayLink]:
    """A link from the coordinator and from every station to every other station of `addresses`.

    `farther`: how many times as far as others a station (or the coordinator) is from everybody; between two
    such the larger counts. For any other map of distances make the links yourself.
    """
    factors = farther or {}
    for name in factors.keys() - {COORDINATOR, *addresses}:
        raise UnknownName("station", name, [COORDINATOR, *addresses])
    return [
        RelayLink(
            caller=caller,
            station=station,
            address=address,
            delay=_times(delay, max(factors.get(caller, 1.0), factors.get(station, 1.0))),
        )
        for caller in (COORDINATOR, *addresses)
        for station, address in addresses.items()
        if caller != station
    ]


def _times(delay: Delay, factor: float) -> Delay:
    return Delay(one_way_ms=factor * delay.one_way_ms, jitter_ms=delay.jitter_ms, mbit=delay.mbit)


class Relays:
    """Links that run, and what can be done to them meanwhile.

    `is_real_time`: whether the system lets the relays run before others; else a busy machine makes them late.

    Orders name links by who is at one of their ends: `cut("s3")` cuts every link from and to s3,
    `cut("s2", "s3")` those between the two. `UnknownName` for a name that no link has.
    """

    def __init__(self, links: Sequence[RelayLink], ports: Sequence[int], worker: Worker) -> None:
        self.links = links
        self.addresses_for: dict[str, dict[str, str]] = {}
        for link, port in zip(links, ports):
            self.addresses_for.setdefault(link.caller, {})[link.station] = f"127.0.0.1:{port}"
        self.is_real_time: bool = worker.ready["real_time"]
        self._worker = worker

    async def change(self, delay: Delay, *names: str) -> None:
        """Gives links another delay for what is sent from now on; with no name, all of them."""
        await self._order("delay", names, delay=asdict(delay))

    async def cut(self, *names: str) -> None:
        """Nothing arrives any more, without a word; not even that a connection has ended.

        A new connection is still taken, since that is the kernel's doing, and stays as silent.
        """
        await self._order("cut", names)

    async def heal(self, *names: str) -> None:
        """What was under way and what was sent since starts now and arrives after all, as TCP sends again."""
        await self._order("heal", names)

    async def lateness(self) -> Spread | None:
        """How long after it was due each chunk was passed on, since this was last asked; None if none was.

        At most the last 65,536 of them. Never below 0; jitter and rate are in what was due.
        """
        answer = await self._worker.ask({"do": "times"})
        return Spread.of([ns / 1e6 for ns in answer["late_ns"]]) if answer["late_ns"] else None

    async def _order(self, do: str, names: Sequence[str], **facts: object) -> None:
        numbers = [n for n, link in enumerate(self.links) if {link.caller, link.station}.issuperset(names)]
        known = {name for link in self.links for name in (link.caller, link.station)}
        for name in set(names) - known:
            raise UnknownName("end of a link", name, known)
        await self._worker.ask({"do": do, "links": numbers, **facts})


@asynccontextmanager
async def relays(links: Sequence[RelayLink]) -> AsyncIterator[Relays]:
    """Opens a port for every link, in one process; that ends with the block, and with this process.

    `RequestProblem` for two links of one pair, an address that is none, and where there is no epoll.
    """
    targets = [(*host_and_port(link.address), asdict(link.delay)) for link in links]
    for caller, station in _twice([(link.caller, link.station) for link in links]):
        raise RequestProblem(f"two links from {caller} to {station}", fix="give each pair one link")
    if not hasattr(select, "epoll"):
        raise RequestProblem("emulated links need epoll", fix="run this bench on Linux")
    post = Post(name="relays", command=(sys.executable, "-m", "trisplit.bench.forwarder"), threads=1)
    async with running(post) as worker:
        opened = await worker.ask({"do": "open", "targets": targets})
        yield Relays(links, opened["ports"], worker)


def _twice(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return (pair for n, pair in enumerate(pairs) if pair in pairs[:n])
