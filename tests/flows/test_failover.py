"""A station dies under an answer: others take what it held, and the answer is the one without the death."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.flows.test_token_trip import CONTEXT, HOW, PROMPT, TOKENS, alone, asked
from trisplit.errors import Problem
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.fleet import local_stations
from trisplit.mesh.room import Room
from trisplit.mesh.streams import Stream
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
NAMES = ("s1", "s2", "s3")
PATIENCE_S = 120.0  # with a machine that does much else


class Fleet:
    """A mesh with a spare, and the means to kill."""

    def __init__(self, mesh: Coordinator, addresses: dict[str, str], pids: dict[str, int]) -> None:
        self.mesh, self.addresses, self._pids = mesh, addresses, pids

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self._pids[name], how)

    async def recovered(self, times: int) -> None:
        """Waits until this many losses are made good."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.mesh.recoveries) < times:
                await asyncio.sleep(0.05)

    async def forward(self, stream: Stream, ids: Sequence[int], position: int) -> np.ndarray:
        """Logits that stay."""
        return (await self.mesh.forward(stream, ids, position)).copy()

    @asynccontextmanager
    async def again(self, name: str) -> AsyncIterator[None]:
        """A station that died is started again at its address."""
        host_port = self.addresses[name]
        command = (sys.executable, "-m", "trisplit", "station", "--listen", host_port, "--name", name)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            await process.wait()


@asynccontextmanager
async def fleet(
    path: Path,
    cut: str,
    topology: str,
    *,
    spares: Sequence[str] = ("s4",),
    sessions: int = 1,
    silence_s: float = 20.0,
    limits: Mapping[str, int | None] | None = None,
) -> AsyncIterator[Fleet]:
    model = open_model(path)
    ends = None if topology == "ring" else Ends(model.config, *model.files(model.ends, "f32"), threads=1)
    drawn = plan_model(
        model, [Room(n, None) for n in NAMES], cut=cut, topology=topology, dtype="f32", context=CONTEXT
    )
    drawn = replace(drawn, spares=tuple(spares))
    async with local_stations([*NAMES, *spares]) as addresses:
        mesh = Coordinator(
            model,
            ends,
            drawn,
            addresses,
            sessions=sessions,
            silence_s=silence_s,
            limits=limits,
            recovers=True,
        )
        async with mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass
            pids = {p.name: p.link.welcome.pid for p in mesh._members.peers if p.link.welcome}
            yield Fleet(mesh, addresses, pids)


async def until_killed(fleet: Fleet, stream: Stream, answer: Generation) -> None:
    """An answer that loses its second station after three tokens."""
    async for _ in fleet.mesh.generate(stream, answer):
        if len(answer.token_ids) == 3:
            fleet.kill("s2")


async def answered(
    fleet: Fleet, how: int, *, kill: str = "", at: int = -1, by: signal.Signals = signal.SIGKILL
) -> list[int]:
    """The tokens of an answer during which a station is killed after `at` tokens."""
    answer = asked(HOW[how])
    stream = await fleet.mesh.open()
    count = 0
    if at == 0:
        fleet.kill(kill, by)
    async for _ in fleet.mesh.generate(stream, answer):
        count += 1
        if count == at:
            fleet.kill(kill, by)
    await fleet.mesh.close(stream)
    return answer.token_ids


async def opened(fleet: Fleet) -> Stream:
    """A sequence, as soon as one can be opened again."""
    while True:
        try:
            return await fleet.mesh.open()
        except Problem:
            await asyncio.sleep(0.05)


KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT


def truth(path: Path) -> list[list[int]]:
    return [alone(Decoder.load(path, context=CONTEXT), how).token_ids for how in HOW]


# Every cut in every topology, every station, and each time it may be, in pairs.
CASES = [
    ("layers", "chain", "s1", 0, KILL),
    ("thirds", "chain", "s3", 3, KILL),
    ("recut", "chain", "s2", TOKENS // 2, STOP),
    ("layers", "ring", "s3", TOKENS - 1, KILL),
    ("thirds", "ring", "s2", TOKENS // 2, KILL),
    ("recut", "ring", "s1", 1, KILL),
    ("layers", "star", "s2", TOKENS // 2, KILL),
    ("thirds", "star", "s1", 2, KILL),
    ("recut", "star", "s3", 4, KILL),
]
MORE = [
    ("layers", "chain", "s2", TOKENS // 2, STOP),
    ("layers", "chain", "s3", TOKENS - 1, KILL),
    ("thirds", "ring", "s1", 0, STOP),
    ("thirds", "ring", "s3", TOKENS - 1, KILL),
    ("recut", "ring", "s2", 1, KILL),
    ("layers", "ring", "s1", TOKENS // 2, KILL),
    ("layers", "ring", "s3", TOKENS // 2, KILL),
    ("recut", "chain", "s1", TOKENS // 2, KILL),
]


@pytest.mark.parametrize(
    ("cut", "topology", "kill", "at", "by"),
    [*CASES, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)],
)
def test_an_answer_survives_a_station(
    cut: str, topology: str, kill: str, at: int, by: signal.Signals, tiny: Tiny
) -> None:
    expected = truth(tiny("llama"))

    async def trip() -> None:
        silence_s = 3.0 if by == STOP else 20.0
        async with fleet(tiny("llama"), cut, topology, silence_s=silence_s) as here:
            assert await answered(here, 1, kill=kill, at=at, by=by) == expected[1]
            await here.recovered(1)
            (done,) = here.mesh.recoveries
            assert (done.lost, done.takers) == ((kill,), ("s4",))
            assert await answered(here, 0) == expected[0]  # and the mesh is as good as before

    asyncio.run(trip())


@pytest.mark.parametrize(("cut", "topology"), [("layers", "chain"), ("thirds", "ring")])
def test_a_second_death_and_no_spare_left(cut: str, topology: str, tiny: Tiny) -> None:
    """The taker dies too; then whoever has room holds what it held, and plays it again from the new logs."""
    expected = truth(tiny("llama"))

    async def trip() -> None:
        async with fleet(tiny("llama"), cut, topology) as here:
            answer, stream = asked(HOW[1]), await here.mesh.open()
            async for _ in here.mesh.generate(stream, answer):
                if len(answer.token_ids) == 3:
                    here.kill("s2")
                if len(answer.token_ids) == 7:
                    await here.recovered(1)
                    here.kill("s4")
            await here.recovered(2)
            assert answer.token_ids == expected[1]
            assert [done.lost for done in here.mesh.recoveries] == [("s2",), ("s4",)]
            (taker,) = here.mesh.recoveries[1].takers
            assert taker in ("s1", "s3")

    asyncio.run(trip())


def test_several_sequences_survive_and_a_chat_goes_on(tiny: Tiny) -> None:
    """A conversation has rewound before the death; its past is played again with what it overwrote."""
    model = tiny("llama")
    decoder = Decoder.load(model, context=CONTEXT)

    async def trip() -> None:
        async with fleet(model, "thirds", "chain", sessions=3) as here:
            streams = [await here.mesh.open() for _ in range(3)]
            turns = [(PROMPT[:50], 0), ((9, 8, 7, 6), 30), ((5,), 34), ((4, 3), 33)]
            for turn, (ids, position) in enumerate(turns):
                if turn == 3:
                    here.kill("s3")
                logits = await asyncio.gather(*(here.forward(s, ids, position) for s in streams))
                expected = decoder.forward(ids, position)
                for each in logits:
                    np.testing.assert_array_equal(each, expected, err_msg=f"turn {turn}")
            for stream in streams:
                await here.mesh.close(stream)

    asyncio.run(trip())


def test_without_room_every_answer_ends_with_the_reason_and_a_return_mends_the_mesh(tiny: Tiny) -> None:
    expected = truth(tiny("llama"))

    async def trip() -> None:
        async with fleet(tiny("llama"), "layers", "chain", spares=(), limits=dict.fromkeys(NAMES, 0)) as here:
            answer, stream = asked(HOW[1]), await here.mesh.open()
            with pytest.raises(
                Problem, match=r"station s2 is lost, and layer 2 need .* where others have 0 B left"
            ):
                await until_killed(here, stream, answer)
            with pytest.raises(Problem, match="station s2 is lost"):
                await here.mesh.open()
            async with here.again("s2"):
                async with asyncio.timeout(PATIENCE_S):
                    back = await opened(here)
                answer = asked(HOW[0])
                async for _ in here.mesh.generate(back, answer):
                    pass
                assert answer.token_ids == expected[0]

    asyncio.run(trip())
