"""A process that stays: answers what is kept, tries the rest in nodes started ahead, checks hits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trisplit.cache import ledger
from trisplit.cache.key import Key
from trisplit.cache.store import Store
from trisplit.errors import Problem, RequestProblem
from trisplit.scripts import sealing
from trisplit.scripts.asking import (
    LOCK,
    SOCKET,
    Ask,
    Asked,
    Greeting,
    Line,
    Order,
    Reply,
    Status,
    is_ours,
    place_in,
)
from trisplit.scripts.following import Followed
from trisplit.scripts.held import Held
from trisplit.scripts.pool import Pool
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.recheck import RATE, recheck
from trisplit.scripts.rereading import Reader
from trisplit.scripts.runner import Tried, tried
from trisplit.scripts.script import Script, read_script

IDLE_S = 900.0
LOOKS_EACH_S = 1.0
MOST_RECHECKS = 64

_decode = msgspec.msgpack.Decoder(Asked).decode


@dataclass(slots=True)
class _Counts:
    hits: int = 0
    misses: int = 0
    left_to_others: int = 0
    verified: int = 0
    mismatches: int = 0


@dataclass(frozen=True, slots=True)
class _Recheck:
    key: Key
    script: Script
    arguments: tuple[str, ...]
    command: str
    around: Surroundings
    folder: Path


class Residence:
    """What all connections share: the store, nodes that wait, hits to be run again, counts."""

    def __init__(
        self, store: Store, *, verify_rate: float = RATE, own: tuple[str, Surroundings] | None = None
    ) -> None:
        self.store, self.pool, self.counts = store, Pool(), _Counts()
        self._own, self._followed = own, Followed(store.folder / ledger.FILE)
        self.stopped = threading.Event()
        self.asked_at_s = time.monotonic()
        self._began_s, self._verify_rate = int(time.time()), verify_rate
        self._code = sealing.code_marks()
        self._rechecks: queue.Queue[_Recheck | None] = queue.Queue(MOST_RECHECKS)
        self._checker = threading.Thread(target=self._check, daemon=True)
        self._checker.start()

    def is_up_to_date(self) -> bool:
        """Whether our own code is still what was loaded; if not, nothing may be answered any more."""
        return sealing.code_marks() == self._code

    def status(self) -> Status:
        """Counts since the beginning."""
        counts = self.counts
        return Status(
            pid=os.getpid(),
            began_s=self._began_s,
            hits=counts.hits,
            misses=counts.misses,
            left_to_others=counts.left_to_others,
            verified=counts.verified,
            mismatches=counts.mismatches,
            waiting_nodes=len(self.pool),
        )

    def drawn(self, key: Key | None, script: Script, arguments: tuple[str, ...], greeting: Greeting) -> None:
        """Has one hit in a hundred, or as many as wanted, run again when there is time."""
        if key is not None and random.random() < self._verify_rate:
            around, folder = around_of(greeting), Path(greeting.folder)
            self._put(_Recheck(key, script, arguments, greeting.command, around, folder))

    def draw_of_others(self) -> None:
        """The same of hits that the launcher or another process answered, in our own surroundings."""
        if self._own is None or not self._verify_rate:
            return
        for hit in self._followed.hits():
            if random.random() < self._verify_rate and (words := self._followed.words(hit.key)):
                with contextlib.suppress(Problem):
                    script = read_script(words[0])
                    self._put(_Recheck(Key(hit.key), script, words[1:], *self._own, script.path.parent))

    def _put(self, one: _Recheck) -> None:
        with contextlib.suppress(queue.Full):
            self._rechecks.put_nowait(one)

    def close(self) -> None:
        """Ends nodes that wait, and the check at work when it is done."""
        self.stopped.set()
        self.pool.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._rechecks.get_nowait()
        self._rechecks.put(None)
        self._checker.join()

    def _check(self) -> None:
        while (one := self._rechecks.get()) is not None:
            asked = (one.key, one.script, one.arguments, one.command)
            verdict = recheck(*asked, self.store, one.around, folder=one.folder)
            self.counts.verified += verdict == "verified"
            self.counts.mismatches += verdict == "mismatch"


def around_of(greeting: Greeting) -> Surroundings:
    """The surroundings a greeting tells of."""
    return Surroundings(
        environment=greeting.environment,
        limits=greeting.limits,
        stdout_is_terminal=greeting.stdout_is_terminal,
        stderr_is_terminal=greeting.stderr_is_terminal,
    )


class Visit:
    """One connection from greeting to end."""

    def __init__(self, residence: Residence, line: Line) -> None:
        self._residence, self._line = residence, line
        self._greeting: Greeting | None = None
        self._held: Held | None = None
        self._looked_s = -LOOKS_EACH_S
        self._reader = Reader()

    def serve(self) -> None:
        """Answers until the other end is gone, says nonsense, or it is time to stop."""
        try:
            while not self._residence.stopped.is_set():
                message = _decode(self._line.receive())
                self._residence.asked_at_s = time.monotonic()
                if isinstance(message, Order):
                    self._order(message)
                elif isinstance(message, Greeting):
                    self._greet(message)
                else:
                    self._give(*self._answer(message))
        except (OSError, msgspec.DecodeError):
            pass
        finally:
            if self._held is not None:
                self._held.put_down()
            self._line.close()

    def _give(self, reply: Reply, tried: Tried | None) -> None:
        try:
            self._line.send(reply)
        finally:
            if tried is not None:
                tried.keep(self._residence.store)
            self._residence.pool.refill()

    def _order(self, order: Order) -> None:
        if order.what == "stop":
            self._residence.stopped.set()
        else:
            self._line.send(self._residence.status())

    def _greet(self, greeting: Greeting) -> None:
        if self._held is not None:
            self._held.put_down()
        self._greeting = greeting
        self._held = Held(self._residence.store, greeting.command, around_of(greeting))
        self._residence.pool.want(greeting.command, self._residence.store)

    def _answer(self, ask: Ask) -> tuple[Reply, Tried | None]:
        """The reply, and what is to be kept once it was given."""
        counts = self._residence.counts
        if self._greeting is None or self._held is None or not self._is_up_to_date():
            why = "this resident answers nobody: it was not greeted, or its code is another by now"
            return Reply(why), None
        new: Tried | None = None
        try:
            script = self._reader.read(ask.path)
            answer = self._held.recall(script, ask.arguments)
            counts.hits += answer is not None
            if answer is not None:
                key = self._held.key_of(script, ask.arguments)
                self._residence.drawn(key, script, ask.arguments, self._greeting)
            elif not ask.hits_only:
                command, store = self._greeting.command, self._residence.store
                around, take = around_of(self._greeting), self._residence.pool.take
                new = tried(script, ask.arguments, command, store, around, take)
                answer = None if new is None else new.answer
                counts.misses += new is not None
        except Problem as problem:
            return Reply(problem.what), None
        if answer is None:
            counts.left_to_others += 1
            return Reply("not kept"), None
        frames = [(frame.fd, frame.data) for frame in answer.frames]
        return Reply(answer.said, answer.exit_code, frames), new

    def _is_up_to_date(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOKS_EACH_S / 10:
            if not self._residence.is_up_to_date():
                self._residence.stopped.set()
                return False
            self._looked_s = now_s
        return True


def reside(
    store: Store,
    *,
    idle_s: float = IDLE_S,
    verify_rate: float = RATE,
    own: tuple[str, Surroundings] | None = None,
) -> None:
    """Answers until it is stopped, nobody asked for `idle_s` seconds, or its own code is another.

    `own`: a node and surroundings to run hits in again that others answered; without, only its own are.
    RequestProblem when there is a resident of this store already.
    """
    with _listening(store) as listener:
        residence = Residence(store, verify_rate=verify_rate, own=own)
        visits: list[tuple[threading.Thread, Line]] = []
        try:
            while not residence.stopped.is_set() and time.monotonic() - residence.asked_at_s < idle_s:
                visits = [one for one in visits if one[0].is_alive()]
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    connection.settimeout(None)
                    line = Line(connection)
                    if not is_ours(connection):
                        line.close()
                        continue
                    thread = threading.Thread(target=Visit(residence, line).serve, daemon=True)
                    thread.start()
                    visits.append((thread, line))
                if not residence.is_up_to_date():
                    break
                residence.draw_of_others()
        finally:
            residence.stopped.set()
            for thread, line in visits:
                line.close()
                thread.join()
            residence.close()


@contextlib.contextmanager
def _listening(store: Store) -> Iterator[socket.socket]:
    """The socket in the store, which is gone afterwards."""
    lock = os.open(store.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RequestProblem(
                "there is a resident already", fix="stop it first: trisplit resident stop"
            ) from error
        path = store.folder / SOCKET
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with place_in(store, SOCKET) as address:
                listener.bind(address)
            path.chmod(0o600)
            listener.settimeout(LOOKS_EACH_S)
            listener.listen(64)
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)
    finally:
        os.close(lock)
