"""Processes timed from outside: spawned and waited for, with as little of ours around them as can be."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from trisplit.errors import RequestProblem

MOST_BYTES: Final = 1 << 16
"""What a pipe holds: who prints more would wait for us to read, and that would be timed too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """One process from its making to its end. `cpu_ms`: processor time of it and what it waited for."""

    wall_ms: float
    cpu_ms: float
    exit_code: int
    stdout: bytes
    stderr: bytes


class Spawner:
    """Spawns one process after another, with an empty standard input, and reads them when they have ended.

    `posix_spawn` shares our memory until the program is loaded, so that our size costs nothing; the two pipes
    are the same for all.
    """

    def __init__(self) -> None:
        self._out, self._err = os.pipe(), os.pipe()
        self._nothing = os.open(os.devnull, os.O_RDONLY)
        for reading, _ in (self._out, self._err):
            os.set_blocking(reading, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (*self._out, *self._err, self._nothing):
            os.close(fd)

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> Spawned:
        """The process that `words` are; the first is the path of a program. It may print 64 kB at most.

        RequestProblem when there is no such program.
        """
        as_three = [
            (os.POSIX_SPAWN_DUP2, self._nothing, 0),
            (os.POSIX_SPAWN_DUP2, self._out[1], 1),
            (os.POSIX_SPAWN_DUP2, self._err[1], 2),
        ]
        began_ns = time.perf_counter_ns()
        try:
            pid = os.posix_spawn(words[0], list(words), environment, file_actions=as_three)
        except OSError as error:
            what = f"{words[0]} cannot be started: {error.strerror}"
            raise RequestProblem(what, fix="name a program that is there") from error
        _, status, used = os.wait4(pid, 0)
        ended_ns = time.perf_counter_ns()
        return Spawned(
            wall_ms=(ended_ns - began_ns) / 1e6,
            cpu_ms=1e3 * (used.ru_utime + used.ru_stime),
            exit_code=os.waitstatus_to_exitcode(status),
            stdout=_all_of(self._out[0]),
            stderr=_all_of(self._err[0]),
        )


def _all_of(fd: int) -> bytes:
    """What lies in a pipe."""
    try:
        return os.read(fd, MOST_BYTES)
    except BlockingIOError:
        return b""
