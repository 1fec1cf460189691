"""Frames go along the routes they carry, take up new ones where those end, and go nowhere else."""

from __future__ import annotations

import pytest

from trisplit.errors import PeerProblem
from trisplit.mesh.onward import Onward, Send
from trisplit.wire import route
from trisplit.wire.frame import Activation
from trisplit.wire.messages import Way
from trisplit.wire.route import Route


class Neighbours:
    """Who is told what, by name."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Route]] = []

    def __getitem__(self, name: str) -> Send:
        return lambda said: self.told.append((name, said.group, route.decode(said.route)))


def way(target: int, address: str, *on: int, residual: bool = False) -> Way:
    return Way(2, target, residual, address, route.encode_response(on))


def frame(group: int, *along: int) -> Activation:
    return Activation(1, 0, 0, group, 1, bytes(4), route=route.encode(along))


def test_along_a_route_without_asking() -> None:
    neighbours, onward = Neighbours(), Onward()
    onward.add(way(3, "a:1"), neighbours["a"])
    onward.add(way(4, "b:1"), neighbours["b"])
    onward.add(way(5, "a:1"), neighbours["a"])
    onward.add(way(9, ""), neighbours["home"])
    for said in (frame(3, 1, 7), frame(4, 2), frame(3, 2, 1, 1, 1, 1), frame(99, 3, 5)):
        onward.send(said)
    assert neighbours.told == [
        ("a", 3, (7,)),
        ("b", 4, ()),
        ("b", 3, (1, 1, 1, 1)),
        ("home", 99, (5,)),
    ]


def test_where_a_route_ends_the_way_has_the_next() -> None:
    neighbours, onward = Neighbours(), Onward()
    onward.add(way(3, "a:1", 2, 2, 1), neighbours["a"])
    onward.add(way(5, "b:1"), neighbours["b"])
    said = frame(5)
    onward.send(frame(3))
    onward.send(said)
    assert neighbours.told == [("a", 3, (2, 2, 1)), ("b", 5, ())]


@pytest.mark.parametrize(
    ("said", "why"),
    [(frame(7), "no way to group 7"), (frame(3, 2), "by neighbour 2 of 1"), (frame(3, 7), "7 of 1")],
)
def test_nobody_there(said: Activation, why: str) -> None:
    onward = Onward()
    onward.add(way(3, "a:1"), Neighbours()["a"])
    with pytest.raises(PeerProblem, match=why):
        onward.send(said)


def test_what_is_no_route_is_refused_when_told() -> None:
    with pytest.raises(PeerProblem, match="the route response 02 00 07"):
        Onward().add(Way(2, 3, False, "a:1", bytes.fromhex("02 0007")), Neighbours()["a"])
