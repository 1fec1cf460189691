"""A station hears thousands of damaged frames, answers a healthy client all the while, and does not grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.flows.fuzzing import PATIENCE_S, Fuzzer, words_of
from tests.flows.stations import station
from tests.flows.test_token_trip import CONTEXT, HOW, alone, on_mesh
from tests.mesh.peers import COORDINATOR
from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.calling import connect
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.room import Room
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.model import Model, open_model
from trisplit.wire.choosing import Sample
from trisplit.wire.messages import Ask, Facts, Load, Message

GROWTH_BYTES = 16 * 2**20


class Healthy:
    """A coordinator on this station alone, and what it must be answered."""

    def __init__(self, model: Model, address: str) -> None:
        self._model, self._addresses = model, {"s1": address}
        self._ends = Ends(model.config, *model.files(model.ends, "f32"), threads=1)
        decoder = Decoder.load(model.checkpoint.path, context=CONTEXT)
        self._truth = [alone(decoder, how).token_ids for how in HOW]

    @asynccontextmanager
    async def mesh(self, topology: str = "chain") -> AsyncIterator[Coordinator]:
        """Its stages loaded, for two sequences at once."""
        how = {"cut": "layers", "topology": topology, "dtype": "f32", "context": CONTEXT}
        plan = plan_model(self._model, [Room("s1", None)], **how)  # type: ignore[arg-type]
        ends = None if topology == "ring" else self._ends
        async with Coordinator(self._model, ends, plan, self._addresses, sessions=2) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            yield coordinator

    async def answers(self, coordinator: Coordinator) -> None:
        """It is answered exactly."""
        for how, truth in zip(HOW, self._truth):
            assert (await on_mesh(coordinator, how)).token_ids == truth


async def from_outside(fuzzer: Fuzzer, healthy: Healthy, n: int) -> None:
    """Strangers, while somebody is served."""
    async with healthy.mesh() as coordinator:
        strangers = asyncio.create_task(fuzzer.strangers(n))
        while not strangers.done():
            await healthy.answers(coordinator)
        await strangers
        await healthy.answers(coordinator)


async def from_inside(fuzzer: Fuzzer, healthy: Healthy, n: int) -> None:
    """Those who were let in and loaded the station; each time it is empty again afterwards."""
    fuzzer.left = n
    while fuzzer.left > 0:
        for topology in ("chain", "ring"):
            for gone_mad in (fuzzer.as_coordinator, fuzzer.as_member):
                with suppress(Problem):
                    async with healthy.mesh(topology) as coordinator:
                        await gone_mad(coordinator, await coordinator.open())


async def fuzz(model: Model, address: str, n: int, seed: int) -> None:
    """`n` mutants, a few of them from inside; the station's memory is compared from a tenth of them on."""
    fuzzer, healthy = Fuzzer(int(address.rpartition(":")[2]), seed), Healthy(model, address)
    facts = []
    for share in (0.1, 0.9):
        await from_outside(fuzzer, healthy, int(0.96 * share * n))
        await from_inside(fuzzer, healthy, int(0.04 * share * n))
        async with healthy.mesh() as coordinator:
            await healthy.answers(coordinator)
        facts.append(await facts_of(address))
    assert facts[1].rss_bytes - facts[0].rss_bytes < GROWTH_BYTES
    assert facts[1].refused > n / 40, "hardly anything was refused: nothing was tried"


async def facts_of(address: str) -> Facts:
    """What the station says of itself when it is empty."""
    link = await connect(address, hello=COORDINATOR, deadline_s=PATIENCE_S)
    link.send(Ask())
    facts = await link.expect(Facts, PATIENCE_S)
    await link.close()
    return facts


def hears(address: str, model: Model, kind: type[Message], **facts: object) -> str:
    """Why a coordinator is left that says a word of this kind with such facts."""

    async def say() -> str:
        async with Healthy(model, address).mesh("ring") as coordinator:
            link, stream = coordinator._members.link(0), await coordinator.open()
            if kind is Load:
                await coordinator.close(stream)
            word = next(said for said in words_of(coordinator, stream) if isinstance(said, kind))
            link.send(msgspec.structs.replace(word, **facts))
            await link.wait_closed()
            with pytest.raises(PeerProblem) as caught:
                link.send(Ask())
        return caught.value.what

    return asyncio.run(asyncio.wait_for(say(), PATIENCE_S))


def test_orders_that_ask_for_too_much_are_refused_with_the_numbers(tiny: Callable[[str], Path]) -> None:
    model = open_model(tiny("llama"))
    room = f"with room for {CONTEXT} below {model.config.vocab}"
    with station() as address:
        for kind, facts, why in (
            (Sample, {"end": 2**32 - 1}, f"4,294,967,295 ids up to 7, {room}"),
            (Sample, {"ids": (5, model.config.vocab)}, f"{CONTEXT} ids up to {model.config.vocab}, {room}"),
            (Sample, {"ids": (1,) * (CONTEXT + 1)}, f"{CONTEXT + 1} ids up to 1, {room}"),
            (Load, {"threads": 5000}, "5,000 threads on a station of"),
            (Load, {"context": 2**32 - 1}, "of memory are free"),
        ):
            assert why in hears(address, model, kind, **facts)


def test_20_000_mutants(tiny: Callable[[str], Path]) -> None:
    with station() as address:
        asyncio.run(fuzz(open_model(tiny("llama")), address, 20_000, seed=20_000))


@pytest.mark.slow
def test_1_000_000_mutants(tiny: Callable[[str], Path]) -> None:
    with station() as address:
        asyncio.run(fuzz(open_model(tiny("llama")), address, 1_000_000, seed=1_000_000))
