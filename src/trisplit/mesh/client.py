"""Asking a mesh that is up: questions, reports, measurements, and that it be taken down."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.link import SEE_ITS_OUTPUT, Link, plain
from trisplit.mesh.trust import Trust
from trisplit.wire.frame import SAME_VERSION
from trisplit.wire.greeting import VERSION, Hello
from trisplit.wire.messages import Bye, Fault, Ping, Pong
from trisplit.wire.questions import (
    Answered,
    End,
    Judge,
    Judged,
    Judging,
    Question,
    Report,
    Reported,
    Token,
    Waiting,
)
from trisplit.wire.session import Said

CONNECT_DEADLINE_S: Final = 10.0
SILENCE_S: Final = 5.0  # then a mesh is asked whether it lives, and has as long to say so
END_DEADLINE_S: Final = 60.0


class Client:
    """A link to a mesh; made by `client`. One thing is asked at a time."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def answer(self, question: Question) -> AsyncIterator[Waiting | Token | Answered]:
        """What comes of a question, as it comes; Answered is the last.

        RequestProblem for what the mesh refuses, in its words; PeerProblem when it is no more.
        """
        self._link.send(question)
        while True:
            said = await self._next()
            if not isinstance(said, (Waiting, Token, Answered)):
                raise self._unexpected(said)
            yield said
            if isinstance(said, Answered):
                return

    async def judge(self, order: Judge) -> AsyncIterator[Judging | Judged]:
        """How far the mesh is in measuring batched sends; Judged is the last, and how it sends from then on.

        Problems as of `answer`.
        """
        self._link.send(order)
        while True:
            said = await self._next()
            if not isinstance(said, (Judging, Judged)):
                raise self._unexpected(said)
            yield said
            if isinstance(said, Judged):
                return

    async def report(self) -> Reported:
        """How the mesh is."""
        self._link.send(Report())
        said = await self._next()
        if not isinstance(said, Reported):
            raise self._unexpected(said)
        return said

    async def end(self) -> None:
        """Takes the mesh down; returns when it has ended what it began."""
        self._link.send(End())
        said = await self._link.receive(END_DEADLINE_S)
        if not isinstance(said, Bye):
            raise self._unexpected(said)
        await self._link.wait_closed()

    async def _next(self) -> Said:
        """The next word; a mesh that is silent for long is asked whether it lives."""
        asked = False
        while True:
            try:
                said = await self._link.receive(SILENCE_S)
            except PeerProblem:
                if asked or not self._link.is_open:
                    raise
                self._link.send(Ping(0))
                asked = True
                continue
            if not isinstance(said, Pong):
                return said
            asked = False

    def _unexpected(self, said: Said) -> PeerProblem | RequestProblem:
        if isinstance(said, Fault):
            return RequestProblem(plain(said.what), fix=plain(said.fix))
        if isinstance(said, Bye):
            return PeerProblem(f"{self._link.peer} has ended", fix=SEE_ITS_OUTPUT)
        return PeerProblem(f"{self._link.peer} said {type(said).__name__} unasked", fix=SAME_VERSION)


@asynccontextmanager
async def client(address: str, trust: Trust) -> AsyncIterator[Client]:
    """A link to the mesh at an address. PeerProblem when there is none."""
    hello = Hello(VERSION, mesh="", role="client", name="client")
    link = await connect(address, hello=hello, deadline_s=CONNECT_DEADLINE_S, trust=trust)
    link.peer = f"the mesh at {address}"
    try:
        yield Client(link)
    finally:
        await link.close()
