"""Which token comes next: a function of logits, earlier ids, parameters, seed and position alone.

Nothing is remembered between calls, so replaying, rewinding or choosing on another machine gives the same
token, and a draft that saw nearly the same logits chooses the same one most often. That is what the noise is
shared for: every token id has its own at every position, whoever asks. Adding Gumbel noise to the logits and
taking the largest draws from their softmax (Gumbel 1954; Maddison, Tarlow and Minka, "A* Sampling", 2014);
taking ids away never changes the noise of the others.

The filters come in the order of transformers: repetition penalty, temperature, top_k, top_p, min_p. vLLM asks
min_p before top_k and top_p, llama.cpp warms the logits last, after all filters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import CheckpointProblem, RequestProblem

GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
BLOCK = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to choose. The defaults are greedy and filter nothing.

    `temperature` 0 takes the likeliest token. `top_k` 0, `top_p` 1 and `min_p` 0 keep every token;
    `repetition_penalty` 1 punishes none. Tokens as likely as the last one a filter keeps are kept too.
    RequestProblem names the value that makes no sense, or that a coordinator could not tell a station.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, right, must in (
            ("temperature", 0 <= self.temperature <= 100, "be between 0 and 100"),
            ("top_k", 0 <= self.top_k < 1 << 32, "be between 0 (all) and 2^32 - 1"),
            ("top_p", 0 < self.top_p <= 1, "be more than 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "be between 0 and 1"),
            ("repetition_penalty", 0 < self.repetition_penalty <= 100, "be more than 0 and at most 100"),
            ("seed", 0 <= self.seed <= WORD, "be between 0 and 2^64 - 1"),
        ):
            if not right:
                raise RequestProblem(f"{name} {getattr(self, name)} is out of range", fix=f"it must {must}")


def choose(
    logits: NDArray[np.float32],
    before: Sequence[int] | NDArray[np.integer],
    sampling: Sampling,
    position: int,
) -> int:
    """The id of the token at `position` of the sequence whose earlier ids are `before`.

    `logits` is [vocabulary]; -inf forbids a token. Equal logits: the lowest id. CheckpointProblem where no
    token can be chosen: a NaN, +inf, or nothing but -inf.
    """
    scores = _penalized(logits, before, sampling.repetition_penalty)
    best = int(scores.argmax())  # a NaN counts as largest, so one look finds it
    if not math.isfinite(scores[best]):
        raise CheckpointProblem(
            f"the logits for position {position} have {scores[best]} as their largest",
            fix="the weights are damaged or overflow in this dtype: try f32, or fetch the model again",
        )
    if sampling.temperature == 0:
        return best
    with np.errstate(over="ignore"):  # a temperature of next to nothing makes all others -inf, as it should
        warm = (scores.astype(np.float64) - float(scores[best])) / sampling.temperature
    return _noisiest(warm, _kept(warm, sampling), sampling.seed, position)


def _penalized(
    logits: NDArray[np.float32], before: Sequence[int] | NDArray[np.integer], penalty: float
) -> NDArray[np.float32]:
    """Logits of ids seen before, divided by `penalty` if positive and else multiplied (CTRL, Keskar 2019)."""
    if penalty == 1:
        return logits
    scores = logits.copy()
    seen = np.asarray(before, dtype=np.int64)
    seen = seen[seen < len(scores)]  # a draft may know fewer ids than the model it drafts for
    values = scores[seen]
    scores[seen] = np.where(values > 0, values / penalty, values * penalty)
    return scores


def _kept(warm: NDArray[np.float64], sampling: Sampling) -> NDArray[np.int64]:
    """The ids that pass all filters, ascending; `warm` is log-probabilities but for a constant, largest 0."""
    ids = np.arange(len(warm))
    if 0 < sampling.top_k < len(warm):
        least = np.partition(warm, -sampling.top_k)[-sampling.top_k]
        ids = np.flatnonzero(warm >= least)
    if sampling.top_p < 1:
        ids = ids[_nucleus(np.exp(warm[ids]), sampling.top_p)]
    if sampling.min_p > 0:
        ids = ids[warm[ids] >= math.log(sampling.min_p)]
    return ids


def _nucleus(weights: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices, ascending, of the fewest largest weights that make up `top_p` of all (Holtzman 2019).

    The largest weight is 1. Sorting is what costs, so as few as will do are sorted: all weights below
    `least` together are less than 1 - top_p of all, so none of them is in.
    """
    total = weights.sum()
    least = (1 - top_p) * total / len(weights)
    for floor in (1e-2, 1e-4, least):
        large = weights[weights >= max(floor, least)]
        if large.sum() >= top_p * total:
            break
    large = np.sort(large)[::-1]
    above = np.cumsum(large) - large
    return np.flatnonzero(weights >= large[above < top_p * total][-1])


def _noisiest(warm: NDArray[np.float64], ids: NDArray[np.int64], seed: int, position: int) -> int:
    """The id whose log-probability plus noise is largest, looked for in pieces that stay in the cache."""
    best, chosen = -math.inf, int(ids[0])
    for start in range(0, len(ids), BLOCK):
        block = ids[start : start + BLOCK]
        noisy = warm[block] + noise(seed, position, block)
        at = noisy.argmax()
        if noisy[at] > best:
            best, chosen = float(noisy[at]), int(block[at])
    return chosen


def noise(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise of each token id at one position: [ids]."""
    bits = splitmix64(hashed(hashed(seed) + position * GOLDEN), ids)
    # The upper 53 bits as the middle of one of 2^53 cells: never 0, never 1.
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


def hashed(word: int) -> int:
    """One step of SplitMix64 from the state `word`."""
    return int(splitmix64(word, np.zeros(1, np.int64))[0])


def splitmix64(state: int, index: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Outputs number `index` of the generator SplitMix64 started at `state`, in any order: [index].

    Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014; its state is a counter.
    """
    words = index.astype(np.uint64)
    words *= np.uint64(GOLDEN)
    words += np.uint64((state + GOLDEN) & WORD)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
