"""What is under way arrives in order, never early, at the rate of the link, and not while that is cut."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.bench.delays import NEVER_NS, Delay, Lane, Way
from trisplit.errors import RequestProblem

MS = 1_000_000

delays = st.builds(
    Delay,
    one_way_ms=st.floats(0, 1e3),
    jitter_ms=st.floats(0, 1e3),
    mbit=st.none() | st.floats(0.1, 1e4),
)
sent = st.lists(st.tuples(st.integers(0, 100 * MS), st.binary(min_size=1, max_size=99)), min_size=1)


def way_of(delay: Delay, seed: int = 0) -> Way:
    return Way(Lane(delay, Random(seed)))


def arrivals(way: Way) -> list[tuple[int, bytes]]:
    out = []
    while way.due_ns != NEVER_NS:
        out.append((way.due_ns, way.arrive()))
    return out


@given(delays, sent, st.integers())
def test_chunks_keep_their_order_and_none_is_early(
    delay: Delay, sent: list[tuple[int, bytes]], seed: int
) -> None:
    way = way_of(delay, seed)
    sent = sorted(sent, key=lambda item: item[0])
    for at_ns, chunk in sent:
        way.send(chunk, at_ns)
    came = arrivals(way)
    assert [chunk for _, chunk in came] == [chunk for _, chunk in sent]
    assert [due for due, _ in came] == sorted(due for due, _ in came)
    for (at_ns, chunk), (due_ns, _) in zip(sent, came):
        assert due_ns - at_ns >= 1e6 * (delay.one_way_ms + delay.sending_ms(len(chunk)))
    assert way.n_bytes == 0


def test_a_plain_delay_holds_each_chunk_for_exactly_that() -> None:
    way = way_of(Delay(one_way_ms=20))
    for at_ns in (0, 5, 7 * MS):
        way.send(b"x", at_ns)
    assert [due for due, _ in arrivals(way)] == [20 * MS, 20 * MS + 5, 27 * MS]


def test_jitter_spreads_evenly_above_the_delay() -> None:
    delay = Delay(one_way_ms=20, jitter_ms=4)
    way = way_of(delay)
    for n in range(1000):
        way.send(b"x", 100 * n * MS)
    held = [due - 100 * n * MS for n, (due, _) in enumerate(arrivals(way))]
    assert 20 * MS <= min(held) <= 20.1 * MS
    assert 23.9 * MS <= max(held) <= 24 * MS + 1
    assert sum(held) / len(held) == pytest.approx(22 * MS, rel=0.01)
    assert delay.mean_ms == 22


def test_bytes_take_turns_at_the_rate_of_a_link() -> None:
    """8 Mbit/s are a byte in a microsecond; two connections over one lane share them."""
    lane = Lane(Delay(one_way_ms=20, mbit=8), Random(0))
    one, other = Way(lane), Way(lane)
    one.send(bytes(1000), 0)
    other.send(bytes(500), 0)
    one.send(bytes(1000), 5 * MS)
    assert [due for due, _ in arrivals(one)] == [21 * MS, 26 * MS]
    assert [due for due, _ in arrivals(other)] == [21.5 * MS]
    assert lane.delay.sending_ms(1000) == 1


def test_a_shorter_delay_does_not_let_later_bytes_overtake() -> None:
    way = way_of(Delay(one_way_ms=20))
    way.send(b"a", 0)
    way.lane.delay = Delay(one_way_ms=1)
    way.send(b"b", 1 * MS)
    way.send(b"c", 30 * MS)
    assert arrivals(way) == [(20 * MS, b"a"), (20 * MS, b"b"), (31 * MS, b"c")]


def test_nothing_arrives_over_a_cut_and_nothing_is_lost() -> None:
    way = way_of(Delay(one_way_ms=20))
    way.send(b"under way", 0)
    way.lane.is_cut = True
    way.again(5 * MS)
    way.send(b"said meanwhile", 6 * MS)
    assert way.due_ns == NEVER_NS
    assert way.n_bytes == len(b"under way" + b"said meanwhile")
    way.lane.is_cut = False
    way.again(100 * MS)
    way.send(b"after", 101 * MS)
    assert arrivals(way) == [(120 * MS, b"under way"), (120 * MS, b"said meanwhile"), (121 * MS, b"after")]


def test_what_nobody_will_hear_is_forgotten() -> None:
    way = way_of(Delay(one_way_ms=20))
    way.send(b"x", 0)
    way.drop()
    assert (way.due_ns, way.n_bytes) == (NEVER_NS, 0)


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"one_way_ms": -1}, "a link with one_way_ms -1"),
        ({"one_way_ms": float("nan")}, "a link with one_way_ms nan"),
        ({"one_way_ms": 1, "jitter_ms": float("inf")}, "a link with jitter_ms inf"),
        ({"one_way_ms": 1, "mbit": 0}, "a link of 0 Mbit/s"),
    ],
)
def test_a_link_that_cannot_be_is_refused(facts: dict[str, float], what: str) -> None:
    with pytest.raises(RequestProblem) as caught:
        Delay(**facts)
    assert caught.value.what == what
