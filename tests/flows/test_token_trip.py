"""The trip of a token: a mesh of real processes gives the very bits of the decoder in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import VARIANTS
from trisplit.errors import PlanProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.room import Room
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.decoder import PREFILL_CHUNK, Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, open_model
from trisplit.models.sampling import Sampling
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import VERSION, Hello

CONTEXT = 160
PROMPT = tuple((7 * i) % 300 + 3 for i in range(PREFILL_CHUNK + 9))  # more than one chunk
TOKENS = 12
COUNTS, FEW = (1, 2, 3, 5, 7), (2, 5)  # stations: every number, and some for those that differ by little
IN_FULL = ("llama", "gemma3", "neox")
HOW = (Sampling(), Sampling(temperature=0.8, top_k=40, repetition_penalty=1.1, seed=5))


class Silent:
    """A detokenizer for those who look at ids only."""

    def push(self, token_id: int) -> str:
        return f" {token_id}"

    def flush(self) -> str:
        return ""


@dataclass(frozen=True)
class Ran:
    """Tokens of an answer, and the logits each was sampled from."""

    token_ids: list[int]
    logits: list[np.ndarray]


def request(how: Sampling) -> Request:
    return Request(prompt_ids=PROMPT, sampling=how, max_tokens=TOKENS, ignore_eos=True)


def asked(how: Sampling) -> Generation:
    return Generation(request(how), Silent(), CONTEXT)


def alone(decoder: Decoder, how: Sampling) -> Ran:
    answer, logits = asked(how), []
    while not answer.finished:
        logits.append(decoder.forward(answer.pending, answer.position).copy())
        answer.take(logits[-1])
    return Ran(list(answer.token_ids), logits)


async def on_mesh(coordinator: Coordinator, how: Sampling) -> Ran:
    answer, logits = asked(how), []
    stream = await coordinator.open()
    while not answer.finished:
        logits.append((await coordinator.forward(stream, answer.pending, answer.position)).copy())
        answer.take(logits[-1])
    await coordinator.close(stream)
    return Ran(list(answer.token_ids), logits)


async def round_the_ring(coordinator: Coordinator, how: Sampling) -> Ran:
    answer = asked(how)
    stream = await coordinator.open()
    async for _ in coordinator.generate(stream, answer):
        pass
    await coordinator.close(stream)
    return Ran(list(answer.token_ids), [])


async def all_plans(
    model: Model,
    dtype: Dtype,
    cut: str,
    truth: list[Ran],
    stations: Mapping[str, str],
    topology: str,
    counts: Sequence[int],
) -> dict[int, int]:
    """Compares every answer on so many stations with the truth; returns legs per token by their number."""
    ring = topology == "ring"
    ends = None if ring else Ends(model.config, *model.files(model.ends, dtype), threads=1)
    legs = {}
    for count in counts:
        rooms = [Room(name, None) for name in list(stations)[:count]]
        try:
            drawn = plan_model(model, rooms, cut=cut, topology=topology, dtype=dtype, context=CONTEXT)
        except PlanProblem:
            assert count < len(CUTS[cut])
            continue
        legs[count] = drawn.legs_per_token
        async with Coordinator(model, ends, drawn, stations) as coordinator:
            async for _ in coordinator.load(dtype, context=CONTEXT, threads=1):
                pass
            for how, expected in zip(HOW, truth):
                ran = await (round_the_ring if ring else on_mesh)(coordinator, how)
                assert ran.token_ids == expected.token_ids
                for here, there in zip(ran.logits, expected.logits):
                    np.testing.assert_array_equal(here, there)
    return legs


def check_all_cuts(
    path: Path,
    dtype: Dtype,
    stations: Mapping[str, str],
    topology: str = "chain",
    counts: Sequence[int] = COUNTS,
) -> None:
    model = open_model(path)
    decoder = Decoder.load(path, dtype, context=CONTEXT)
    truth = [alone(decoder, how) for how in HOW]
    assert truth[0].token_ids != truth[1].token_ids, "sampling must differ from greedy, or it is not tried"
    expected = expected_legs(model.config.layers, parallel=model.config.parallel)[topology]
    for cut, legs in expected.items():
        here = {n: count for n, count in zip(COUNTS[-len(legs) :], legs) if n in counts}
        assert asyncio.run(all_plans(model, dtype, cut, truth, stations, topology, counts)) == here


def expected_legs(layers: int, *, parallel: bool) -> dict[str, dict[str, list[int]]]:
    """For each of the numbers of stations a cut can do with."""
    visits = 2 * layers + 1 if parallel else 3 * layers  # all but the first attention run beside gate_up
    spans = [min(n, layers) for n in COUNTS]
    return {
        "star": {
            "layers": [2 * n for n in spans],
            "thirds": [2 * visits] * 3,
            "recut": [2 * (2 * layers + 1)] * 4,
        },
        "chain": {
            "layers": [n + 1 for n in spans],
            "thirds": [visits + 1] * 3,
            "recut": [2 * layers + 2] * 4,
        },
        "ring": {
            "layers": [n if n > 1 else 0 for n in spans],
            "thirds": [visits] * 3,
            "recut": [2 * layers] * 4,
        },
    }


@pytest.mark.parametrize(
    ("variant", "counts"),
    [
        *((variant, FEW) for variant in (*VARIANTS, "deci") if variant not in IN_FULL),
        *((variant, COUNTS) for variant in IN_FULL),
        *(pytest.param(v, COUNTS, marks=pytest.mark.slow) for v in VARIANTS if v not in IN_FULL),
    ],
    ids=str,
)
def test_mesh_is_decoder_for_every_family_cut_and_station_count(
    variant: str, counts: Sequence[int], tiny: Callable[[str], Path], stations: dict[str, str]
) -> None:
    check_all_cuts(tiny(variant), "f32", stations, counts=counts)


@pytest.mark.parametrize("topology", ["star", "ring"])
@pytest.mark.parametrize("variant", ["llama", "qwen2", "gemma3", "neox"])
def test_stars_and_rings_are_the_decoder_too(
    variant: str, topology: str, tiny: Callable[[str], Path], stations: dict[str, str]
) -> None:
    check_all_cuts(tiny(variant), "f32", stations, topology)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "f32"])
@pytest.mark.parametrize("variant", ["llama-biases", "gemma3", "neox", "deci"])
def test_mesh_is_decoder_when_quantized(
    variant: str, dtype: Dtype, tiny: Callable[[str], Path], stations: dict[str, str]
) -> None:
    check_all_cuts(tiny(variant), dtype, stations)


# --- what is given up, and what is not ours -------------------------------------------------------


def three(model: Model, cut: str, stations: Mapping[str, str]) -> Coordinator:
    ends = Ends(model.config, *model.files(model.ends, "f32"), threads=1)
    rooms = [Room(name, None) for name in list(stations)[:3]]
    return Coordinator(model, ends, plan_model(model, rooms, cut=cut, dtype="f32", context=CONTEXT), stations)


@pytest.mark.parametrize("cut", CUTS)
def test_a_step_given_up_leaves_no_trace(
    cut: str, tiny: Callable[[str], Path], stations: dict[str, str]
) -> None:
    """A draft, a closed chat: another token at the same place, while the old one is still on its way."""
    model, decoder = open_model(tiny("llama")), Decoder.load(tiny("llama"), context=CONTEXT)

    async def trip() -> None:
        async with three(model, cut, stations) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            stream = await coordinator.open()
            await coordinator.forward(stream, PROMPT, 0)
            given_up = asyncio.create_task(coordinator.forward(stream, (9,), len(PROMPT)))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            for position, token in ((len(PROMPT), 11), (len(PROMPT) + 1, 12), (40, 13)):
                here = await coordinator.forward(stream, (token,), position)
                np.testing.assert_array_equal(here, decoder.forward((token,), position))

    decoder.forward(PROMPT, 0)
    asyncio.run(trip())


def test_rows_of_another_mesh_are_not_run(tiny: Callable[[str], Path], stations: dict[str, str]) -> None:
    """A station whose coordinator died may still send; stream numbers begin anew with every coordinator."""
    model, decoder = open_model(tiny("llama")), Decoder.load(tiny("llama"), context=CONTEXT)

    async def trip() -> None:
        hello = Hello(VERSION, "another mesh", "station", "a ghost")
        ghost = await connect(stations["s2"], hello=hello, deadline_s=5)
        async with three(model, "layers", stations) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            stream = await coordinator.open()
            await coordinator.forward(stream, PROMPT[:3], 0)
            noise = np.ones((3, model.config.hidden), np.float32)
            ghost.send(Activation(1, 0, 0, 1, 3, noise.data.cast("B")))
            await asyncio.sleep(0.1)
            here = await coordinator.forward(stream, (8,), 3)
            np.testing.assert_array_equal(here, decoder.forward((8,), 3))
        await ghost.close()

    decoder.forward(PROMPT[:3], 0)
    asyncio.run(trip())
