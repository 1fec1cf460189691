"""A client of meshes that are silent, end, or say what they should not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from tests.mesh.peers import WELCOME
from tests.wire.words import EXAMPLES
from trisplit.errors import PeerProblem, Problem, RequestProblem
from trisplit.mesh import client as clients
from trisplit.mesh.client import Client, client
from trisplit.mesh.link import Link
from trisplit.mesh.server import listen
from trisplit.mesh.trust import NOBODY
from trisplit.wire.questions import Question

ASKED = EXAMPLES["Question"]
assert isinstance(ASKED, Question)


async def answered(mesh: Client) -> list[object]:
    return [said async for said in mesh.answer(ASKED)]


async def asked_of(
    accept: Callable[[Link], Awaitable[None]], ask: Callable[[Client], Awaitable[object]]
) -> object:
    server = await listen("127.0.0.1", 0, welcome=WELCOME, accept=accept)
    try:
        async with client(f"127.0.0.1:{server.port}", NOBODY) as mesh:
            return await ask(mesh)
    finally:
        await server.close()


def problem_of(
    accept: Callable[[Link], Awaitable[None]], ask: Callable[[Client], Awaitable[object]] = answered
) -> Problem:
    with pytest.raises(Problem) as caught:
        asyncio.run(asked_of(accept, ask))
    return caught.value


def saying(*words: str) -> Callable[[Link], Awaitable[None]]:
    """A mesh that answers with these, whatever it is asked, and then waits."""

    async def accept(link: Link) -> None:
        await link.receive(None)
        for word in words:
            link.send(EXAMPLES[word])
        await link.wait_closed()

    return accept


def test_an_answer_ends_with_its_last_word() -> None:
    said = asyncio.run(asked_of(saying("Waiting", "Token", "Token", "Answered"), answered))
    assert said == [EXAMPLES[word] for word in ("Waiting", "Token", "Token", "Answered")]


def test_what_a_mesh_refuses_is_said_in_its_words() -> None:
    problem = problem_of(saying("Token", "Fault"))
    assert isinstance(problem, RequestProblem)
    assert (problem.what, problem.fix) == ("no room", "use fewer tokens")
    assert problem_of(saying("Fault"), Client.report).what == "no room"


def test_a_mesh_that_ends_in_the_middle() -> None:
    problem = problem_of(saying("Token", "Bye"))
    assert isinstance(problem, PeerProblem)
    assert problem.what.startswith("the mesh at 127.0.0.1:")
    assert problem.what.endswith("has ended")


def test_a_mesh_that_dies_in_the_middle() -> None:
    async def accept(link: Link) -> None:
        await link.receive(None)
        link.transport.abort()
        await link.wait_closed()

    problem = problem_of(accept)
    assert isinstance(problem, PeerProblem)
    assert problem.what.startswith("the mesh at 127.0.0.1:")


def test_one_that_is_slow_is_asked_whether_it_lives_and_one_that_is_dead_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "SILENCE_S", 0.05)

    async def slow(link: Link) -> None:
        await link.receive(None)
        for word in ("Token", "Answered"):
            await asyncio.sleep(0.3)  # its link answers pings meanwhile
            link.send(EXAMPLES[word])
        await link.wait_closed()

    async def dead(link: Link) -> None:
        await link.receive(None)
        link.transport.pause_reading()
        await link.wait_closed()

    assert len(asyncio.run(asked_of(slow, answered))) == 2  # type: ignore[arg-type]
    assert "said nothing for 0.05 s" in problem_of(dead).what


def test_where_nobody_listens_there_is_no_mesh() -> None:
    async def ask(port: int) -> None:
        async with client(f"127.0.0.1:{port}", NOBODY):
            pass

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PeerProblem, match=f"the mesh at 127.0.0.1:{port} cannot be reached"):
        asyncio.run(ask(port))
