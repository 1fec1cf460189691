"""A station that was lost and comes back while sequences are open: a member like the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.test_failover import PATIENCE_S, Fleet, answered, fleet, truth
from tests.flows.test_token_trip import HOW, asked

Tiny = Callable[[str], Path]


async def returned(here: Fleet, name: str) -> None:
    """Waits until it is a spare again."""
    async with asyncio.timeout(PATIENCE_S):
        while name not in here.mesh.plan.spares:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("topology", ["chain", "ring"])
def test_one_that_is_back_takes_over_sequences_from_before_and_after(topology: str, tiny: Tiny) -> None:
    path = tiny("llama")

    async def story() -> None:
        async with fleet(path, "layers", topology, sessions=3) as here:
            old = asked(HOW[0])
            stream = await here.mesh.open()
            running = here.mesh.generate(stream, old)
            for _ in range(2):
                await anext(running)
            here.kill("s2")
            await here.recovered(1)
            async with here.again("s2"):
                await returned(here, "s2")
                assert await answered(here, 1) == truth(path)[1], "asked as soon as it is back"
                await anext(running)
                here.kill("s1")
                await here.recovered(2)
                async for _ in running:
                    pass
                await here.mesh.close(stream)
                assert old.token_ids == truth(path)[0]
                assert await answered(here, 1) == truth(path)[1]
                assert "s2" in here.mesh.plan.homes

    asyncio.run(story())
