"""Verdicts on starting ahead: what time it saves, worked out by hand, and sets that must pass as sets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.mesh.overlap import (
    SEEDS,
    Damage,
    Early,
    LayerTimes,
    Limit,
    Schedule,
    exact,
    judge,
    largest,
    spans,
)

TIMES = [LayerTimes(3.0, 2.0, 1.0), LayerTimes(4.0, 2.0, 1.0), LayerTimes(1.0, 2.0, 2.0)]


def damage(residual: float = 0.0, kl: float = 0.0, ppl_ratio: float = 1.0) -> Damage:
    return Damage(residual=residual, logit=0.0, kl=kl, ppl_ratio=ppl_ratio)


# --- time -----------------------------------------------------------------------------------------


def test_without_overlap_thirds_follow_each_other() -> None:
    plain = Schedule.of(TIMES, (), "x")
    assert plain.ends_ms == (6.0, 13.0, 18.0)
    assert plain.starts_ms == (0.0, 6.0, 13.0)
    assert plain.overlap_ms(1) == 0.0


@pytest.mark.parametrize(
    ("seed", "overlap_ms", "end_ms"),
    [
        ("x", 6.0, 14.0),  # 4 ms of attention beside the whole of layer 0
        ("x+attn", 3.0, 15.0),  # beside its gate_up and down: one ms is left
    ],
)
def test_an_attention_that_starts_ahead(seed: str, overlap_ms: float, end_ms: float) -> None:
    early = Schedule.of(TIMES, (1,), next(s for s in SEEDS if s == seed))
    assert early.overlap_ms(1) == overlap_ms
    assert early.ends_ms[-1] == end_ms


def test_neighbours_that_both_start_ahead() -> None:
    early = Schedule.of(TIMES, (1, 2), "x+attn")
    # attention 1 runs 3-7, x of layer 1 is there at 6, so gate_up 1 starts at 7; attention 2 runs 7-8.
    assert early.starts_ms == (0.0, 3.0, 7.0)
    assert early.ends_ms == (6.0, 10.0, 14.0)


thirds = st.builds(LayerTimes, *(st.integers(0, 50).map(float),) * 3)


@given(st.lists(thirds, min_size=2, max_size=8), st.data())
def test_starting_ahead_never_takes_longer_and_never_saves_more_than_attention(
    times: list[LayerTimes], data: st.DataObject
) -> None:
    ahead = data.draw(st.sets(st.integers(1, len(times) - 1)))
    seed = data.draw(st.sampled_from(SEEDS))
    plain, early = Schedule.of(times, (), seed), Schedule.of(times, ahead, seed)
    saved = plain.ends_ms[-1] - early.ends_ms[-1]
    assert 0 <= saved <= sum(times[layer].attention_ms for layer in ahead)
    for layer in ahead:
        assert early.overlap_ms(layer) >= 0
    assert Schedule.of(times, ahead, "x").ends_ms[-1] <= Schedule.of(times, ahead, "x+attn").ends_ms[-1]


# --- sets -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 30), unique=True), st.integers(0, 200))
def test_of_a_sum_the_longest_beginning_is_found(order: list[int], bound: int) -> None:
    tried: list[int] = []

    def passes(layers: Sequence[int]) -> bool:
        tried.append(len(layers))
        return sum(layers) <= bound

    found = largest(order, passes)
    assert list(found) == order[: len(found)]
    assert sum(found) <= bound
    assert len(found) == len(order) or sum(order[: len(found) + 1]) > bound
    assert len(tried) <= 1 + len(order).bit_length()


@given(st.lists(st.integers(1, 30), unique=True), st.sets(st.integers(0, 30)))
def test_what_is_returned_has_passed_whatever_passes(order: list[int], lengths: set[int]) -> None:
    found = largest(order, lambda layers: len(layers) in lengths)
    assert not found or len(found) in lengths


def test_single_verdicts_do_not_add_up() -> None:
    singles = {1: damage(kl=0.5), 2: damage(kl=0.02), 3: damage(kl=0.01), 4: damage(kl=0.03)}
    asked: list[tuple[int, ...]] = []

    def measure(layers: Sequence[int]) -> Damage:
        asked.append(tuple(layers))
        return damage(kl=2 * sum(singles[layer].kl for layer in layers))

    times = [LayerTimes(1.0, 1.0, 1.0)] * 5
    verdict = judge(singles, times, early=Early(), limit=Limit("kl", 0.06), measure=measure)
    assert asked == [(2, 3, 4), (2, 3)]  # the most harmless first, and halved; one alone is known
    assert verdict.on == (2, 3)
    assert (verdict.together.kl, verdict.tried) == (pytest.approx(0.06), 3)
    assert (verdict.saves_ms, verdict.token_ms) == (2.0, 15.0)
    by_layer = {row.layer: row for row in verdict.rows}
    assert by_layer[1].reason == "KL is 0.5, over 0.06"
    assert by_layer[2].reason == "KL is 0.02, within 0.06"
    assert by_layer[4].reason == "KL is 0.03, within 0.06, but not in a set that passes"
    assert [row.verdict for row in verdict.rows] == ["OFF", "ON", "ON", "OFF"]
    assert (by_layer[4].overlap_ms, by_layer[4].saves_ms) == (2.0, 1.0)
    assert "layers 2-3" in " ".join(verdict.notes())


def test_where_nothing_passes_everything_is_off() -> None:
    def nothing(_: Sequence[int]) -> Damage:
        raise AssertionError("no set is left to measure")

    singles = {1: damage(residual=4.9), 2: damage(residual=2.7)}
    verdict = judge(singles, TIMES, early=Early(), limit=Limit(), measure=nothing)
    assert (verdict.on, verdict.saves_ms, verdict.tried) == ((), 0.0, 0)
    assert verdict.rows[0].reason == "the residual moves by 4.9, over 0.0001"
    assert next(verdict.notes()).startswith("OFF")


def test_parallel_blocks_are_on_everywhere_and_exact() -> None:
    verdict = exact(TIMES)
    assert verdict.on == (0, 1, 2)
    assert verdict.exact
    assert [(row.overlap_ms, row.saves_ms) for row in verdict.rows] == [(3.0, 2.0), (4.0, 2.0), (1.0, 1.0)]
    assert (verdict.saves_ms, verdict.token_ms) == (5.0, 18.0)
    assert (verdict.together.residual, verdict.together.ppl_ratio) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("layers", "said"), [((), ""), ((3,), "3"), ((1, 2, 3, 7), "1-3, 7"), ((1, 3, 4), "1, 3-4")]
)
def test_spans(layers: tuple[int, ...], said: str) -> None:
    assert spans(layers) == said
