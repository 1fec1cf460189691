"""A daemon over a mesh that does as it is told: who waits, who is refused, who left, who is told why."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mesh.peers import COORDINATOR, UPSTREAM, WELCOME, end_of
from trisplit.errors import PeerProblem, Problem, RequestProblem
from trisplit.mesh import daemon as daemons
from trisplit.mesh.calling import connect
from trisplit.mesh.client import Client, client
from trisplit.mesh.daemon import About, Daemon
from trisplit.mesh.facts import StationFacts
from trisplit.mesh.link import Link
from trisplit.mesh.server import Server, listen
from trisplit.mesh.trust import NOBODY
from trisplit.models.generation import Generation, Piece
from trisplit.wire.greeting import VERSION, Hello
from trisplit.wire.questions import Answered, How, Question, Report, Token, Waiting

CONTEXT = 1000
TIME_S = 10.0
GREEDY = How(0.0, 0, 1.0, 0.0, 1.0, 0)


class Letters:
    """A tokenizer of letters."""

    eos_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_chat(self, _: Sequence[dict[str, str]]) -> list[int]:
        raise RequestProblem("this model has no chat template", fix="do not chat")

    def detokenizer(self) -> Any:
        return SimpleNamespace(push=chr, flush=lambda: "")


@dataclass
class Mesh:
    """A coordinator's place: answers each prompt with its letters again and again, as fast as it is let.

    `gate` is awaited before each token; a Problem in `trouble` is raised instead of one.
    """

    sessions: int = 2
    gate: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
    opening: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
    trouble: Exception | None = None
    opened: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    recoveries: tuple[()] = ()
    last_loss: Any = None
    members: Any = field(default_factory=lambda: SimpleNamespace(batched=False))
    plan: Any = field(
        default_factory=lambda: SimpleNamespace(
            cut="layers", topology="ring", legs_per_token=2, spares=("s3",)
        )
    )

    async def open(self) -> int:
        number = len(self.opened)
        self.opened.append(number)
        await self.opening()
        return number

    async def close(self, stream: int) -> None:
        await asyncio.sleep(0)
        self.closed.append(stream)

    async def generate(self, _: int, answer: Generation) -> AsyncIterator[Piece]:
        prompt = answer.request.prompt_ids
        while not answer.finished:
            await self.gate()
            if self.trouble:
                raise self.trouble
            yield answer.accept(prompt[len(answer.token_ids) % len(prompt)])

    async def facts(self, *, silent: bool) -> list[StationFacts]:
        assert silent
        await asyncio.sleep(0)
        how = {"weight_bytes": 1, "kv_bytes": 2, "rss_bytes": 3, "cpu": "a cpu", "runtime": "r"}
        return [StationFacts(name=name, stages="", **how) for name in ("s1", "s2")]

    def own_facts(self) -> StationFacts:
        how = {"weight_bytes": 0, "kv_bytes": 0, "rss_bytes": 3, "cpu": "another", "runtime": "r"}
        return StationFacts(name="coordinator", stages="", **how)


def question(text: str = "abc", max_tokens: int = 5, **more: Any) -> Question:
    facts = {"as_chat": False, "how": GREEDY, "stop": (), "ignore_eos": True} | more
    return Question(text=text, max_tokens=max_tokens, **facts)


@dataclass
class Up:
    """A daemon, and the port where it is asked."""

    daemon: Daemon
    server: Server
    links: list[Link]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def client(self) -> Any:
        return client(self.address, NOBODY)


@asynccontextmanager
async def up(mesh: Mesh, most_waiting: int = 1) -> AsyncIterator[Up]:
    about = About(model="m", dtype="f32", context=CONTEXT, threads=1)
    daemon = Daemon(mesh, Letters(), about, most_waiting=most_waiting)  # type: ignore[arg-type]
    links: list[Link] = []

    async def accept(link: Link) -> None:
        links.append(link)
        await daemon.accept(link)

    server = await listen("127.0.0.1", 0, welcome=WELCOME, accept=accept)
    try:
        yield Up(daemon, server, links)
    finally:
        await daemon.close()
        await server.close()


async def heard(mesh: Client, asked: Question) -> list[Waiting | Token | Answered]:
    return [said async for said in mesh.answer(asked)]


async def text_of(here: Up, asked: Question) -> str:
    """All of an answer, by a client of its own."""
    async with here.client() as mesh:
        return "".join(said.text for said in await heard(mesh, asked) if isinstance(said, Token))


async def refusal(here: Up, asked: Question) -> Problem:
    with pytest.raises(Problem) as caught:
        await text_of(here, asked)
    return caught.value


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIME_S):
        while not condition():
            await asyncio.sleep(0.01)


def run(story: Awaitable[None]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(6 * TIME_S):
            await story

    asyncio.run(with_deadline())


# --- answers --------------------------------------------------------------------------------------


def test_a_client_hears_every_token_and_what_it_took_and_may_ask_again() -> None:
    async def story() -> None:
        async with up(Mesh()) as here, here.client() as mesh:
            *tokens, end = await heard(mesh, question("abc", 5))
            assert tokens == [Token(ord(c), c) for c in "abcab"]
            assert (end.finish_reason, end.prompt_tokens) == ("length", 3)
            assert min(end.waited_ms, end.first_token_ms, end.ms_per_token) >= 0
            *tokens, end = await heard(mesh, question("x", 1))
            assert (tokens, end.ms_per_token) == ([Token(ord("x"), "x")], None)
            stopped = await heard(mesh, question("abc", 50, stop=("ca",)))
            assert ("".join(t.text for t in stopped[:-1]), stopped[-1].finish_reason) == ("ab", "stop")

    run(story())


def test_many_are_answered_at_once_each_with_its_own() -> None:
    async def story() -> None:
        mesh = Mesh(sessions=8)
        async with up(mesh) as here:
            texts = await asyncio.gather(*(text_of(here, question(c, 20)) for c in "abcdefgh"))
            assert texts == [20 * c for c in "abcdefgh"]
            assert sorted(mesh.closed) == mesh.opened == [*range(8)]
            now = await here.daemon.report()
            assert (now.open, now.waiting, now.answered, now.refused, now.dropped) == (0, 0, 8, 0, 0)

    run(story())


# --- refusals and waiting -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (question("a" * CONTEXT), "the prompt has 1,000 tokens and the context is 1,000"),
        (question(""), "the prompt has no tokens"),
        (question(stop=("",)), "a stop string is empty"),
        (question(as_chat=True), "this model has no chat template"),
    ],
)
def test_what_can_never_be_answered_is_refused_with_the_number(asked: Question, what: str) -> None:
    async def story() -> None:
        mesh = Mesh()
        async with up(mesh) as here:
            assert (await refusal(here, asked)).what == what
            now = await here.daemon.report()
            assert (mesh.opened, now.refused, now.last_error) == ([], 1, "")

    run(story())


def test_one_more_than_there_are_sessions_waits_and_one_more_is_refused() -> None:
    async def story() -> None:
        gate = asyncio.Event()
        mesh = Mesh(sessions=2, gate=gate.wait)
        async with up(mesh, most_waiting=2) as here:
            inside = [asyncio.create_task(text_of(here, question("ab"))) for _ in range(2)]
            await until(lambda: len(mesh.opened) == 2)
            async with here.client() as third, here.client() as fourth:
                waiting = [asyncio.create_task(heard(third, question("cd")))]
                await until(lambda: here.daemon._line.waiting == 1)
                waiting.append(asyncio.create_task(heard(fourth, question("ef"))))
                await until(lambda: here.daemon._line.waiting == 2)
                now = await here.daemon.report()
                assert (now.sessions, now.open, now.waiting) == (2, 2, 2)
                refused = await refusal(here, question())
                assert refused.what == "all 2 sessions are taken and 2 questions wait already"
                gate.set()
                first, second = await asyncio.gather(*waiting)
            assert [await task for task in inside] == ["ababa", "ababa"]
            assert [s for s in first if isinstance(s, Waiting)] == [Waiting(0)]
            assert second[0] == Waiting(1)
            assert "".join(s.text for s in second if isinstance(s, Token)) == "efefe"
            assert sorted(mesh.closed) == [0, 1, 2, 3]

    run(story())


# --- clients that leave, do not read, or are none -------------------------------------------------


@pytest.mark.parametrize("place", ["opening", "running", "waiting"])
def test_a_client_that_vanishes_leaves_its_place_to_the_next(place: str) -> None:
    async def story() -> None:
        gate, never = asyncio.Event(), asyncio.Event()
        blocked = {"opening": {"opening": gate.wait}, "running": {"gate": gate.wait}}.get(place, {})
        mesh = Mesh(sessions=1, **({"gate": gate.wait} if place == "waiting" else blocked))
        async with up(mesh) as here:
            tasks = [asyncio.create_task(text_of(here, question("ab")))]
            await until(lambda: mesh.opened)
            if place == "waiting":
                tasks.append(asyncio.create_task(text_of(here, question("cd"))))
                await until(lambda: here.daemon._line.waiting)
            await asyncio.sleep(0)
            vanishing = here.links[-1]
            vanishing.transport.abort()
            await asyncio.gather(tasks[-1], return_exceptions=True)
            if place == "opening":
                assert mesh.closed == [], "what is not open yet cannot be closed"
            gate.set()
            mesh.gate = mesh.opening = lambda: asyncio.sleep(0)
            assert await text_of(here, question("xyz", 4)) == "xyzx"
            await until(lambda: here.daemon._line.inside == 0)
            now = await here.daemon.report()
            assert (now.open, now.waiting, now.dropped, now.last_error) == (0, 0, 1, "")
            assert sorted(mesh.closed) == mesh.opened
            never.set()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(story())


def test_a_client_that_does_not_read_is_dropped_and_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "MOST_UNREAD_BYTES", 2**14)

    async def story() -> None:
        mesh = Mesh(sessions=2)
        async with up(mesh) as here, here.client() as deaf:
            small = (socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf._link.transport.get_extra_info("socket").setsockopt(*small)
            deaf._link.transport.pause_reading()
            await until(lambda: here.links)
            here.links[0].transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, 4096
            )
            long = "é" * 900  # long texts: the sockets of a machine hold much more than one answer
            asked = question("ab", 900, stop=(long,))
            asking = asyncio.create_task(heard(deaf, asked))
            assert await text_of(here, question("xyz", 40)) == ("xyz" * 14)[:40]
            await until(lambda: sorted(mesh.closed) == mesh.opened == [0, 1])
            await until(lambda: not here.links[0].is_open)
            assert "does not read" in (await here.daemon.report()).last_error
            asking.cancel()

    run(story())


@pytest.mark.parametrize("place", ["running", "waiting"])
def test_a_client_whose_host_is_gone_leaves_its_place(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket stays open, and nothing that is sent comes back."""
    monkeypatch.setattr(daemons, "PING_EVERY_S", 0.05)

    async def story() -> None:
        gate = asyncio.Event()
        mesh = Mesh(sessions=1, gate=gate.wait)
        async with up(mesh) as here, here.client() as gone:
            first = asyncio.create_task(text_of(here, question("ab"))) if place == "waiting" else None
            await until(lambda: mesh.opened or not first)
            gone._link.send(question("cd"))
            await until(lambda: here.daemon._line.waiting if first else mesh.opened)
            gone._link.transport.pause_reading()
            await until(lambda: here.daemon._line.waiting + here.daemon._line.inside == bool(first))
            now = await here.daemon.report()
            gate.set()
            assert (now.dropped, now.last_error) == (1, "")
            assert first is None or await first == "ababa", "who answers pings stays"
            assert await text_of(here, question("xyz", 4)) == "xyzx"
            assert sorted(mesh.closed) == mesh.opened

    run(story())


def test_pings_between_questions_confuse_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "PING_EVERY_S", 0.001)

    async def story() -> None:
        async with up(Mesh(gate=lambda: asyncio.sleep(0.0005))) as here, here.client() as mesh:
            for _ in range(50):
                *tokens, _ = await heard(mesh, question("abc", 5))
                assert "".join(token.text for token in tokens) == "abcab"

    run(story())


@pytest.mark.parametrize("hello", [COORDINATOR, UPSTREAM], ids=lambda hello: hello.role)
def test_only_clients_are_answered(hello: Hello) -> None:
    async def story() -> None:
        async with up(Mesh()) as here:
            link = await connect(here.address, hello=hello, deadline_s=TIME_S)
            assert f"a {hello.role} has called a mesh, which only clients ask" in (await end_of(link)).what
            await link.close()

    run(story())


def test_a_client_that_asks_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "IDLE_S", 0.05)

    async def story() -> None:
        async with up(Mesh()) as here:
            hello = Hello(VERSION, "", "client", "idler")
            link = await connect(here.address, hello=hello, deadline_s=TIME_S)
            assert "said nothing for 0.05 s" in (await end_of(link)).what
            await link.close()

    run(story())


# --- the mesh fails, or ends ----------------------------------------------------------------------


def test_what_stops_the_mesh_is_told_to_everybody_affected_and_kept_for_the_report() -> None:
    async def story() -> None:
        mesh = Mesh(trouble=PeerProblem("station s2 hung up", fix="see its output"))
        async with up(mesh) as here:
            problem = await refusal(here, question())
            assert (problem.what, problem.fix) == ("station s2 hung up", "see its output")
            assert (await here.daemon.report()).last_error == "station s2 hung up (see its output)"
            mesh.trouble = None
            assert await text_of(here, question("ab")) == "ababa"

    run(story())


def test_it_is_taken_down_by_a_client_and_all_others_are_told() -> None:
    async def story() -> None:
        gate = asyncio.Event()
        mesh = Mesh(gate=gate.wait)
        async with up(mesh) as here:
            under_way = asyncio.create_task(refusal(here, question()))
            await until(lambda: mesh.opened)
            async with here.client() as late, here.client() as ender:
                ending = asyncio.create_task(ender.end())
                await here.daemon.until_ended()
                with pytest.raises(RequestProblem, match="the mesh is being taken down"):
                    await heard(late, question())
                await here.daemon.close()
                assert (await under_way).what == "the mesh is being taken down"
                assert mesh.closed == [0]
                assert not ending.done()
                await here.server.close()
                await ending

    run(story())


# --- reports --------------------------------------------------------------------------------------


def test_a_report_says_what_the_mesh_is_and_that_kinds_differ() -> None:
    async def story() -> None:
        mesh = Mesh()
        async with up(mesh) as here, here.client() as asking:
            now, again = await asking.report(), await asking.report()
            assert (now.model, now.dtype, now.cut, now.topology) == ("m", "f32", "layers", "ring")
            assert (now.legs_per_token, now.context, now.threads, now.sessions) == (2, CONTEXT, 1, 2)
            assert [(s.name, s.weight_bytes, s.kv_bytes) for s in now.stations[:2]] == [
                ("s1", 1, 2),
                ("s2", 1, 2),
            ]
            assert (now.stations[2].name, now.spares) == ("coordinator", ("s3",))
            assert now.mixed == "", "a coordinator that holds nothing computes nothing"
            assert again.up_s >= now.up_s
            mesh.own_facts = lambda: StationFacts(  # type: ignore[method-assign]
                name="coordinator",
                stages="head",
                weight_bytes=1,
                kv_bytes=0,
                rss_bytes=1,
                cpu="b",
                runtime="r",
            )
            assert (
                await asking.report()
            ).mixed == "processes are of 2 kinds (s1, s2: a cpu, r; coordinator: b, r)"

    run(story())


def test_reports_asked_for_at_once_do_not_meet_at_a_station() -> None:
    async def story() -> None:
        mesh, here_now = Mesh(), 0
        facts = mesh.facts

        async def one_at_a_time(*, silent: bool) -> list[StationFacts]:
            nonlocal here_now
            here_now += 1
            assert here_now == 1
            await asyncio.sleep(0.01)
            here_now -= 1
            return await facts(silent=silent)

        mesh.facts = one_at_a_time  # type: ignore[method-assign]
        async with up(mesh) as here:

            async def reported() -> None:
                async with here.client() as asking:
                    asking._link.send(Report())
                    await asking._next()

            await asyncio.gather(*(reported() for _ in range(4)))

    run(story())
