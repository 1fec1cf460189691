"""The frame around every command: what Ctrl-C, a Problem and a full disk become."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.cli import app as framing
from trisplit.errors import PeerProblem


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def swallowed() -> None:
    """As a callback of the socket library does: it takes the interrupt, and the link is what ends."""
    try:
        press()
    except KeyboardInterrupt:
        raise PeerProblem("station s1 hung up", fix="see its output") from None


def failing() -> None:
    raise PeerProblem("station s1 hung up", fix="see its output")


def full() -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (swallowed, 130, ""),
        (failing, 1, "error: station s1 hung up\n  fix: see its output\n"),
        (full, 1, "error: cannot write the answer: No space left on device\n  fix: make room for it\n"),
    ],
)
def test_every_end_has_its_code_and_its_words(
    command: Callable[[], None],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(framing, "app", command)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            framing.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.value.code, capsys.readouterr().err) == (code, said)


def test_ctrl_c_pressed_twice_at_once_is_pressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def command() -> None:
        for _ in range(2):
            try:
                press()
                seen.append("ignored")
            except KeyboardInterrupt:
                seen.append("raised")

    monkeypatch.setattr(framing, "app", command)
    before = signal.getsignal(signal.SIGINT)
    try:
        framing.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["raised", "ignored"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shell = f"exec {sys.executable} -m trisplit station --listen 127.0.0.1:{port} {closed}"
        ran = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: cannot listen" if "2>" not in closed else "")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to look into")
def test_the_number_of_a_closed_stream_is_nobody_elses() -> None:
    """The event loop must not get it: libuv aborts the process when it closes one of the first three."""
    shell = f"exec {sys.executable} -m trisplit station <&-"
    with subprocess.Popen(shell, shell=True, stdout=subprocess.PIPE) as station:
        assert station.stdout is not None
        assert station.stdout.readline().startswith(b"listening on")
        input_of_it = Path(f"/proc/{station.pid}/fd/0").readlink()
        station.kill()
    assert input_of_it == Path("/dev/null")
