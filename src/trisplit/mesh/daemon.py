"""A mesh as its clients see it: questions answered many at once, reports, and an end in order."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from msgspec import structs

from trisplit.errors import PeerProblem, Problem, RequestProblem
from trisplit.mesh.batching import BatchGate
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.drafting import DraftedAnswer, Drafting, Gain, usual_ms
from trisplit.mesh.facts import mixed
from trisplit.mesh.line import Line
from trisplit.mesh.link import Link
from trisplit.mesh.listening import MOST_MISSED, Pulse
from trisplit.mesh.streams import Stream
from trisplit.models.generation import Generation, Request
from trisplit.models.sampling import Sampling
from trisplit.models.tokenizer import Tokenizer
from trisplit.models.wish import Wish
from trisplit.wire.frame import SAME_VERSION
from trisplit.wire.messages import Bye, Fault, Pong
from trisplit.wire.questions import (
    Answered,
    BatchReport,
    DraftReport,
    End,
    Judge,
    Judged,
    Judging,
    Question,
    Report,
    Reported,
    StationReport,
    Token,
    Waiting,
)

T = TypeVar("T")

MOST_UNREAD_BYTES: Final = 256 * 2**10  # of one client, beside what the kernels hold for it
IDLE_S: Final = 60.0  # a client that has connected and asks nothing
PING_EVERY_S: Final = 1.0  # one that waits for its answer; it is given up when it misses a few
MOST_WAITING: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a mesh is, beside its plan."""

    model: str
    dtype: str
    context: int
    threads: int


class Daemon:
    """Answers the clients of one mesh. Each has tasks of its own; what one does holds up no other."""

    def __init__(
        self,
        coordinator: Coordinator,
        tokenizer: Tokenizer,
        about: About,
        *,
        most_waiting: int = MOST_WAITING,
        drafting: Drafting | None = None,
    ) -> None:
        """`drafting` says how answers are drafted, if they are."""
        self._drafting = drafting
        self._coordinator, self._tokenizer, self._about = coordinator, tokenizer, about
        self._line = Line(coordinator.sessions, most_waiting)
        self._gate = BatchGate(coordinator, tokenizer, about.context, self._line, self._stream)
        self._answering: set[asyncio.Task[Any]] = set()
        self._asking = asyncio.Lock()  # a station answers one question of a kind at a time
        self._ended = asyncio.Event()
        self._began_s = time.monotonic()
        self._answered = self._refused = self._dropped = 0
        self._last_error, self._last_loss = "", coordinator.last_loss

    async def accept(self, link: Link) -> None:
        """Serves one client until it leaves; a Problem that is raised is to be its last word."""
        if link.hello is not None and link.hello.role != "client":
            what = f"a {link.hello.role} has called a mesh, which only clients ask"
            raise PeerProblem(what, fix="give --stations the addresses that `trisplit station` has printed")
        pulse = Pulse(link)
        while True:
            match await link.receive(IDLE_S):
                case Question() as question:
                    link.send(await self._heard_out(link, pulse, self._answer(link, question)))
                case Pong() as pong:
                    pulse.hear(pong)
                case Report():
                    link.send(await self.report())
                case Judge() as order:
                    link.send(await self._heard_out(link, pulse, self._judge(link, order)))
                case End():
                    self.end()
                    await link.wait_closed()
                case Bye() | Fault():
                    pass  # the next wait says why the link has ended
                case said:
                    what = f"it said {type(said).__name__}, which no mesh answers"
                    raise PeerProblem(what, fix=SAME_VERSION)

    # --- the end ---

    def end(self) -> None:
        """No question is taken from here on; `until_ended` returns."""
        self._ended.set()

    async def until_ended(self) -> None:
        """Returns when a client has said End, or `end` was called."""
        await self._ended.wait()

    async def close(self) -> None:
        """Gives up the answers under way; their clients are told why."""
        self._ended.set()
        for answering in self._answering:
            answering.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    # --- questions ---

    async def _heard_out(self, link: Link, pulse: Pulse, answer: Coroutine[Any, Any, T]) -> T:
        """Answers a client, for as long as it is there to hear it; returns the last word."""
        if self._ended.is_set():
            answer.close()
            raise _going_down()
        answering = asyncio.create_task(answer)
        leaving = asyncio.create_task(pulse.stops(PING_EVERY_S))
        self._answering.add(answering)
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_gone = leaving.done()
            leaving.cancel()
            answering.cancel()  # that is, if it is not done
            await asyncio.wait({answering})
            self._answering.discard(answering)
        if is_gone or not link.is_open:
            self._dropped += 1
            await link.close_with(_silent(link))  # unless it has ended already
        with self._noted(link):
            if answering.cancelled():
                raise _going_down() if link.is_open else _gone(link)
            return answering.result()

    async def _answer(self, link: Link, question: Question) -> Answered:
        """Waits for a session, then sends every token as it comes."""
        asked_s = time.monotonic()
        request = await asyncio.to_thread(_request, question, self._tokenizer)  # a long text takes a while
        answer = Generation(request, self._tokenizer.detokenizer(), self._about.context)
        with self._line.join() as turn:
            async for ahead in self._line.ahead_of(turn):
                link.send(Waiting(ahead))
            times_s = [time.monotonic()]
            async with self._stream() as stream:
                drafted = DraftedAnswer(self._coordinator, stream, answer, self._drafting)
                async with aclosing(drafted.pieces()) as pieces:
                    async for piece in pieces:
                        times_s.append(time.monotonic())
                        link.send(Token(piece.token_id, piece.text))
                        _drop_if_deaf(link)
        self._answered += 1
        return _answered(answer, asked_s, times_s, drafted.gain)

    async def _judge(self, link: Link, order: Judge) -> Judged:
        """Measures batched sends for a client, telling it how far it is."""
        async with aclosing(self.judge(order)) as steps:
            async for step in steps:
                link.send(step)
                _drop_if_deaf(link)
        report = self._batch_report()
        assert report is not None
        return Judged(report)

    async def judge(self, order: Judge) -> AsyncGenerator[Judging, None]:
        """Measures batched sends, and leaves them on if they pass; yields how far it is. See `BatchGate`."""
        steps = self._gate.judge(sessions=order.sessions, tokens=order.tokens, rounds=order.rounds)
        async with aclosing(steps) as runs:
            async for done in runs:
                yield Judging(done, 2 * order.rounds)

    def _batch_report(self) -> BatchReport | None:
        return BatchReport(**asdict(self._gate.verdict)) if self._gate.verdict else None

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[Stream]:
        """A stream of its own, closed on every station whatever happens, also while it is being opened."""
        opening = asyncio.ensure_future(self._coordinator.open())
        try:
            yield await asyncio.shield(opening)
        finally:
            with contextlib.suppress(Problem):  # what stops a mesh was told already
                await self._coordinator.close(await opening)

    @contextmanager
    def _noted(self, link: Link) -> Iterator[None]:
        """Counts refusals, and keeps the last error for reports; that a client has left is none."""
        try:
            yield
        except RequestProblem:
            self._refused += 1
            raise
        except Problem as problem:
            if link.is_open:
                self._last_error = str(problem)
            raise

    # --- reports ---

    async def report(self) -> Reported:
        """The mesh, its stations, and what they do now."""
        async with self._asking:
            stations = await self._coordinator.facts(silent=True)
        if self._coordinator.last_loss is not self._last_loss:
            self._last_loss = self._coordinator.last_loss
            self._last_error = str(self._last_loss.problem) if self._last_loss else ""
        stations.append(self._coordinator.own_facts())
        plan, line = self._coordinator.plan, self._line
        return Reported(
            model=self._about.model,
            dtype=self._about.dtype,
            cut=plan.cut,
            topology=plan.topology,
            legs_per_token=plan.legs_per_token,
            context=self._about.context,
            threads=self._about.threads,
            sessions=line.places,
            open=line.inside,
            waiting=line.waiting,
            answered=self._answered,
            refused=self._refused,
            dropped=self._dropped,
            recovered=len(self._coordinator.recoveries),
            up_s=time.monotonic() - self._began_s,
            stations=tuple(StationReport(**asdict(one)) for one in stations),
            spares=tuple(plan.spares),
            mixed=mixed(stations),
            last_error=self._last_error,
            batched=self._coordinator.members.batched,
            batch=self._batch_report(),
        )


def _drop_if_deaf(link: Link) -> None:
    """PeerProblem when a client has left more unread than we keep for it."""
    unread = link.transport.get_write_buffer_size()
    if unread > MOST_UNREAD_BYTES:
        what = f"{link.peer} does not read: {unread:,} bytes wait for it"
        raise PeerProblem(what, fix="read what comes")


def _going_down() -> PeerProblem:
    return PeerProblem("the mesh is being taken down", fix="ask another, or bring it up again")


def _silent(link: Link) -> PeerProblem:
    what = f"{link.peer} has answered no ping for {MOST_MISSED * PING_EVERY_S:g} s"
    return PeerProblem(what, fix="ask again when it runs")


def _gone(link: Link) -> PeerProblem:
    return PeerProblem(f"{link.peer} left before its answer was whole", fix="it need not be told")


def _request(question: Question, tokenizer: Tokenizer) -> Request:
    """The question in tokens; RequestProblem for one that cannot be asked."""
    wish = Wish(
        prompt=question.text,
        as_chat=question.as_chat,
        sampling=Sampling(**structs.asdict(question.how)),
        max_tokens=question.max_tokens,
        stop=question.stop,
        ignore_eos=question.ignore_eos,
    )
    return wish.request(tokenizer)


def _answered(answer: Generation, asked_s: float, times_s: Sequence[float], gain: Gain | None) -> Answered:
    """The last word of an answer that was asked for, begun, and continued at these times."""
    assert answer.finished is not None
    return Answered(
        finish_reason=answer.finished,
        prompt_tokens=len(answer.request.prompt_ids),
        waited_ms=1e3 * (times_s[0] - asked_s),
        first_token_ms=1e3 * (times_s[1] - times_s[0]),
        ms_per_token=usual_ms(times_s[1:], drafted=gain is not None),
        drafts=DraftReport(**asdict(gain)) if gain else None,
    )
