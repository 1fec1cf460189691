"""Many sequences at once: whatever interleaves in a mesh, each gets the very bits of the decoder alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.flows.test_token_trip import CONTEXT, Ran, Silent
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.room import Room
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.decoder import PREFILL_CHUNK, Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling

SESSIONS = 8
STATIONS = 4
# Prompts of less than a chunk, of one, and of more, so that rows and chunks of different sequences meet.
LENGTHS = (3, PREFILL_CHUNK, 1, PREFILL_CHUNK + 9, 17, 2 * PREFILL_CHUNK, 5, 40)
HOW = (Sampling(), Sampling(temperature=0.8, top_k=40, repetition_penalty=1.1, seed=5))


def asked(number: int) -> Generation:
    """The question of one session: each has its own prompt, length of answer, and way to sample."""
    request = Request(
        prompt_ids=tuple((7 * i + 31 * number) % 300 + 3 for i in range(LENGTHS[number])),
        sampling=HOW[number % 2],
        max_tokens=8 + number,
        ignore_eos=True,
    )
    return Generation(request, Silent(), CONTEXT)


@pytest.fixture(scope="module")
def truth(tiny: Callable[[str], Path]) -> list[Ran]:
    """What the decoder says to each question, one after the other."""
    decoder, all_ran = Decoder.load(tiny("llama"), context=CONTEXT), []
    for number in range(SESSIONS):
        answer, logits = asked(number), []
        while not answer.finished:
            logits.append(decoder.forward(answer.pending, answer.position).copy())
            answer.take(logits[-1])
        all_ran.append(Ran(list(answer.token_ids), logits))
    return all_ran


async def one(coordinator: Coordinator, number: int) -> Ran:
    """One session from its beginning to its end, while others run."""
    answer, logits = asked(number), list[np.ndarray]()
    stream = await coordinator.open()
    if coordinator.ends is None:
        async for _ in coordinator.generate(stream, answer):
            pass
    while not answer.finished:
        logits.append((await coordinator.forward(stream, answer.pending, answer.position)).copy())
        answer.take(logits[-1])
    await coordinator.close(stream)
    return Ran(list(answer.token_ids), logits)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("cut", CUTS)
def test_eight_at_once_are_eight_alone(
    cut: str, topology: str, tiny: Callable[[str], Path], stations: dict[str, str], truth: list[Ran]
) -> None:
    model = open_model(tiny("llama"))
    rooms = [Room(name, None) for name in list(stations)[:STATIONS]]
    drawn = plan_model(model, rooms, cut=cut, topology=topology, dtype="f32", context=CONTEXT)
    ends = None if topology == "ring" else Ends(model.config, *model.files(model.ends, "f32"), threads=1)

    async def trip() -> None:
        async with Coordinator(model, ends, drawn, stations, sessions=SESSIONS) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            # Once more than there is room for: the last ones wait until somebody is done.
            numbers = [*range(SESSIONS), *range(SESSIONS // 2)]
            all_ran = await asyncio.gather(*(one(coordinator, number) for number in numbers))
        for number, ran in zip(numbers, all_ran):
            assert ran.token_ids == truth[number].token_ids
            for here, there in zip(ran.logits, truth[number].logits, strict=coordinator.ends is not None):
                np.testing.assert_array_equal(here, there)

    asyncio.run(trip())
