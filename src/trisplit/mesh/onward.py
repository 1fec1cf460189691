"""Where a station sends what its groups leave: along the route a frame carries, or by ways it was told."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trisplit.errors import PeerProblem
from trisplit.wire import route
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.messages import Way

Send = Callable[[Activation], None]


class Onward:
    """The ways of one station, and its neighbours as routes number them: addresses as first told, from 1."""

    def __init__(self) -> None:
        self._ways: dict[int, tuple[Send, int]] = {}
        self._addresses: set[str] = set()
        self._neighbours: list[Send] = []

    def add(self, way: Way, send: Send) -> None:
        """A way, and who brings frames there. PeerProblem when its route is none."""
        self._ways[way.target] = send, route.encode(route.decode_response(way.route))
        if way.address not in self._addresses:
            self._addresses.add(way.address)
            self._neighbours.append(send)

    def send(self, said: Activation) -> None:
        """To the neighbour its route names first, with the rest of the route, whoever its group is.

        Without a route, to its group by the way we know, with the route that goes on from there.
        PeerProblem when there is no such neighbour or way.
        """
        number, left = route.step(said.route)
        if number > len(self._neighbours):
            raise PeerProblem(f"a route by neighbour {number} of {len(self._neighbours)}", fix=SAME_VERSION)
        if number:
            send = self._neighbours[number - 1]
        elif said.group in self._ways:
            send, left = self._ways[said.group]
        else:
            raise PeerProblem(f"no way to group {said.group}", fix=SAME_VERSION)
        send(msgspec.structs.replace(said, route=left) if left != said.route else said)
