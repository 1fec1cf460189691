"""Stations as child processes of this machine: started, found, and ended without remains."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh.trust import VARIABLE

START_DEADLINE_S: Final = 30.0
END_DEADLINE_S: Final = 2.0

_SEE_STDERR: Final = "what it printed on standard error says why"


@asynccontextmanager
async def local_stations(
    names: Sequence[str],
    *,
    secret: bytes | None = None,
    options: Mapping[str, Sequence[str]] | None = None,
) -> AsyncIterator[dict[str, str]]:
    """Starts a station process for each name; yields name → HOST:PORT; ends them whatever happens.

    With a `secret` the stations ask for it; without one they ask for none, whatever the environment says.
    `options` are more of the command line, by name.

    Each child watches its standard input, which is a pipe held by this process alone, so that it
    ends too when this process is killed. It is in a session of its own: Ctrl-C is ours to handle.
    """
    processes: list[asyncio.subprocess.Process] = []
    try:
        for name in names:
            processes.append(await _start(name, secret, (options or {}).get(name, ())))  # noqa: PERF401  # what has started must be ended
        addresses = await asyncio.gather(*map(_address, processes, names))
        yield dict(zip(names, addresses))
    finally:
        await _end(processes)


async def _start(name: str, secret: bytes | None, options: Sequence[str]) -> asyncio.subprocess.Process:
    environment = {**os.environb, VARIABLE.encode(): secret or b""}
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trisplit", "station", "--listen", "127.0.0.1:0", "--name", name),
            *("--json", "--until-stdin-closes", *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        what = f"station process {name} cannot be started: {error.strerror or error}"
        raise RequestProblem(what, fix="use fewer stations, or raise the limits of `ulimit -a`") from error


async def _address(process: asyncio.subprocess.Process, name: str) -> str:
    assert process.stdout is not None  # asked for with PIPE
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_DEADLINE_S)
    except TimeoutError:
        what = f"station process {name} did not start within {START_DEADLINE_S:.0f} s"
        raise PeerProblem(what, fix=_SEE_STDERR) from None
    if not line:
        what = f"station process {name} ended with code {await process.wait()} before it listened"
        raise PeerProblem(what, fix=_SEE_STDERR)
    return str(json.loads(line)["listening"])


async def _end(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    for process in processes:
        try:
            await asyncio.wait_for(process.wait(), END_DEADLINE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
