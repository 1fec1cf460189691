"""A process that holds bytes back between sockets for as long as they would be under way on a slow link.

Orders come on standard input and are answered on standard output, one JSON object a line; it ends when
standard input does. It imports the standard library alone: it shares the machine with what is measured.

Timers miss by far more than a link may (seen on two cores of a virtual machine, p50: `select` returns 0.22 ms
late, and a process wakes up 0.10 ms after the kernel had bytes for it). Therefore:

- A chunk is due by the time the kernel received it, not by when this process woke up.
- The process sleeps until `SPIN_NS` before the next chunk is due, and watches the clock from there.
- It runs before others where the system allows it (root, or a limit for it): beside five busy processes 95 %
  of chunks were held at most 0.12 ms too long so, and 3 ms without.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import json
import os
import resource
import select
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, NoReturn

from trisplit.bench.delays import NEVER_NS, Delay, Lane, Way
from trisplit.bench.stamps import receive, stamp

SPIN_NS: Final = 300_000
READ_BYTES: Final = 1 << 16
MAX_HELD_BYTES: Final = 1 << 24  # of one way; then its sender waits, as for a peer whose window is full
KEPT_TIMES: Final = 1 << 16

_GONE: Final = select.EPOLLERR | select.EPOLLHUP

Order = Mapping[str, Any]


class Half:
    """One socket of a connection: what is heard here is under way to the `other`, which says it in the end.

    A connection that breaks has ended, as one that is closed: the far side hears of it one way later.
    """

    def __init__(self, sock: socket.socket, lane: Lane) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamp(sock)
        self.sock, self.way, self.other = sock, Way(lane), self
        self.fd, self.watched = sock.fileno(), 0
        self.heard_end = self.said_end = False
        self._unsaid = bytearray()  # has arrived, and the kernel has no room for it yet
        self._ends_next = False

    @property
    def wanted(self) -> int:
        """The events that matter now."""
        has_room = self.way.n_bytes + len(self.other._unsaid) < MAX_HELD_BYTES
        reads = select.EPOLLIN if has_room and not self.heard_end else 0
        return reads | (select.EPOLLOUT if self._unsaid else 0)

    def hear(self, not_before_ns: int) -> None:
        """Reads once; that is under way from when the kernel received the last byte of it."""
        try:
            chunk, wall_ns = receive(self.sock, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk, wall_ns = b"", time.time_ns()
        self.heard_end = not chunk
        if not self.other.said_end:
            self.way.send(chunk, max(_monotonic_ns(wall_ns), not_before_ns))

    def say(self, chunk: bytes) -> None:
        """Writes what has arrived, or keeps it until the kernel has room."""
        if self.said_end:
            return
        self._ends_next = not chunk
        if self._unsaid:
            self._unsaid += chunk
        else:
            self._write(chunk)

    def say_more(self) -> None:
        """Writes what the kernel had no room for."""
        unsaid, self._unsaid = self._unsaid, bytearray()
        self._write(unsaid)

    def _write(self, chunk: bytes | bytearray) -> None:
        n_bytes = 0
        try:
            n_bytes = self.sock.send(chunk) if chunk else 0
        except BlockingIOError:
            pass
        except OSError:  # nobody is there any more
            self.other.way.drop()
            self.said_end = True
            return
        self._unsaid += chunk[n_bytes:]
        if self._ends_next and not self._unsaid:
            self.said_end = True
            with contextlib.suppress(OSError):  # it may have gone first
                self.sock.shutdown(socket.SHUT_WR)


def _monotonic_ns(wall_ns: int) -> int:
    """A time of the clock on the wall, just past, as monotonic time.

    That clock is read first: if this process is put aside between the two, bytes seem younger, never older.
    """
    age_ns = time.time_ns() - wall_ns
    return time.monotonic_ns() - max(0, age_ns)


class Link:
    """A port of ours and the address behind it, with a lane each way."""

    def __init__(self, number: int, target: tuple[str, int], delay: Delay) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.lanes = Lane(delay, Random(2 * number)), Lane(delay, Random(2 * number + 1))

    @property
    def port(self) -> int:
        """Where callers find it."""
        port: int = self.listener.getsockname()[1]
        return port

    def accept(self) -> tuple[Half, Half]:
        """A new connection; what becomes of its far half is heard when that is read from."""
        near, far = self.listener.accept()[0], socket.socket(self.family)
        here, there = map(Half, (near, far), self.lanes)
        here.other, there.other = there, here
        far.connect_ex(self.target)
        return here, there

    @property
    def family(self) -> socket.AddressFamily:
        """Of the address behind it."""
        return socket.AF_INET6 if ":" in self.target[0] else socket.AF_INET


class Forwarder:
    """All links of a bench: one loop, no threads, and nothing that blocks."""

    def __init__(self) -> None:
        self._links: list[Link] = []
        self._listening: dict[int, Link] = {}
        self._halves: dict[int, Half] = {}
        self._due: list[tuple[int, int, Half]] = []
        self._n_due = 0  # what is due at the same time leaves in the order it came
        self._late_ns: deque[int] = deque(maxlen=KEPT_TIMES)
        self._ordered = b""
        self._epoll = select.epoll()
        self._epoll.register(0, select.EPOLLIN)

    def run(self) -> NoReturn:
        """Forwards until standard input ends."""
        looked_ns = 0
        while True:
            events = self._wait()
            looked_before_ns, looked_ns = looked_ns, time.monotonic_ns()
            for fd, event in events:
                if half := self._halves.get(fd):
                    self._serve(half, event, looked_before_ns)
                elif link := self._listening.get(fd):
                    for half in link.accept():
                        self._halves[half.fd] = half
                        self._watch(half)
                elif fd == 0:
                    self._obey()
            self._deliver()

    def _wait(self) -> list[tuple[int, int]]:
        if not self._due:
            return self._epoll.poll()
        sleep_ns = self._due[0][0] - SPIN_NS - time.monotonic_ns()
        if sleep_ns > 0:  # not with epoll's own timeout, which counts whole milliseconds
            select.select([self._epoll], [], [], 1e-9 * sleep_ns)
        return self._epoll.poll(0)

    # --- bytes ---

    def _serve(self, half: Half, event: int, looked_before_ns: int) -> None:
        if event & (select.EPOLLOUT | _GONE):
            half.say_more()
        if event & (select.EPOLLIN | _GONE) and not half.heard_end:
            was_due_ns = half.way.due_ns
            # What the loop sees now was not there when it last looked, whatever a clock on the wall says.
            half.hear(looked_before_ns)
            if was_due_ns == NEVER_NS:
                self._schedule(half)
        self._settle(half)

    def _deliver(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns():
            due_ns, _, half = heapq.heappop(self._due)
            if half.way.due_ns != due_ns:
                continue  # the link was cut meanwhile, or nobody is there any more
            chunk = half.way.arrive()
            half.other.say(chunk)
            if chunk:
                self._late_ns.append(time.monotonic_ns() - due_ns)
            self._schedule(half)
            self._settle(half)

    def _schedule(self, half: Half) -> None:
        if half.way.due_ns != NEVER_NS:
            self._n_due += 1
            heapq.heappush(self._due, (half.way.due_ns, self._n_due, half))

    def _settle(self, half: Half) -> None:
        """Watches both halves for what matters to them now, or closes them when both have ended."""
        if half.said_end and half.other.said_end:
            for ended in (half, half.other):
                self._halves.pop(ended.fd, None)
                ended.sock.close()  # which ends its watching, too
        else:
            self._watch(half)
            self._watch(half.other)

    def _watch(self, half: Half) -> None:
        wanted = half.wanted
        if wanted == half.watched:
            return
        if not half.watched:
            self._epoll.register(half.fd, wanted)
        elif not wanted:
            self._epoll.unregister(half.fd)  # a mask of 0 would still hear that it has gone, for ever
        else:
            self._epoll.modify(half.fd, wanted)
        half.watched = wanted

    # --- orders ---

    def _obey(self) -> None:
        said = os.read(0, READ_BYTES)
        if not said:
            os._exit(0)
        *orders, self._ordered = (self._ordered + said).split(b"\n")
        for order in map(json.loads, orders):
            print(json.dumps(self._answer(order)), flush=True)

    def _answer(self, order: Order) -> Order:
        links = [self._links[number] for number in order.get("links", ())]
        match order["do"]:
            case "open":
                return {"ports": [self._open((host, port), delay) for host, port, delay in order["targets"]]}
            case "delay":
                for link in links:
                    for lane in link.lanes:
                        lane.delay = Delay(**order["delay"])
            case "cut" | "heal":
                self._cut(links, order["do"] == "cut")
            case "times":
                late_ns, self._late_ns = [*self._late_ns], deque(maxlen=KEPT_TIMES)
                return {"late_ns": late_ns}
        return {}

    def _open(self, target: tuple[str, int], delay: Mapping[str, Any]) -> int:
        link = Link(len(self._links), target, Delay(**delay))
        self._links.append(link)
        self._listening[link.listener.fileno()] = link
        self._epoll.register(link.listener, select.EPOLLIN)
        return link.port

    def _cut(self, links: Sequence[Link], is_cut: bool) -> None:
        lanes = {lane for link in links for lane in link.lanes if lane.is_cut != is_cut}
        for lane in lanes:
            lane.is_cut = is_cut
        now_ns = time.monotonic_ns()
        for half in self._halves.values():
            if half.way.lane in lanes:
                half.way.again(now_ns)
                self._schedule(half)


def _runs_before_others() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    gc.disable()  # a collection would make something late; what connections leave behind is small
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    print(json.dumps({"real_time": _runs_before_others()}), flush=True)
    Forwarder().run()
