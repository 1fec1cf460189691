"""Attentions that start ahead in a mesh of processes: it says what the shadow simulates, bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from tests.flows.test_token_trip import Ran, Silent
from tests.mesh.test_shadow import CONTEXT, LiveMesh
from trisplit.errors import RequestProblem
from trisplit.mesh.ahead import starting_ahead
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.overlap import Early
from trisplit.mesh.plan import Plan
from trisplit.mesh.room import Room
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.decoder import PREFILL_CHUNK, Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, open_model
from trisplit.models.sampling import Sampling

Tiny = Callable[[str], Path]
TOKENS = 6
# One row more than a chunk: a row that comes alone and is a prompt's nevertheless.
PROMPTS = [tuple((7 * i + 31 * n) % 300 + 3 for i in range(PREFILL_CHUNK + 1)) for n in range(3)]


def asked(prompt: Sequence[int]) -> Generation:
    how = Request(prompt_ids=tuple(prompt), sampling=Sampling(), max_tokens=TOKENS, ignore_eos=True)
    return Generation(how, Silent(), CONTEXT)


def simulated(model: Model, ahead: Collection[int], early: Early, prompt: Sequence[int]) -> Ran:
    """Layer after layer in this process."""
    mesh, answer = LiveMesh(model, ahead, early), asked(prompt)
    mesh.prompt(prompt[:PREFILL_CHUNK])
    logits = [mesh.prompt(prompt[PREFILL_CHUNK:], PREFILL_CHUNK)]
    answer.take(logits[0])
    while not answer.finished:
        logits.append(mesh.token(answer.pending[0], answer.position)[1])
        answer.take(logits[-1])
    return Ran(list(answer.token_ids), logits)


async def said(coordinator: Coordinator, prompt: Sequence[int], *, twice: bool = False) -> Ran:
    """The answer of a mesh; `twice`: the same stream goes back to its beginning and answers again."""
    stream = await coordinator.open()
    for _ in range(1 + twice):
        answer, logits = asked(prompt), list[np.ndarray]()
        if coordinator.ends is None:
            async for _ in coordinator.generate(stream, answer):
                pass
        while not answer.finished:
            row = await coordinator.forward(
                stream, answer.pending, answer.position, decoded=bool(answer.token_ids)
            )
            logits.append(row.copy())
            answer.take(row)
    await coordinator.close(stream)
    return Ran(list(answer.token_ids), logits)


def drawn(model: Model, stations: Collection[str], topology: str) -> Plan:
    rooms = [Room(name, None) for name in stations]
    return plan_model(model, rooms, cut="thirds", topology=topology, dtype="f32", context=CONTEXT)


def ends(model: Model, topology: str) -> Ends | None:
    return None if topology == "ring" else Ends(model.config, *model.files(model.ends, "f32"), threads=1)


def check(ran: Ran, expected: Ran) -> None:
    assert ran.token_ids == expected.token_ids
    for here, there in zip(ran.logits, expected.logits):
        np.testing.assert_array_equal(here, there)


WHICH = [((1, 2, 3), Early()), ((2, 3), Early("x")), ((1, 3), Early(kv="stale")), ((3,), Early("x", "stale"))]
IN_TURN = [(*which, topology) for which, topology in zip(WHICH, cycle(TOPOLOGIES))]
ALL = [(*which, topology) for which in WHICH for topology in TOPOLOGIES]


@pytest.mark.parametrize(
    ("ahead", "early", "topology"),
    [*IN_TURN, *(pytest.param(*each, marks=pytest.mark.slow) for each in ALL if each not in IN_TURN)],
    ids=str,
)
def test_a_mesh_says_what_the_shadow_says(
    ahead: tuple[int, ...], early: Early, topology: str, tiny: Tiny, stations: dict[str, str]
) -> None:
    """Three sequences at once, then one that is rewound; prompts pass exactly."""
    model = open_model(tiny("llama"))
    truth = [simulated(model, ahead, early, prompt) for prompt in PROMPTS]
    exact = simulated(model, (), early, PROMPTS[0])
    np.testing.assert_array_equal(exact.logits[0], truth[0].logits[0])
    assert not np.array_equal(exact.logits[1], truth[0].logits[1])
    plan = starting_ahead(drawn(model, list(stations)[:3], topology), ahead, early)

    async def trip() -> None:
        async with Coordinator(model, ends(model, topology), plan, stations, sessions=3) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            for ran, expected in zip(
                await asyncio.gather(*(said(coordinator, prompt) for prompt in PROMPTS)), truth
            ):
                check(ran, expected)
            check(await said(coordinator, PROMPTS[0], twice=True), truth[0])

    asyncio.run(trip())


def test_answers_are_not_the_decoder_s_any_more(tiny: Tiny) -> None:
    """Or the ids of a ring would say nothing."""
    model, decoder = open_model(tiny("llama")), Decoder.load(tiny("llama"), context=CONTEXT)
    differ = 0
    for prompt in PROMPTS:
        answer = asked(prompt)
        for _ in decoder.generate(answer):
            pass
        assert simulated(model, (), Early(), prompt).token_ids == answer.token_ids
        differ += simulated(model, (1, 2, 3), Early(), prompt).token_ids != answer.token_ids
    assert differ


def test_with_routes_it_is_the_same(tiny: Tiny, stations: dict[str, str]) -> None:
    model, early = open_model(tiny("llama")), Early()
    plan = starting_ahead(drawn(model, list(stations)[:5], "ring"), (1, 2, 3), early)

    async def trip() -> Ran:
        async with Coordinator(model, None, plan, stations, routed=True) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            return await said(coordinator, PROMPTS[1])

    check(asyncio.run(trip()), simulated(model, (1, 2, 3), early, PROMPTS[1]))


def test_it_is_one_of_failover_and_starting_ahead(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    plan = starting_ahead(drawn(model, "abc", "chain"), (1,), Early())
    with pytest.raises(RequestProblem, match="cannot be played again when a station is lost"):
        Coordinator(model, None, plan, {}, recovers=True)
