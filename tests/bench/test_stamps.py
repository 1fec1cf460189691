"""The kernel's time of receipt lies between sending and reading, and stands still while nobody reads."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from trisplit.bench.stamps import receive, stamp

STEP_NS = 1_000_000  # the clock on the wall may be set meanwhile: it was seen to go back by 0.05 ms


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        called, _ = listener.accept()
    with caller, called:
        yield caller, called


def test_bytes_that_waited_to_be_read_came_before_that(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, called = ends
    stamp(called)
    sent_ns = time.time_ns()
    caller.sendall(b"hello")
    time.sleep(0.02)
    reads_ns = time.time_ns()
    chunk, came_ns = receive(called, 99)
    assert chunk == b"hello"
    assert sent_ns - STEP_NS <= came_ns < reads_ns


def test_without_stamps_bytes_come_when_they_are_read(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, called = ends
    caller.sendall(b"hello")
    reads_ns = time.time_ns()
    chunk, came_ns = receive(called, 3)
    assert chunk == b"hel"
    assert came_ns >= reads_ns


def test_the_end_of_a_stream_is_no_bytes(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, called = ends
    stamp(called)
    caller.close()
    assert receive(called, 99)[0] == b""
