"""Wires: what lies between whom, who is farther, and the links that relays make of it."""

from __future__ import annotations

import pytest

from trisplit.bench.delays import Delay
from trisplit.bench.wires import names_of, wires_between
from trisplit.errors import RequestProblem, UnknownName

ADDRESSES = {"s1": "127.0.0.1:1", "s2": "127.0.0.1:2"}


def test_even_wires_are_as_long_everywhere() -> None:
    wires = wires_between(names_of(2), 20.0, jitter_ms=2.0, mbit=100.0)
    assert wires.names == ("coordinator", "s1", "s2")
    assert wires.stations == ("s1", "s2")
    assert wires.even_ms == 20.0
    assert wires.delay("s2", "coordinator") == Delay(one_way_ms=20.0, jitter_ms=2.0, mbit=100.0)
    assert not wires.is_bare


def test_bare_wires_need_no_relay() -> None:
    assert wires_between(names_of(3), 0.0).is_bare
    assert wires_between(names_of(3), 0.0).even_ms == 0.0
    assert not wires_between(names_of(3), 0.0, mbit=8.0).is_bare
    assert not wires_between(names_of(3), 0.0, jitter_ms=1.0).is_bare


def test_a_far_station_is_far_from_everybody() -> None:
    wires = wires_between(names_of(3), 10.0).with_far({"s3": 3.0, "s1": 2.0})
    assert wires.even_ms is None
    assert wires.delay("coordinator", "s2").one_way_ms == 10.0
    assert wires.delay("s2", "s3").one_way_ms == wires.delay("s1", "s3").one_way_ms == 30.0
    assert wires.delay("s1", "coordinator").one_way_ms == 20.0
    with pytest.raises(UnknownName, match="s4"):
        wires.with_far({"s4": 2.0})


def test_there_is_a_link_for_every_caller_and_every_other_station() -> None:
    matrix = ((0.0, 1.0, 2.0), (1.0, 0.0, 3.0), (2.0, 4.0, 0.0))
    links = wires_between(names_of(2), matrix).links(ADDRESSES)
    assert {(link.caller, link.station, link.address): link.delay.one_way_ms for link in links} == {
        ("coordinator", "s1", "127.0.0.1:1"): 1.0,
        ("coordinator", "s2", "127.0.0.1:2"): 2.0,
        ("s1", "s2", "127.0.0.1:2"): 3.0,
        ("s2", "s1", "127.0.0.1:1"): 4.0,
    }


@pytest.mark.parametrize(
    "matrix",
    [((0.0, 1.0), (1.0, 0.0)), ((0.0, 1.0, 1.0),) * 2, ((0.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0))],
)
def test_a_matrix_of_another_size_is_refused(matrix: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(RequestProblem, match="rows for 2 stations"):
        wires_between(names_of(2), matrix)


def test_there_and_back_are_alike_for_the_coordinator() -> None:
    wires = wires_between(names_of(2), ((0.0, 1.0, 2.0), (5.0, 0.0, 3.0), (2.0, 4.0, 0.0)))
    with pytest.raises(RequestProblem, match="1 ms from s1, and 5 back"):
        wires.links(ADDRESSES)


def test_what_no_link_can_do_is_refused() -> None:
    with pytest.raises(RequestProblem, match="one_way_ms -1"):
        wires_between(names_of(1), -1.0)
