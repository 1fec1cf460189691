"""Runs a script in node's closed world (closed_world.js): what it printed, or why it is impure."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from trisplit.cache.entry import STDERR, STDOUT, Frame
from trisplit.scripts.closure import Part
from trisplit.scripts.engines.identity import Node
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.script import Script

WITHIN_S = 30.0
MOST_OUTPUT = 8 << 20
MOST_MEMORY_KB = 1 << 20

# Half of what node allows a script: where a script would meet node's limit, the process dies before it.
STACK_BYTES = 512 << 10

_WORLD = Path(__file__).with_name("closed_world.js")
_RULES = [Path(__file__).parent.with_name(f"{name}.py") for name in ("closure", "purity", "script")]
# It may write no file, leaves no core, and cannot run for ever, whatever becomes of us.
_CONFINED = f"""set -e
ulimit -S -s {STACK_BYTES >> 10}; ulimit -S -c 0; ulimit -S -f 0; ulimit -S -t {int(WITHIN_S) + 1}
exec "$@" """
_FLAGS = ("--expose-internals", "--experimental-vm-modules", "--disallow-code-generation-from-strings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it: output in order, or `impure`. `lasting`: another try would end the same."""

    frames: tuple[Frame, ...] = ()
    impure: str = ""
    lasting: bool = True
    cpu_us: int = 0
    wall_us: int = 0


@cache
def world_digest() -> str:
    """The world's text and flags, and the rules by which a script comes into it: part of every key."""
    rules = b"".join(path.read_bytes() for path in (_WORLD, *_RULES))
    return hashlib.sha256(rules + repr((_FLAGS, _CONFINED)).encode()).hexdigest()


class Waiting:
    """A node that was started for one script, which it has not been given yet.

    `typed`: the script may be TypeScript, and what takes types out is started as well.
    """

    def __init__(self, node: Node, *, typed: bool) -> None:
        self.reading, self.writing = os.pipe()
        self._ended: tuple[int, resource.struct_rusage] | None = None
        command = ["/bin/sh", "-c", _CONFINED, "sh", node.binary, *_FLAGS, str(_WORLD)]
        command += ["typed"] if typed else []
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                pass_fds=(self.writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self.reading)
            raise
        finally:
            os.close(self.writing)  # in the other process it keeps its number

    def end(self) -> tuple[int, resource.struct_rusage]:
        """Ends it, dead or alive; returns how it ended, and what it took. Once more changes nothing."""
        if self._ended is None:
            os.close(self.reading)
            with self.process:
                os.kill(self.process.pid, signal.SIGKILL)  # it was not waited for yet
                _, status, used = os.wait4(self.process.pid, 0)
                self.process.returncode = os.waitstatus_to_exitcode(status)
            self._ended = self.process.returncode, used
        return self._ended


@dataclass(frozen=True, slots=True)
class Heard:
    """What a run came to. Its process may be there still: it takes longer to go than a small script runs.

    What the run took is in `settled()` alone, after which the process is over.
    """

    outcome: Outcome
    process: Waiting

    def settled(self) -> Outcome:
        """The outcome with processor time."""
        _, used = self.process.end()
        return replace(self.outcome, cpu_us=int(1e6 * (used.ru_utime + used.ru_stime)))


def run_closed(node: Node, script: Script, parts: Sequence[Part], around: Surroundings) -> Outcome:
    """Runs the script, the first of `parts`, where it can touch nothing; an impure run had no effects."""
    return hear(node, script, parts, around).settled()


def hear(
    node: Node,
    script: Script,
    parts: Sequence[Part],
    around: Surroundings,
    waiting: Waiting | None = None,
) -> Heard:
    """As `run_closed`, back as soon as it is known what the run came to; `settled` is still to be called.

    `waiting` is one of this very node, ready for the language, which is over then.
    """
    began = time.monotonic()
    waiting = waiting or Waiting(node, typed=script.language == "typescript")
    try:
        asked = _asked(script, parts, around, waiting.writing) + b"".join(part.source for part in parts)
        said, stray, in_time = _conversation(waiting.process, waiting.reading, asked)
        frames, why, status = read_said(said)
        if why or status is not None:
            outcome = _judged(frames, why, status or b"", stray)
        elif not in_time:
            outcome = Outcome(impure=f"ran for more than {WITHIN_S:g} s, or printed very much")
        else:
            outcome = Outcome(impure=_end_of(waiting.end()[0]), lasting=False)
    except BaseException:
        waiting.end()
        raise
    return Heard(replace(outcome, wall_us=int(1e6 * (time.monotonic() - began))), waiting)


def _judged(frames: tuple[Frame, ...], why: str, status: bytes, stray: bytes) -> Outcome:
    """Of a world that came to an end, good or bad. The good one is the last thing its process does."""
    if why:
        return Outcome(impure=why)
    if stray:
        return Outcome(impure="ended with words of node's own", lasting=False)
    if not 0 < most_memory_kb(status) <= MOST_MEMORY_KB:
        return Outcome(impure="took much memory, or nobody says how much", lasting=False)
    return Outcome(frames=frames)


def most_memory_kb(status: bytes) -> int:
    """Of a process whose /proc/self/status that is: the most memory it had at once; 0 where it is not said.

    Not `ru_maxrss`: that begins with the size of the parent the process was forked from.

    >>> most_memory_kb(b"VmPeak:\\t 9 kB\\nVmHWM:\\t 4 kB\\n")
    4
    """
    lines = status.decode(errors="replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def read_said(said: bytes) -> tuple[tuple[Frame, ...], str, bytes | None]:
    """Frames, why the world ended, the process's status if it came to its good end; of nonsense nothing.

    >>> read_said(b"1 3\\nab\\nE 6\\nVmHWM:")
    ((Frame(fd=1, data=b'ab\\n'),), '', b'VmHWM:')
    >>> read_said(b"1 3\\na")
    ((), '', None)
    """
    pieces, at = list[tuple[int, bytes]](), 0
    while (record := _record(said, at)) is not None:
        kind, data, at = record
        match kind:
            case b"K":
                return (), data.decode(errors="replace"), None
            case b"E":
                return _joined(pieces), "", data if at == len(said) else None
            case b"1" | b"2":
                pieces.append((STDOUT if kind == b"1" else STDERR, data))
            case _:
                return (), "", None
    return (), "", None


def _record(said: bytes | bytearray, at: int) -> tuple[bytes, bytes, int] | None:
    """Of what begins at a place: its kind, its content, where the next begins; None if it is not whole."""
    line, _, _ = said[at : at + 32].partition(b"\n")
    kind, _, number = line.partition(b" ")
    start = at + len(line) + 1
    if not number.isdigit() or start + int(number) > len(said):
        return None
    end = start + int(number)
    return bytes(kind), bytes(said[start:end]), end


def _joined(pieces: list[tuple[int, bytes]]) -> tuple[Frame, ...]:
    """Neighbours that went to one stream, as one frame."""
    groups = groupby(pieces, key=itemgetter(0))
    frames = (Frame(fd, b"".join(data for _, data in group)) for fd, group in groups)
    return tuple(frame for frame in frames if frame.data)


def _asked(script: Script, parts: Sequence[Part], around: Surroundings, fd: int) -> bytes:
    asked = {
        "fd": fd,
        "parts": [
            {
                "path": str(part.path),
                "folder": str(part.path.parent),
                "name": part.path.name,
                "json": part.is_json,
                "typed": part.is_typed,
                "bytes": len(part.source),
                "names": dict(part.names),
            }
            for part in parts
        ],
        "kind": script.kind,
        "most_bytes": MOST_OUTPUT,
        "stdout_is_terminal": around.stdout_is_terminal,
        "stderr_is_terminal": around.stderr_is_terminal,
    }
    return json.dumps(asked).encode() + b"\n"


def _conversation(process: subprocess.Popen[bytes], reading: int, asked: bytes) -> tuple[bytes, bytes, bool]:
    """Says `asked`, hears until the end: what it said, what came where nothing should, whether in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    to, beside = process.stdin.fileno(), process.stdout.fileno()
    os.set_blocking(to, False)
    os.set_blocking(beside, False)
    heard, open_for, at = {reading: bytearray(), beside: bytearray()}, {reading, beside}, 0
    until, left = time.monotonic() + WITHIN_S, memoryview(asked)
    while open_for:
        wait_s = until - time.monotonic()
        if wait_s <= 0 or sum(map(len, heard.values())) > 2 * MOST_OUTPUT:
            return bytes(heard[reading]), bytes(heard[beside]), False
        readable, writable, _ = select.select(list(open_for), [to] if left else [], [], wait_s)
        if writable:
            try:
                left = left[os.write(to, left) :]
            except BrokenPipeError:
                left = left[:0]
            if not left:
                process.stdin.close()
        for fd in readable:
            piece = os.read(fd, 1 << 16)
            heard[fd] += piece
            if not piece:
                open_for.remove(fd)
        while (record := _record(heard[reading], at)) is not None:
            kind, _, at = record
            if kind in (b"E", b"K"):
                return bytes(heard[reading]), bytes(heard[beside]) + _at_hand(beside), True
    return bytes(heard[reading]), bytes(heard[beside]), True


def _at_hand(fd: int) -> bytes:
    """What lies in a pipe, of which one piece is enough to know that there is something."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def _end_of(exit_code: int) -> str:
    if exit_code < 0:
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        return f"died of {name}, as by a stack or memory that is full"
    return f"ended with {exit_code} and words of node's own"
