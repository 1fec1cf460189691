"""A resident of a bench's own: started in a folder, asked over one connection, and stopped."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.cache.store import FOLDER, Store, open_store
from trisplit.errors import RequestProblem
from trisplit.scripts.asking import Resident, find_resident
from trisplit.scripts.spawned import Spawned

START_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """A resident that runs, the store it answers from, and its process."""

    resident: Resident
    store: Store
    pid: int

    def asked(self, script: Path) -> Spawned:
        """One question and its answer over the open connection; processor time is ours and the resident's.

        A node that runs a script which is not kept is not in it.

        RequestProblem when it leaves the script to others.
        """
        clocks = (time.CLOCK_PROCESS_CPUTIME_ID, _clock_of(self.pid))
        before_ns = sum(map(time.clock_gettime_ns, clocks))
        began_ns = time.perf_counter_ns()
        try:
            answer = self.resident.ask(str(script))
        except OSError as error:
            what = "the resident of the bench is gone, as when its code is changed on disk"
            raise RequestProblem(what, fix="leave trisplit as it is meanwhile") from error
        wall_ms = (time.perf_counter_ns() - began_ns) / 1e6
        cpu_ms = (sum(map(time.clock_gettime_ns, clocks)) - before_ns) / 1e6
        if answer is None:
            raise RequestProblem(f"the resident does not answer {script.name}", fix="try again")
        stdout = b"".join(frame.data for frame in answer.frames if frame.fd == 1)
        return Spawned(wall_ms=wall_ms, cpu_ms=cpu_ms, exit_code=answer.exit_code, stdout=stdout, stderr=b"")


@contextmanager
def living_in(folder: Path, environment: Mapping[str, str]) -> Iterator[Residence]:
    """A resident with a store in `folder`, which is made; it checks no hits meanwhile. RequestProblem."""
    folder.mkdir()
    words = [sys.executable, "-m", "trisplit", "resident", "serve", "--verify-rate", "0"]
    given = {**environment, "TRISPLIT_CACHE": str(folder)}
    nothing = subprocess.DEVNULL
    with (
        open_store(folder / FOLDER) as store,
        subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, env=given) as process,
    ):
        try:
            with _found(store, process) as resident:
                yield Residence(resident=resident, store=store, pid=process.pid)
                resident.stop()
            with suppress(subprocess.TimeoutExpired):
                process.wait(START_WITHIN_S)
        finally:
            process.terminate()


def _found(store: Store, process: subprocess.Popen[bytes]) -> Resident:
    until_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until_s and process.poll() is None:
        resident = find_resident(store)
        if resident is not None:
            return resident
        time.sleep(0.02)
    raise RequestProblem("no resident could be started for the bench", fix="try: trisplit resident start")


def _clock_of(pid: int) -> int:
    """The clock of a process's processor time: on Linux its number with all bits turned, and a 2."""
    return (~pid << 3) | 2
