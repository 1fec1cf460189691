"""Speculation against every way a round can go, overlap against sums done by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mesh.stations import MS, names, rooms, stages
from trisplit.mesh.formulas import accepted, bottleneck_ms, hidden_ms, in_rounds_ms, in_stream_ms
from trisplit.mesh.plan import plan
from trisplit.mesh.predict import uniform
from trisplit.mesh.profile import Speculation


@given(st.floats(0, 1), st.integers(1, 8))
def test_a_round_yields_the_mean_over_all_ways_it_can_go(acceptance: float, drafted: int) -> None:
    mean = 0.0
    for hits in product([True, False], repeat=drafted):
        chance = 1.0
        for hit in hits:
            chance *= acceptance if hit else 1 - acceptance
        mean += chance * (1 + (hits.index(False) if False in hits else drafted))
    assert accepted(acceptance, drafted) == pytest.approx(mean)


def test_rounds_and_streams() -> None:
    s = Speculation(drafted=4, acceptance=0.8, draft_ms=5)
    assert in_rounds_ms(100, s) == pytest.approx((100 + 20) / 3.3616)
    assert in_stream_ms(100, 10, s) == pytest.approx(10 + 20)
    assert in_stream_ms(100, 3, s) == pytest.approx(5 + 20)


def test_the_busiest_place() -> None:
    """Attention 2, gate_up 3, down 4, ends 11 ms; four layers."""
    measured = uniform(names(3), one_way_ms=1, stage_ms=MS)
    chain = plan(stages(4), rooms(3), cut="thirds", topology="chain")
    ring = plan(stages(4), rooms(3), cut="thirds", topology="ring")
    assert bottleneck_ms(chain, measured) == 4 * 4
    assert bottleneck_ms(ring, measured) == 4 * 4 + 10
    slow_ends = uniform(names(3), one_way_ms=1, stage_ms=MS | {"head": 100.0})
    assert bottleneck_ms(chain, slow_ends) == 101


@pytest.mark.parametrize(
    ("cut", "topology", "one_way_ms", "hidden"),
    [
        ("thirds", "chain", 0.0, 2.0),  # attention 2 ms, beside gate_up 3 and down 4
        ("thirds", "ring", 5.0, 2.0),
        ("thirds", "star", 5.0, 2.0),
        ("recut", "ring", 0.0, 2.0),  # down and attention share a station: only gate_up hides it
        ("layers", "ring", 5.0, 0.0),
    ],
)
def test_attention_is_hidden_from_the_second_layer_on(
    cut: str, topology: str, one_way_ms: float, hidden: float
) -> None:
    measured = uniform(names(3), one_way_ms=one_way_ms, stage_ms=MS)
    drawn = plan(stages(5), rooms(3), cut=cut, topology=topology)
    assert hidden_ms(drawn, measured) == pytest.approx(4 * hidden)


def test_attention_longer_than_what_hides_it_is_hidden_in_part() -> None:
    """Attention 10 ms: beside gate_up 3 and down 4 of its own stations, beside gate_up 3 of a shared one."""
    measured = uniform(names(3), one_way_ms=0, stage_ms=MS | {"attention": 10.0})
    thirds = plan(stages(5), rooms(3), cut="thirds", topology="ring")
    recut = plan(stages(5), rooms(2), cut="recut", topology="ring")
    assert hidden_ms(thirds, measured) == pytest.approx(4 * 7)
    assert hidden_ms(recut, measured) == pytest.approx(4 * 3)


def test_an_early_residual_on_too_long_a_link_hides_nothing() -> None:
    """Attention of both layers at s0 and s1, 100 ms apart; gate_up and down lie between them."""
    even = uniform(names(4), one_way_ms=1, stage_ms=MS)
    drawn = plan(stages(2), rooms(4), cut="thirds", topology="chain")
    first, second = (drawn.homes[n] for n in (0, 3))
    assert first != second
    links = [list(row) for row in even.one_way_ms]
    links[even.index(first)][even.index(second)] = 100.0
    far = replace(even, one_way_ms=tuple(map(tuple, links)))
    assert hidden_ms(drawn, even) == pytest.approx(2)
    assert hidden_ms(drawn, far) == 0
