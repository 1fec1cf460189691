"""Route words: up to five numbers of next neighbours (1-7) in 16 bits, and the 3 bytes that answer with one.

Three bits a number, the first in the lowest, zeros after the last: whoever forwards takes the lowest three
bits and shifts. Of the 65,536 words 19,608 are routes; the tables hold what `encode` makes of each, so
nothing else can be decoded.

Tables, because nothing that computes was as fast (Python 3.11): a response by its bytes 99 ns, unpacked and
compared 154-187 ns; a route to its word by a table 125 ns, by a loop over its numbers 418 ns. Building them
takes 13 ms, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, TypeVar

from trisplit.errors import OwnProblem, PeerProblem

K = TypeVar("K")
V = TypeVar("V")
Route = tuple[int, ...]

MOST_HOPS: Final = 5
MOST_NEIGHBOURS: Final = 7
BITS: Final = 3  # of a number

_FIX: Final = f"a route is at most {MOST_HOPS} numbers from 1 to {MOST_NEIGHBOURS}, then zeros"


@cache
def routes() -> Mapping[int, Route]:
    """Every route by its word: the empty one, and each shorter one with one more number behind it.

    Made when first asked for: with its two inverses it takes 6.5 MB, and most processes carry no route.
    """
    ends: dict[int, Route] = {0: ()}
    found = dict(ends)
    for hop in range(MOST_HOPS):
        ends = {
            word | number << BITS * hop: (*route, number)
            for word, route in ends.items()
            for number in range(1, MOST_NEIGHBOURS + 1)
        }
        found |= ends
    return found


class _Late(dict[K, V]):
    """A table that holds the empty route alone until another is asked for; no slower than any once it is."""

    def __init__(self, empty: Mapping[K, V], make: Callable[[], Mapping[K, V]]) -> None:
        super().__init__(empty)
        self._make = make

    def __missing__(self, key: K) -> V:
        if len(self) > 1:
            raise KeyError(key)
        self.update(self._make())
        return self[key]


_WORDS: Final = _Late[Route, int]({(): 0}, lambda: {route: word for word, route in routes().items()})
_TOLD: Final = _Late[bytes, Route](
    {bytes(3): ()},
    lambda: {(len(route) << 16 | word).to_bytes(3): route for word, route in routes().items()},
)


def encode(route: Route) -> int:
    """The word of a route; `OwnProblem` for what is none."""
    try:
        return _WORDS[route]
    except (KeyError, TypeError):
        raise OwnProblem(f"the route {route!r}", fix=_FIX) from None


def decode(word: int) -> Route:
    """The route of a word; `PeerProblem` for a word that `encode` makes of none."""
    try:
        return routes()[word]
    except KeyError:
        raise PeerProblem(f"the route word {word:#06x}", fix=_FIX) from None


def encode_response(route: Route) -> bytes:
    """[count, hi, lo]: how many numbers a route has, and its word; `OwnProblem` for what is no route."""
    return (len(route) << 16 | encode(route)).to_bytes(3)


def decode_response(response: bytes) -> Route:
    """The route a response tells; `PeerProblem` for bytes that `encode_response` makes of none."""
    try:
        return _TOLD[response]
    except KeyError:
        raise PeerProblem(f"the route response {response[:8].hex(' ')}", fix=_FIX) from None


def step(word: int) -> tuple[int, int]:
    """The number of the next neighbour on a route, and the word of what is left; (0, 0) at its end."""
    return word & MOST_NEIGHBOURS, word >> BITS
