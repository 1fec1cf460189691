"""The frame around every command: what Ctrl-C, a Problem and a full disk become."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

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
