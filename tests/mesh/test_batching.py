"""The gate of batched sends: its verdict, and meshes that are up, which are measured by it and set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mesh.peers import WELCOME
from tests.mesh.test_daemon import CONTEXT, Mesh, heard, question, run, until, up
from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh import batching
from trisplit.mesh.batching import Trial, prompts_of
from trisplit.mesh.client import Client, client
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.daemon import About, Daemon
from trisplit.mesh.room import Room
from trisplit.mesh.server import listen
from trisplit.mesh.trust import NOBODY
from trisplit.models.model import open_model
from trisplit.wire.questions import Judge, Judged, Judging, Token

SHORT = Judge(sessions=1, tokens=4, rounds=2)


@pytest.mark.parametrize(
    ("batched_ms", "equal", "on", "reason"),
    [
        (9.6, True, True, "ON: 9.60 ms a token batched, 10.00 ms not: 0.960, at most 0.965"),
        (9.66, True, False, "OFF: 9.66 ms a token batched, 10.00 ms not: 0.966, over 0.965"),
        (12.0, True, False, "OFF: 12.00 ms a token batched, 10.00 ms not: 1.200, over 0.965"),
        (5.0, False, False, "OFF: tokens were not the same"),
    ],
)
def test_the_verdict_goes_by_the_medians(batched_ms: float, equal: bool, on: bool, reason: str) -> None:
    times = {False: [10.0, 9.0, 11.0], True: [batched_ms, 0.0, 99.0]}
    trial = Trial(cut="layers", topology="chain", stations=2, sessions=1, tokens=4, rounds=1)
    found = trial.verdict(times, tokens_equal=equal)
    assert (found.on, found.reason) == (on, reason)
    assert (found.batched_ms, found.unbatched_ms, found.limit) == (batched_ms, 10.0, 0.965)


def test_prompts_are_all_as_long_and_differ() -> None:
    assert prompts_of([1, 2, 3], 4) == [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]


# --- a mesh that does as it is told ---------------------------------------------------------------


@dataclass
class Timed(Mesh):
    """A mesh whose tokens take as long as it is said, by a clock that only they move."""

    ms: dict[bool, float] = field(default_factory=lambda: {False: 10.0, True: 9.0})
    now_ms: float = 0.0
    tuned: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate = self._take_time

    async def _take_time(self) -> None:
        await asyncio.sleep(0)
        self.now_ms += self.ms[self.members.batched]

    async def tune(self, *, batched: bool) -> None:
        await asyncio.sleep(0)
        self.tuned.append(batched)
        self.members.batched = batched


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Timed]:
    """Makes such a mesh, and has the gate read its clock."""

    def made(**how: Any) -> Timed:
        mesh = Timed(plan=SimpleNamespace(**PLAN), **how)
        monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: mesh.now_ms / 1e3))
        return mesh

    return made


PLAN = {"cut": "layers", "topology": "ring", "legs_per_token": 2, "spares": (), "shares": (None, None)}


async def judged(mesh: Client, order: Judge = SHORT) -> list[Judging | Judged]:
    return [said async for said in mesh.judge(order)]


@pytest.mark.parametrize(("batched_ms", "on"), [(9.0, True), (9.7, False), (20.0, False)])
@pytest.mark.parametrize("before", [False, True])
def test_a_mesh_sends_by_the_verdict(
    timed: Callable[..., Timed], batched_ms: float, on: bool, before: bool
) -> None:
    async def story() -> None:
        mesh = timed(ms={False: 10.0, True: batched_ms})
        mesh.members.batched = before
        async with up(mesh) as here, here.client() as asking:
            assert (await asking.report()).batch is None
            *steps, last = await judged(asking)
            assert steps == [Judging(n, 4) for n in (1, 2, 3, 4)]
            assert isinstance(last, Judged)
            figures = last.batch.unbatched_ms, last.batch.batched_ms, last.batch.on, last.batch.stations
            assert figures == (pytest.approx(10.0), pytest.approx(batched_ms), on, 2)
            assert mesh.tuned == [False, True, True, False, on]
            report = await asking.report()
            assert (report.batched, report.batch) == (on, last.batch)
            assert [*mesh.opened] == mesh.closed

    run(story())


def test_one_whose_tokens_change_stays_off(timed: Callable[..., Timed]) -> None:
    async def story() -> None:
        mesh = timed()
        told = mesh.generate

        async def other(stream: int, answer: Any) -> Any:
            async for piece in told(stream, answer):
                if mesh.members.batched:
                    answer.token_ids[-1] += 1
                yield piece

        mesh.generate = other  # type: ignore[method-assign]
        async with up(mesh) as here, here.client() as asking:
            last = (await judged(asking))[-1]
            assert isinstance(last, Judged)
            assert (last.batch.tokens_equal, last.batch.on, mesh.members.batched) == (False, False, False)

    run(story())


def test_who_leaves_in_the_middle_leaves_it_as_it_was(timed: Callable[..., Timed]) -> None:
    async def story() -> None:
        mesh = timed()
        async with up(mesh) as here:
            async with here.client() as asking:
                steps = asking.judge(Judge(1, 4, 1000))
                async with aclosing(steps):
                    assert await anext(steps) == Judging(1, 2000)
            await until(lambda: here.daemon._line.inside == 0)
            assert (mesh.members.batched, mesh.tuned[-1]) == (False, False)
            assert [*mesh.opened] == mesh.closed
            async with here.client() as asking:
                assert (await asking.report()).batch is None
                assert isinstance((await judged(asking))[-1], Judged), "it can be measured again"

    run(story())


def test_a_mesh_that_fails_is_left_as_it_was(timed: Callable[..., Timed]) -> None:
    async def story() -> None:
        mesh = timed(trouble=PeerProblem("station s1 was lost", fix="see why"))
        async with up(mesh) as here, here.client() as asking:
            with pytest.raises(RequestProblem, match="station s1 was lost"):
                await judged(asking)
            assert (mesh.members.batched, [*mesh.opened]) == (False, mesh.closed)

    run(story())


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Judge(3, 4, 1), "3 sessions at once, and the mesh has 2"),
        (Judge(1, CONTEXT, 1), f"tokens of prompt and answer, and the mesh has room for {CONTEXT:,}"),
    ],
)
def test_what_there_is_no_room_for_is_refused(timed: Callable[..., Timed], order: Judge, why: str) -> None:
    async def story() -> None:
        async with up(timed()) as here, here.client() as asking:
            with pytest.raises(RequestProblem, match=why):
                await judged(asking, order)

    run(story())


def test_it_waits_its_turn_and_two_at_once_are_one_too_many(timed: Callable[..., Timed]) -> None:
    async def story() -> None:
        mesh, gate = timed(), asyncio.Event()
        mesh.gate = gate.wait
        async with (
            up(mesh, most_waiting=9) as here,
            here.client() as first,
            here.client() as second,
            here.client() as third,
        ):
            answering = asyncio.create_task(heard(first, question()))
            await until(lambda: here.daemon._line.inside == 1)
            judging = asyncio.create_task(judged(second, Judge(2, 4, 1)))
            await until(lambda: here.daemon._line.waiting == 1)
            with pytest.raises(RequestProblem, match="the mesh is being measured already"):
                await judged(third)
            assert mesh.tuned == []
            gate.set()
            assert isinstance((await answering)[-2], Token)
            last = (await judging)[-1]
            assert isinstance(last, Judged)
            assert not last.batch.on, "its clock stood still"

    run(story())


# --- real stations --------------------------------------------------------------------------------


def test_stations_switch_under_an_answer_and_no_token_changes(
    tiny: Callable[[str], Path], stations: dict[str, str]
) -> None:
    """A long answer runs while the gate switches batches on and off under it."""
    model = open_model(tiny("llama"))
    names = ["s1", "s2"]
    plan = plan_model(model, [Room(name, None) for name in names], cut="layers", topology="ring", **SIZES)
    about = About(model="tiny", dtype="f32", context=SIZES["context"], threads=1)

    async def story() -> None:
        async with Coordinator(model, None, plan, {n: stations[n] for n in names}, sessions=3) as mesh:
            async for _ in mesh.load("f32", context=SIZES["context"], threads=1):
                pass
            daemon = Daemon(mesh, model.tokenizer(), about)
            server = await listen("127.0.0.1", 0, welcome=WELCOME, accept=daemon.accept)
            address = f"127.0.0.1:{server.port}"
            async with client(address, NOBODY) as asking, client(address, NOBODY) as judge:
                alone = await heard(asking, question("tides", 200))
                beside, said = await asyncio.gather(
                    heard(asking, question("tides", 200)), judged(judge, Judge(2, 5, 3))
                )
                assert ids(beside) == ids(alone)
                assert len(ids(alone)) == 200
                last = said[-1]
                assert isinstance(last, Judged)
                assert last.batch.tokens_equal
                assert mesh.members.batched == last.batch.on == (last.batch.ratio <= 0.965)
                assert all(peer.link.batched == last.batch.on for peer in mesh.members.peers)
                assert (await judge.report()).batched == last.batch.on
            await daemon.close()
            await server.close()

    asyncio.run(story())


SIZES: Any = {"dtype": "f32", "context": 256}


def ids(said: list[Any]) -> list[int]:
    return [word.token_id for word in said if isinstance(word, Token)]
