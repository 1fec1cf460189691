"""The short way of `trisplit run SCRIPT`: without what a command line needs to be parsed."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from trisplit.cache.recall import Stopwatch
from trisplit.cache.store import Store, open_store
from trisplit.errors import Problem
from trisplit.scripts import runner, sealing
from trisplit.scripts.engines.identity import find
from trisplit.scripts.engines.reference import end_as
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import Answer
from trisplit.scripts.script import FOR_OTHERS, Script, read_script
from trisplit.scripts.sealing import LAUNCHER, PYTHON


def answered(words: Sequence[str]) -> int | None:
    """Runs the script that these words after `run` name, as `trisplit run` would; its exit code.

    None, and nothing was done, where it is for the long way: options, another language, any problem.
    """
    if not words or words[0].startswith("-") or not _streams_are_open():
        return None
    try:
        script = read_script(words[0])
        if script.language == "python" or script.path.suffix in FOR_OTHERS:
            return None
        store, command, around = open_store(), find("node"), surroundings()
    except Problem:
        return None
    with store:
        watch = Stopwatch.of_process()  # the start of Python is what such a hit mostly is
        try:
            answer = runner.recalled(script, words[1:], command, store, around, watch)
        except Problem:
            return None
        answer = answer or ask(store, script, words[1:], command, around)
        answer = answer or runner.run(script, words[1:], command, store, around)
        show(answer)
        if answer.said.startswith(("hit", "miss")):
            keep_seals(store, script, command)
    end_as(answer.exit_code)
    return answer.exit_code


def ask(
    store: Store, script: Script, arguments: Sequence[str], command: str, around: Surroundings
) -> Answer | None:
    """What a resident answers, if there is one; it has nodes that were started ahead."""
    from trisplit.scripts.asking import SOCKET, asked, find_resident

    resident = find_resident(store) if (store.folder / SOCKET).exists() else None
    return None if resident is None else asked(resident, script, arguments, command, around)


def keep_seals(store: Store, script: Script, command: str) -> None:
    """Keeps what the launcher needs that we were started by, if it was one."""
    program = os.path.realpath(sys.argv[0])
    door = Path(program).parent
    if os.path.basename(program) in (LAUNCHER, PYTHON) and (door / PYTHON).is_file():
        with contextlib.suppress(Problem):  # what was asked for is printed
            sealing.keep_seals(store, script, command, door)


def _streams_are_open() -> bool:
    """Else a file opened here gets the number of one of them."""
    try:
        return all(os.fstat(fd) for fd in (0, 1, 2))
    except OSError:
        return False


def surroundings() -> Surroundings:
    """What is around this process."""
    return Surroundings(
        environment=os.environ,
        limits=_limits(),
        stdout_is_terminal=os.isatty(1),
        stderr_is_terminal=os.isatty(2),
    )


def _limits() -> tuple[str, ...]:
    """What this shell gives its programs less of than node takes for granted."""
    endless = resource.RLIM_INFINITY
    least = {
        "the stack": (resource.RLIMIT_STACK, 2 << 20),
        "memory": (resource.RLIMIT_AS, endless),
        "data": (resource.RLIMIT_DATA, endless),
        "processor time": (resource.RLIMIT_CPU, endless),
        "files": (resource.RLIMIT_FSIZE, endless),
    }
    given = {name: (resource.getrlimit(which)[0], wanted) for name, (which, wanted) in least.items()}
    return tuple(
        name
        for name, (limit, wanted) in given.items()
        if limit != endless and (wanted == endless or limit < wanted)
    )


def show(answer: Answer) -> None:
    """The frames in their order, byte for byte; like node's console it does not mind if nobody listens."""
    for frame in answer.frames:
        left = memoryview(frame.data)
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(frame.fd, left) :]
