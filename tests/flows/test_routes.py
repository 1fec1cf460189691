"""Rows that travel along routes: the same tokens, and stations that ask only where a route ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.flows.test_token_trip import CONTEXT, HOW, alone, on_mesh, round_the_ring
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.onward import Onward
from trisplit.mesh.plan import Plan
from trisplit.mesh.room import Room
from trisplit.mesh.server import listen
from trisplit.mesh.station import Station
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.model import Model, open_model
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import VERSION, Welcome

Tiny = Callable[[str], Path]


@asynccontextmanager
async def joined(model: Model, drawn: Plan) -> AsyncIterator[Coordinator]:
    """A routed mesh whose stations live in this process."""
    ends = (
        None if drawn.topology == "ring" else Ends(model.config, *model.files(model.ends, "f32"), threads=1)
    )
    async with AsyncExitStack() as stack:
        addresses = {}
        for share in drawn.shares:
            welcome = Welcome(VERSION, share.station, 1, "a cpu", "a runtime")
            server = await listen("127.0.0.1", 0, welcome=welcome, accept=Station(share.station).accept)
            stack.push_async_callback(server.close)
            addresses[share.station] = f"127.0.0.1:{server.port}"
        async with Coordinator(model, ends, drawn, addresses, routed=True) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            yield coordinator


@pytest.mark.parametrize("topology", ["chain", "ring", "star"])
@pytest.mark.parametrize("cut", CUTS)
def test_along_routes_as_by_ways(
    cut: str, topology: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, decoder = open_model(tiny("llama")), Decoder.load(tiny("llama"), context=CONTEXT)
    rooms = [Room(f"s{n}", None) for n in range(3)]
    drawn = plan_model(model, rooms, cut=cut, topology=topology, dtype="f32", context=CONTEXT)
    along: dict[bool, int] = {True: 0, False: 0}  # frames that carried a route where they were sent on
    send = Onward.send

    def watched(self: Onward, said: Activation) -> None:
        along[said.route != 0] += 1
        send(self, said)

    monkeypatch.setattr(Onward, "send", watched)

    async def trip() -> None:
        async with joined(model, drawn) as coordinator:
            for how in HOW:
                ran = await (round_the_ring if topology == "ring" else on_mesh)(coordinator, how)
                expected = alone(decoder, how)
                assert ran.token_ids == expected.token_ids
                for here, there in zip(ran.logits, expected.logits):
                    np.testing.assert_array_equal(here, there)

    asyncio.run(trip())
    assert along[True] > 0
    if (cut, topology) != ("layers", "chain"):
        return
    trips = 13 * len(HOW)  # two chunks of a prompt, and eleven tokens
    assert along == {False: trips, True: 2 * trips}, "the first of three stations asks, once a trip"
