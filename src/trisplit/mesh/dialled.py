"""The links a station has dialled: to those that come next, and to those it tells what is void."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from trisplit.errors import PeerProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.link import Link
from trisplit.mesh.trust import Trust
from trisplit.wire.choosing import Fence
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import Hello

CONNECT_DEADLINE_S: Final = 10.0


class Dialled:
    """One link for each address, however many ways lead there."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._links: dict[str, Link] = {}
        self._told: list[Link] = []
        self._closing: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Link]:
        return iter([*self._links.values()])

    async def to(self, address: str, hello: Hello) -> Link:
        """The link there, dialled if there is none. PeerProblem when nobody answers."""
        if address not in self._links or not self._links[address].is_open:
            link = await connect(address, hello=hello, deadline_s=CONNECT_DEADLINE_S, trust=self._trust)
            self._links[address] = link
        return self._links[address]

    def has(self, address: str, link: Link) -> bool:
        """Whether this is the link there still."""
        return self._links.get(address) is link

    def keep_only(self, addresses: Collection[str]) -> None:
        """Closes those that lead elsewhere."""
        for address in self._links.keys() - set(addresses):
            self.drop(address, "it is no successor any more")

    def drop(self, address: str, reason: str) -> None:
        """Closes the link there."""
        self.part(self._links.pop(address), reason)

    def part(self, link: Link, reason: str) -> None:
        """Closes a link without waiting for the other side, which may be dead."""
        link.on_activation = unheard
        closing = asyncio.create_task(link.close(reason))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def leave(self) -> None:
        """Closes all of them, and waits for that."""
        self._told = []
        self.keep_only(())
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def tell(self, addresses: Sequence[str], hello: Hello) -> None:
        """From now on these are told what is void, as far as they can be reached: others run nothing."""
        self._told = []
        for address in addresses:
            with contextlib.suppress(PeerProblem):
                self._told.append(await self.to(address, hello))

    def say(self, said: Fence) -> None:
        """To everybody who is told."""
        for link in self._told:
            with contextlib.suppress(PeerProblem):  # who is gone runs nothing
                link.send(said)


def unheard(_: Activation) -> None:
    """Rows of a station that was given up."""
