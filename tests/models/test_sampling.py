"""Sampling draws from the softmax it should, filters as the field does, and repeats itself exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.sampling import BLOCK, Sampling, choose, noise, splitmix64

INF = math.inf


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def random_logits(n: int, spread: float = 2.0, seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(n) * spread).astype(np.float32)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def filtered(logits: NDArray[np.float32], before: list[int], sampling: Sampling) -> NDArray[np.float64]:
    """The probabilities a sample must follow, written down one token at a time, as slowly as can be."""
    scores = [float(x) for x in logits]
    for i in set(before):
        scores[i] = (
            scores[i] / sampling.repetition_penalty
            if scores[i] > 0
            else scores[i] * sampling.repetition_penalty
        )
    p = softmax(np.array(scores) / sampling.temperature)
    if sampling.top_k:
        least = sorted(p, reverse=True)[min(sampling.top_k, len(p)) - 1]
        p = np.where(p >= least, p, 0)
        p /= p.sum()
    total, least = 0.0, 1.0
    for one in sorted(p, reverse=True):
        if total < sampling.top_p:
            least = one
        total += one
    p[p < max(least, sampling.min_p * p.max())] = 0
    return np.asarray(p / p.sum())


def chi_square_bound(n_cells: int) -> float:
    """Five standard deviations above what the statistic is on average."""
    return n_cells - 1 + 5 * math.sqrt(2 * (n_cells - 1))


def counts_at_many_positions(
    logits: NDArray[np.float32], before: list[int], sampling: Sampling, n: int
) -> NDArray[np.int64]:
    chosen = [choose(logits, before, sampling, position) for position in range(n)]
    return np.bincount(chosen, minlength=len(logits))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.7, seed=7),
        Sampling(temperature=1.6, seed=2**64 - 1),
        Sampling(temperature=1.0, top_k=5),
        Sampling(temperature=1.0, top_p=0.8),
        Sampling(temperature=1.2, min_p=0.1, seed=3),
        Sampling(temperature=0.9, repetition_penalty=1.5),
        Sampling(temperature=1.3, top_k=12, top_p=0.9, min_p=0.03, repetition_penalty=1.2, seed=99),
    ],
)
def test_frequencies_follow_the_softmax_of_what_the_filters_leave(sampling: Sampling) -> None:
    logits, before, n = random_logits(20, 1.5), [3, 3, 17, 0], 8_000
    counts = counts_at_many_positions(logits, before, sampling, n)
    expected = filtered(logits, before, sampling) * n
    assert counts[expected == 0].sum() == 0
    likely = expected >= 5
    assert counts[~likely].sum() <= expected[~likely].sum() + 5 * math.sqrt(expected[~likely].sum() + 1)
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    assert statistic < chi_square_bound(int(likely.sum()))


def test_seeds_at_one_position_follow_the_softmax_too() -> None:
    logits, n = random_logits(12, 1.0), 8_000
    chosen = [choose(logits, (), Sampling(temperature=1.0, seed=seed), 5) for seed in range(n)]
    expected = softmax(logits.astype(np.float64)) * n
    statistic = ((np.bincount(chosen, minlength=12) - expected) ** 2 / expected).sum()
    assert statistic < chi_square_bound(12)


def test_positions_do_not_know_of_each_other() -> None:
    logits, n = np.zeros(6, dtype=np.float32), 20_000
    chosen = np.array([choose(logits, (), Sampling(temperature=1.0), position) for position in range(n)])
    for distance in (1, 2, 64):
        pairs = np.bincount(chosen[:-distance] * 6 + chosen[distance:], minlength=36)
        expected = (n - distance) / 36
        assert ((pairs - expected) ** 2 / expected).sum() < chi_square_bound(36)


def test_the_hash_is_the_published_splitmix64() -> None:
    # The reference values for seed 1234567 that implementations are checked by.
    assert splitmix64(1234567, np.arange(5)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_noise_is_standard_gumbel() -> None:
    values = np.concatenate([noise(1, position, np.arange(5_000)) for position in range(40)])
    uniform = np.exp(-np.exp(-values))
    cells = np.bincount((uniform * 256).astype(int), minlength=256)
    expected = len(values) / 256
    assert ((cells - expected) ** 2 / expected).sum() < chi_square_bound(256)
    assert values.mean() == pytest.approx(0.5772156649, abs=0.01)
    assert values.var() == pytest.approx(math.pi**2 / 6, abs=0.03)
    assert np.isfinite(values).all()


def test_noise_of_neighbours_is_not_alike() -> None:
    ids = np.arange(20_000)
    for one, other in (
        (noise(1, 2, ids), noise(1, 3, ids)),
        (noise(1, 2, ids), noise(2, 2, ids)),
        (noise(1, 2, ids), noise(2, 1, ids)),
        (noise(1, 2, ids), noise(1, 2, ids + 1)),
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


def test_the_same_question_has_the_same_answer_for_ever() -> None:
    logits = random_logits(1_000, 2.0, seed=4)
    sampling = Sampling(temperature=1.0, seed=42)
    assert [choose(logits, (), sampling, position) for position in range(8)] == [
        *(624, 164, 48, 123),
        *(562, 658, 351, 258),
    ]
    assert noise(42, 7, np.array([0, 1, 999])).tolist() == pytest.approx(
        [-1.5753393218783864, -0.8638658504094358, 0.1799059049732979], rel=1e-14
    )


@given(
    # Sixteenths: what is equal here is equal as a probability, and what is not is not.
    st.lists(st.integers(-320, 320).map(lambda n: n / 16), min_size=2, max_size=30),
    st.integers(1, 30),
    st.floats(0.01, 1),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**40),
)
def test_a_filter_never_moves_the_choice_to_another_kept_token(
    values: list[float], top_k: int, top_p: float, min_p: float, seed: int, position: int
) -> None:
    logits = f32(*values)
    free = Sampling(temperature=1.0, seed=seed)
    strict = replace(free, top_k=top_k, top_p=top_p, min_p=min_p)
    # What lies on the edge of a filter may fall to either side: sums are rounded.
    edges = [
        replace(strict, top_p=min(1.0, top_p * (1 + e)), min_p=min(1.0, min_p * (1 - e)))
        for e in (-1e-9, 1e-9)
    ]
    surely, perhaps = (filtered(logits, [], edge) > 0 for edge in edges)
    chosen, freely = choose(logits, (), strict, position), choose(logits, (), free, position)
    assert perhaps[chosen]
    if surely[freely]:
        assert chosen == freely
    noisy = logits.astype(np.float64) + noise(seed, position, np.arange(len(logits)))
    assert noisy[chosen] >= noisy[surely].max() - 1e-9


@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.9999])
def test_a_nucleus_is_the_same_however_flat_it_is(spread: float, top_p: float) -> None:
    logits, ids = random_logits(3_000, spread), np.arange(3_000)
    sampling = Sampling(temperature=1.0, top_p=top_p)
    kept = filtered(logits, [], sampling) > 0
    for position in range(30):
        noisy = np.where(kept, logits.astype(np.float64) + noise(0, position, ids), -INF)
        assert choose(logits, (), sampling, position) == int(noisy.argmax())


def test_a_draft_with_nearly_the_same_logits_chooses_the_same_token() -> None:
    logits, n = random_logits(500, 2.0), 4_000
    nearly = logits + random_logits(500, 0.1, seed=1)
    p, q = softmax(logits.astype(np.float64)), softmax(nearly.astype(np.float64))
    apart = 0.5 * np.abs(p - q).sum()
    sampling = Sampling(temperature=1.0)
    same = sum(choose(logits, (), sampling, i) == choose(nearly, (), sampling, i) for i in range(n)) / n
    # Gumbel noise shared is a coupling no worse than this (Daliri, Musco and Suresh 2025).
    assert same >= (1 - apart) / (1 + apart) - 0.01
    assert same > 0.9


@given(st.lists(st.sampled_from([-INF, -1.0, 0.0, 1.0, 2.0]), min_size=1, max_size=12), st.integers(0, 99))
def test_greedy_takes_the_lowest_id_of_the_largest(values: list[float], position: int) -> None:
    if max(values) > -INF:
        assert choose(f32(*values), (), Sampling(seed=position), position) == values.index(max(values))


def test_the_penalty_divides_what_is_positive_and_multiplies_what_is_not() -> None:
    logits = f32(3.0, 2.0, -1.0, -1.5)
    penal = Sampling(repetition_penalty=2.0)
    assert choose(logits, [0], penal, 1) == 1  # 1.5 against 2
    assert choose(logits, [0, 0, 0, 1], penal, 4) == 0  # once is as often as three times
    assert choose(f32(-1.0, -1.5), [0], penal, 1) == 1  # -2 against -1.5
    assert logits.tolist() == [3.0, 2.0, -1.0, -1.5]


def test_an_id_the_model_does_not_know_is_not_punished() -> None:
    assert choose(f32(1.0, 2.0), [7, 1], Sampling(repetition_penalty=4.0), 2) == 0


def test_ids_may_come_as_a_list_a_tuple_or_an_array() -> None:
    logits, sampling = random_logits(50), Sampling(temperature=1.0, repetition_penalty=1.3)
    ids = [4, 8, 15]
    expected = choose(logits, ids, sampling, 3)
    assert choose(logits, tuple(ids), sampling, 3) == expected
    assert choose(logits, np.array(ids, dtype=np.int32), sampling, 3) == expected
    assert choose(logits, (), replace(sampling, repetition_penalty=1.0), 3) >= 0


def test_forbidden_tokens_are_never_chosen() -> None:
    logits = f32(-INF, 0.0, -INF, 0.0)
    for sampling in (Sampling(temperature=1.0), Sampling(temperature=9.0, top_p=0.99, min_p=0.001, top_k=3)):
        assert {choose(logits, (), sampling, position) for position in range(60)} == {1, 3}


def test_a_tiny_temperature_is_greedy() -> None:
    logits = random_logits(100)
    assert choose(logits, (), Sampling(temperature=1e-30), 0) == int(logits.argmax())
    assert choose(logits, (), Sampling(temperature=1e-320, top_p=0.5), 0) == int(logits.argmax())


def test_vocabularies_longer_than_a_block_are_looked_through_to_the_end() -> None:
    logits = np.full(2 * BLOCK + 5, -INF, dtype=np.float32)
    places = [0, BLOCK - 1, BLOCK, 2 * BLOCK + 4]
    logits[places] = 0.0
    chosen = {choose(logits, (), Sampling(temperature=1.0), position) for position in range(60)}
    assert chosen == set(places)
    logits[:] = random_logits(len(logits), 0.5)
    everywhere = logits.astype(np.float64) + noise(3, 11, np.arange(len(logits)))
    assert choose(logits, (), Sampling(temperature=1.0, seed=3), 11) == int(everywhere.argmax())


@pytest.mark.parametrize("values", [(1.0, math.nan), (math.nan,) * 3, (INF, 0.0), (-INF, -INF)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_nothing_can_be_chosen_from_are_a_problem(
    values: tuple[float, ...], temperature: float
) -> None:
    with pytest.raises(CheckpointProblem, match=r"logits for position 5 have (nan|inf|-inf)"):
        choose(f32(*values), (), Sampling(temperature=temperature), 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", INF),
        ("temperature", 100.5),
        ("top_k", -1),
        ("top_k", 2**32),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.nan),
        ("repetition_penalty", 101.0),
        ("seed", -1),
        ("seed", 2**64),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(RequestProblem, match=f"{name} {value} is out of range"):
        Sampling(**{name: value})  # type: ignore[arg-type]
