"""What the steps of a recipe gain, each alone and one on top of the other: does their product come true."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from trisplit.bench.measure import Spread
from trisplit.bench.posts import WARM_TOKENS, Post, ours
from trisplit.bench.rounds import Turn, alternate, spread, started
from trisplit.bench.stand_ins import Gates, bytes_of, narrower, stand_ins
from trisplit.bench.weights import bytes_per_token
from trisplit.errors import RequestProblem
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.decoder import Decoder
from trisplit.models.model import Model, context_for, open_model, refuse_if_short

BASE: Final = "base"
_STEP: Final = re.compile(
    r"fused|sliced(?P<keep>[1-9][0-9]?)|(?P<dtype>int8|int4)|threads(?P<threads>[1-9][0-9]{0,2})"
)
_PROMPT_IDS: Final = tuple(range(1, 17))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model is run: `keep` percent of the neurons of each layer."""

    gates: Gates = "separate"
    keep: int = 100
    dtype: Dtype = "f32"
    threads: int = 1

    def then(self, step: str) -> Recipe:
        """With one more step: fused, sliced50, int8, int4, threads2. RequestProblem for what is none."""
        said = _STEP.fullmatch(step)
        if said is None:
            what = f"{step!r} is no step"
            raise RequestProblem(what, fix="steps are fused, slicedNN, int8, int4, threadsN")
        if said["keep"]:
            return replace(self, keep=int(said["keep"]))
        if said["threads"]:
            return replace(self, threads=int(said["threads"]))
        for dtype in DTYPES:
            if said["dtype"] == dtype:
                return replace(self, dtype=dtype)
        return replace(self, gates="fused")

    def n_bytes(self, model: Model) -> int:
        """Bytes of weights a token reads."""
        return bytes_per_token(replace(model, config=narrower(model.config, self.keep)), self.dtype)

    def post(self, model: Path, context: int) -> Post:
        """A process that decodes so."""
        words = f"{self.dtype}, {self.gates}, {self.keep} % of neurons, --threads {self.threads}"
        facts = {"kind": "recipe", "model": str(model), "context": context, "recipe": asdict(self)}
        return ours(words, {**facts, "threads": self.threads}, {})


def decoder(path: Path, recipe: Recipe, context: int) -> tuple[Decoder, int]:
    """The model run so, with random weights, and bytes of weights it reads for a token."""
    config = narrower(open_model(path).config, recipe.keep)
    with TemporaryDirectory() as folder:
        files = stand_ins(config, config.stages, recipe.dtype, Path(folder), gates=recipe.gates)
        return Decoder(config, files, context=context, threads=recipe.threads), bytes_of(files[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRow:
    """A step after all those above it; `ms_per_token` is the median of all tokens of all rounds.

    How many times as fast: `gain` as the row above, `alone` the step by itself as the base, `together` all so
    far as the base, `product` what multiplying `alone` would have it. `ratio_by_bytes`: as many times fewer
    bytes of weights to read for a token as the base.
    """

    step: str
    ms_per_token: float
    gain: float
    alone: float
    product: float
    together: float
    ratio_by_bytes: float
    best_ms: float
    p95_ms: float
    bytes_per_token: int
    threads: int


async def stack(path: Path, steps: Sequence[str], *, tokens: int, rounds: int) -> list[StackRow]:
    """The model with random weights and none of the steps, then with one more of them in each row.

    Each way to run it is a process, and all take turns. RequestProblem for a step that is none, or no news.
    """
    model = open_model(path)
    order = {"prompt_ids": [*_PROMPT_IDS], "warm": WARM_TOKENS, "tokens": tokens}
    context = context_for(model.config, len(_PROMPT_IDS) + WARM_TOKENS + tokens)
    piled, alone = _recipes(steps)
    recipes = [*dict.fromkeys([*piled, *alone])]
    refuse_if_short(sum(recipe.n_bytes(model) for recipe in recipes), f"{len(recipes)} copies of the weights")
    async with started([recipe.post(path, context) for recipe in recipes]) as workers:
        turns: list[Turn] = [(worker, order) for worker in workers]
        answers = await alternate(turns, rounds)
    times = {recipe: spread(taken) for recipe, taken in zip(recipes, answers)}
    n_bytes = {recipe: worker.ready["bytes_per_token"] for recipe, worker in zip(recipes, workers)}
    return [*_rows([BASE, *steps], piled, alone, times, n_bytes)]


def most_threads(steps: Sequence[str]) -> int:
    """Of any of the ways to run it; RequestProblem as of `stack`."""
    return max(recipe.threads for recipe in _recipes(steps)[0])


def _recipes(steps: Sequence[str]) -> tuple[list[Recipe], list[Recipe]]:
    """After each step, and with each alone; both begin with the base."""
    piled, alone = [Recipe()], [Recipe()]
    for step in steps:
        piled.append(piled[-1].then(step))
        alone.append(Recipe().then(step))
        if piled[-1] in piled[:-1]:
            raise RequestProblem(f"{step} changes nothing after the steps before it", fix="leave it out")
    return piled, alone


def _rows(
    names: Sequence[str],
    piled: Sequence[Recipe],
    alone: Sequence[Recipe],
    times: Mapping[Recipe, Spread],
    n_bytes: Mapping[Recipe, int],
) -> Iterator[StackRow]:
    base, before, product = times[piled[0]], times[piled[0]], 1.0
    for name, recipe, single in zip(names, piled, alone):
        now, by_itself = times[recipe], base.p50_ms / times[single].p50_ms
        product *= by_itself
        yield StackRow(
            step=name,
            ms_per_token=now.p50_ms,
            gain=before.p50_ms / now.p50_ms,
            alone=by_itself,
            product=product,
            together=base.p50_ms / now.p50_ms,
            ratio_by_bytes=n_bytes[piled[0]] / n_bytes[recipe],
            best_ms=now.best_ms,
            p95_ms=now.p95_ms,
            bytes_per_token=n_bytes[recipe],
            threads=recipe.threads,
        )
        before = now
