"""Every route there is comes back from its word and response, and everything else is refused."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire import route
from trisplit.wire.route import Route

ALL: list[Route] = [numbers for count in range(6) for numbers in itertools.product(range(1, 8), repeat=count)]


def test_the_bits_of_a_word() -> None:
    assert route.encode((3, 1, 4, 1, 5)) == 0o51413
    assert route.encode_response((3, 1, 4, 1, 5)) == bytes.fromhex("05 530b")
    assert route.encode_response((7,)) == bytes.fromhex("01 0007")
    assert route.encode_response(()) == bytes(3)


def test_all_routes_come_back() -> None:
    assert len(set(ALL)) == 19_608
    assert [route.decode(route.encode(numbers)) for numbers in ALL] == ALL
    assert [route.decode_response(route.encode_response(numbers)) for numbers in ALL] == ALL


def test_of_all_words_and_counts_only_what_encode_makes_is_decoded() -> None:
    words = {route.encode(numbers) for numbers in ALL}
    responses = {route.encode_response(numbers) for numbers in ALL}
    assert {word for word in range(-(2**16), 2**17) if is_decoded(word)} == words
    assert {
        response
        for count in (*range(7), 0xFF)
        for word in range(2**16)
        if is_told(response := bytes((count, word >> 8, word & 0xFF)))
    } == responses


def is_decoded(word: int) -> bool:
    try:
        route.decode(word)
    except PeerProblem:
        return False
    return True


def is_told(response: bytes) -> bool:
    try:
        route.decode_response(response)
    except PeerProblem:
        return False
    return True


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ("", "nothing"),
        ("01 00", "a byte too few"),
        ("01 0007 00", "a byte too many"),
        ("00 0007", "a count below its numbers"),
        ("02 0007", "a count above its numbers"),
        ("06 530b", "a count above five"),
        ("02 0038", "a zero before a number"),
        ("05 d30b", "a bit that no number has"),
    ],
)
def test_a_response_of_no_route(response: str, why: str) -> None:
    with pytest.raises(PeerProblem, match="the route response") as caught:
        route.decode_response(bytes.fromhex(response))
    assert "at most 5 numbers from 1 to 7" in caught.value.fix, why


@pytest.mark.parametrize("numbers", [(0,), (8,), (1, 0, 2), (1, -1), (1,) * 6])
def test_what_is_no_route_is_not_sent(numbers: Route) -> None:
    for encode in (route.encode, route.encode_response):
        with pytest.raises(OwnProblem, match="the route"):
            encode(numbers)


def test_step_by_step() -> None:
    for numbers in ALL:
        word, taken = route.encode(numbers), []
        for _ in numbers:
            number, word = route.step(word)
            taken.append(number)
        assert tuple(taken) == numbers
        assert route.step(word) == (0, 0)


def test_who_carries_no_routes_has_no_tables_of_them() -> None:
    code = (
        "from trisplit.wire import route\n"
        "assert route.decode_response(route.encode_response(())) == ()\n"
        "assert route.routes.cache_info().currsize == 0\n"
        "assert route.decode_response(route.encode_response((3, 1))) == (3, 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
