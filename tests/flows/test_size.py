"""The size of a large mesh: 60 layers in thirds on 180 stations, several stations a process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.flows.test_token_trip import Silent
from tests.tiny import build
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.room import Room
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling

LAYERS, PROCESSES, CONTEXT, TOKENS = 60, 3, 32, 6
STATIONS = 3 * LAYERS
PROMPT = tuple(range(3, 12))


@pytest.fixture(scope="module")
def many(test_cache: Path) -> Iterator[dict[str, str]]:
    """180 stations, 60 in each of three processes: name → HOST:PORT."""
    command = [sys.executable, "-m", "trisplit", "station", "--json", "--until-stdin-closes", "--count"]
    processes = [
        subprocess.Popen(
            [*command, str(STATIONS // PROCESSES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TRISPLIT_CACHE": str(test_cache)},
        )
        for _ in range(PROCESSES)
    ]
    try:
        # Taken in turn, so that neighbours are never of one process.
        lines = [p.stdout.readline() for _ in range(STATIONS // PROCESSES) for p in processes if p.stdout]
        yield {f"s{i}": json.loads(line)["listening"] for i, line in enumerate(lines, 1)}
    finally:
        for process in processes:
            process.communicate(timeout=120)


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A narrow model of 60 layers."""
    narrow = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    return build("llama", tmp_path_factory.mktemp("tall") / "model", layers=LAYERS, **narrow)


@pytest.mark.parametrize(
    ("topology", "legs"), [pytest.param("chain", 181, marks=pytest.mark.slow), ("ring", 180)]
)
def test_180_stations_are_one_decoder(topology: str, legs: int, many: dict[str, str], tall: Path) -> None:
    model, decoder = open_model(tall), Decoder.load(tall, context=CONTEXT)
    rooms = [Room(name, None) for name in many]
    drawn = plan_model(model, rooms, cut="thirds", topology=topology, dtype="f32", context=CONTEXT)
    assert (len(drawn.shares), drawn.legs_per_token) == (STATIONS, legs)
    ends = None if topology == "ring" else Ends(model.config, *model.files(model.ends, "f32"), threads=1)
    request = Request(prompt_ids=PROMPT, sampling=Sampling(), max_tokens=TOKENS, ignore_eos=True)

    async def trip() -> list[int]:
        answer = Generation(request, Silent(), CONTEXT)
        async with Coordinator(model, ends, drawn, many) as coordinator:
            async for _ in coordinator.load("f32", context=CONTEXT, threads=1):
                pass
            stream = await coordinator.open()
            if ends is not None:
                here = await coordinator.forward(stream, PROMPT, 0)
                np.testing.assert_array_equal(here, decoder.forward(PROMPT, 0))
            async for _ in coordinator.generate(stream, answer):
                pass
            await coordinator.close(stream)
        return answer.token_ids

    truth = Generation(request, Silent(), CONTEXT)
    for _ in decoder.generate(truth):
        pass
    assert asyncio.run(trip()) == truth.token_ids
