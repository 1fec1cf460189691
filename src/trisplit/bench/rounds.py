"""Processes that each hold one engine, started one by one and asked in turn: never two at work at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from trisplit.bench.measure import Spread
from trisplit.bench.peers import Answer, Order
from trisplit.bench.posts import Post
from trisplit.bench.progress import shown
from trisplit.errors import PeerProblem

LOAD_DEADLINE_S: Final = 1800.0  # the first load converts the weights
ANSWER_DEADLINE_S: Final = 600.0
END_DEADLINE_S: Final = 3.0

# Threads of an engine spin for a while after their last token: the next engine waits until they sleep.
SETTLE_S: Final = 0.2

# Read by OpenBLAS, MKL and OpenMP when they load, so it must stand before the process begins.
_THREAD_LIMITS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
_MAX_LINE_BYTES: Final = 1 << 24


class Worker:
    """A started process that has loaded its engine and waits for orders; `ready` is what it said then."""

    def __init__(self, post: Post, process: asyncio.subprocess.Process) -> None:
        self.post, self.ready = post, Answer()
        self._process = process

    async def ask(self, order: Order) -> Answer:
        """The answer to an order; PeerProblem when it does not come."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # hear will say that it has ended
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            await self._process.stdin.drain()
        return await self.hear(ANSWER_DEADLINE_S)

    async def hear(self, deadline_s: float) -> Answer:
        """What it says next; the problem it says instead is raised."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), deadline_s)
            said: Answer = json.loads(line)
        except TimeoutError:
            what = f"{self.post.name} said nothing for {deadline_s:.0f} s"
            raise PeerProblem(what, fix="see what else runs on this machine") from None
        except ValueError:
            what = f"the process of {self.post.name} ended"
            raise PeerProblem(what, fix="what it printed on standard error says why") from None
        if "problem" in said:
            raise PeerProblem(f"{self.post.name}: {said['problem']}", fix=said["fix"])
        return said


@asynccontextmanager
async def started(posts: Sequence[Post]) -> AsyncIterator[list[Worker]]:
    """Starts the processes one by one, each once the one before has loaded; ends them whatever happens.

    They watch their standard input and end with this process, too. Ctrl-C is ours to handle.
    """
    processes: list[asyncio.subprocess.Process] = []
    workers: list[Worker] = []
    try:
        for post in shown(posts, "loading"):
            processes.append(await _start(post))
            workers.append(Worker(post, processes[-1]))
            workers[-1].ready = await workers[-1].hear(LOAD_DEADLINE_S)
        yield workers
    finally:
        await _end(processes)


@asynccontextmanager
async def running(post: Post) -> AsyncIterator[Worker]:
    """One such process beside whatever else runs, with no bar; ends it whatever happens."""
    process = await _start(post)
    try:
        worker = Worker(post, process)
        worker.ready = await worker.hear(LOAD_DEADLINE_S)
        yield worker
    finally:
        await _end([process])


async def _start(post: Post) -> asyncio.subprocess.Process:
    limits = dict.fromkeys(_THREAD_LIMITS, str(post.threads))
    return await asyncio.create_subprocess_exec(
        *post.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **limits, **post.environment},
        start_new_session=True,
        limit=_MAX_LINE_BYTES,
    )


async def _end(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    for process in processes:
        try:
            await asyncio.wait_for(process.communicate(), END_DEADLINE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


Turn = tuple[Worker, Order]


async def alternate(turns: Sequence[Turn], rounds: int) -> list[list[Answer]]:
    """Takes the turns in order, `rounds` times over; the answers of each turn.

    Whatever slows the machine down for a while slows all of them down alike.
    """
    answers: list[list[Answer]] = [[] for _ in turns]
    for number in shown(range(rounds * len(turns)), "measuring"):
        worker, order = turns[number % len(turns)]
        await asyncio.sleep(SETTLE_S)
        answers[number % len(turns)].append(await worker.ask(order))
    return answers


def spread(answers: Sequence[Answer]) -> Spread:
    """The spread of all times of all rounds."""
    return Spread.of([ms for answer in answers for ms in answer["ms"]])
