"""The engine a script is written for, run as a person would run it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How it ended; a negative code is the signal it died of. Output only where it was asked for."""

    exit_code: int
    cpu_us: int
    wall_us: int
    stdout: bytes = b""
    stderr: bytes = b""


def run_reference(command: str, path: str, arguments: Sequence[str], *, captured: bool = False) -> Ran:
    """Runs the script with our own streams, directory and environment, or with its output `captured`.

    Ctrl-C reaches the script as it would without us, and its end is waited for.
    """
    began = time.monotonic()
    where = subprocess.PIPE if captured else None
    with subprocess.Popen([command, path, *arguments], stdout=where, stderr=where) as process:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            stdout, stderr = _both(process) if captured else (b"", b"")
            _, status, used = os.wait4(process.pid, 0)
        finally:
            signal.signal(signal.SIGINT, before)
        process.returncode = os.waitstatus_to_exitcode(status)
    return Ran(
        exit_code=process.returncode,
        cpu_us=int(1e6 * (used.ru_utime + used.ru_stime)),
        wall_us=int(1e6 * (time.monotonic() - began)),
        stdout=stdout,
        stderr=stderr,
    )


def end_as(exit_code: int) -> None:
    """Ends this process of the signal the script died of, so that who waits for us sees the same."""
    if exit_code < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)


def _both(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """All of both streams; the process is left to be waited for."""
    import selectors

    assert process.stdout is not None
    assert process.stderr is not None
    heard: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    with selectors.DefaultSelector() as selector:
        for fd in heard:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                piece = os.read(key.fd, 1 << 16)
                heard[key.fd].append(piece)
                if not piece:
                    selector.unregister(key.fd)
    out, err = heard.values()
    return b"".join(out), b"".join(err)
