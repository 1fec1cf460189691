"""The batched codec of route words says what the scalar one says, of everything there is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.wire.test_route import ALL
from trisplit.errors import OwnProblem, PeerProblem
from trisplit.mesh import routes
from trisplit.mesh.routes import Bytes
from trisplit.wire import route
from trisplit.wire.route import routes as all_routes

PADDED = np.array([numbers + (0,) * (5 - len(numbers)) for numbers in ALL], np.uint8)


def test_all_routes_as_one_by_one() -> None:
    words, responses = routes.encode(PADDED), routes.encode_responses(PADDED)
    assert words.tolist() == [route.encode(numbers) for numbers in ALL]
    assert [bytes(row) for row in responses] == [route.encode_response(numbers) for numbers in ALL]
    assert (routes.decode(words) == PADDED).all()
    assert (routes.decode_responses(responses) == PADDED).all()


def test_none_at_all() -> None:
    none = np.zeros((0, 5), np.uint8)
    assert routes.decode(routes.encode(none)).shape == (0, 5)
    assert routes.decode_responses(routes.encode_responses(none)).shape == (0, 5)


def refused(decode: Callable[[], object]) -> bool:
    try:
        decode()
    except PeerProblem:
        return True
    return False


def test_one_word_of_no_route_among_good_ones() -> None:
    words = np.arange(2**16, dtype=np.uint16)
    bad = [w for w in range(2**16) if refused(lambda w=w: routes.decode(words[w : w + 1]))]
    assert len(bad) == 2**16 - 19_608
    assert not set(bad) & set(all_routes())
    for word in (0x8000, 0o10, 0o77077):
        with pytest.raises(PeerProblem, match=f"the route word {word:#06x}"):
            routes.decode(np.array([0o1, word, 0o7], np.uint16))


def test_of_all_responses_only_those_are_decoded_that_tell_a_route() -> None:
    words = np.arange(2**16)
    for count in (*range(7), 0xFF):
        told = np.stack([np.full_like(words, count), words >> 8, words & 0xFF], axis=1).astype(np.uint8)
        known = all_routes()
        good = np.array([len(known[word]) == count if word in known else False for word in range(2**16)])
        assert good.sum() == (7**count if count < 6 else 0)
        assert (routes.decode_responses(told[good]) == routes.decode(words[good].astype(np.uint16))).all()
        assert all(refused(lambda row=row: routes.decode_responses(row[None])) for row in told[~good][::7])


@pytest.mark.parametrize("encode", [routes.encode, routes.encode_responses])
@pytest.mark.parametrize("row", [(0, 1, 0, 0, 0), (8, 0, 0, 0, 0), (1, 2, 0, 4, 5), (1, 1, 1, 1, 255)])
def test_what_is_no_route_is_not_sent(encode: Callable[[Bytes], object], row: tuple[int, ...]) -> None:
    with pytest.raises(OwnProblem, match="the route"):
        encode(np.array([(1, 0, 0, 0, 0), row, (7, 7, 7, 7, 7)], np.uint8))
