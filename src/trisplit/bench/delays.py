"""How long bytes are under way on an emulated link, and the order they keep; pure: no sockets, no clock."""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

from trisplit.errors import RequestProblem

NEVER_NS: Final = sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """What an emulated link does to bytes, the same in both directions.

    They arrive `one_way_ms` after they were sent, plus 0 to `jitter_ms`, drawn evenly, plus their turn at
    `mbit` (10^6 bits a second each way, None for no limit): a chunk is under way once its last byte has left.
    `RequestProblem` for anything a link cannot do.
    """

    one_way_ms: float
    jitter_ms: float = 0.0
    mbit: float | None = None

    def __post_init__(self) -> None:
        for name in ("one_way_ms", "jitter_ms"):
            ms = getattr(self, name)
            if not 0 <= ms < math.inf:
                raise RequestProblem(f"a link with {name} {ms:g}", fix="give milliseconds, 0 or more")
        if self.mbit is not None and not 0 < self.mbit < math.inf:
            raise RequestProblem(f"a link of {self.mbit:g} Mbit/s", fix="give a rate above 0")

    @property
    def mean_ms(self) -> float:
        """One way without the time at `mbit`: the nominal delay and the mean of the jitter."""
        return self.one_way_ms + self.jitter_ms / 2

    def sending_ms(self, n_bytes: int) -> float:
        """How long `n_bytes` take to leave at `mbit`."""
        return 0.0 if self.mbit is None else 8e-3 * n_bytes / self.mbit


class Lane:
    """One direction of a link; all connections over it share its rate."""

    def __init__(self, delay: Delay, draw: Random) -> None:
        self.delay = delay
        self.is_cut = False
        self._draw = draw
        self._free_ns = 0  # when the last byte that was sent has left

    def due_ns(self, sent_ns: int, n_bytes: int) -> int:
        """When bytes sent now arrive; in the order of calls at `mbit`, not yet in order otherwise."""
        delay = self.delay
        self._free_ns = max(sent_ns, self._free_ns) + math.ceil(1e6 * delay.sending_ms(n_bytes))
        under_way_ms = delay.one_way_ms + self._draw.uniform(0, delay.jitter_ms)
        return self._free_ns + math.ceil(1e6 * under_way_ms)


class Way:
    """One direction of one connection: chunks of bytes under way, which arrive in the order they were sent.

    While the lane is cut nothing arrives and nothing is lost: what is under way then, or sent meanwhile,
    starts anew at `heal`, as TCP would send it again. An empty chunk is the end of the stream.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.n_bytes = 0
        self._chunks: deque[tuple[int, bytes]] = deque()
        self._last_ns = 0

    @property
    def due_ns(self) -> int:
        """When the next chunk arrives; NEVER_NS when none does."""
        return self._chunks[0][0] if self._chunks else NEVER_NS

    def send(self, chunk: bytes, sent_ns: int) -> None:
        """Puts a chunk under way."""
        self.n_bytes += len(chunk)
        self._chunks.append((self._due_ns(sent_ns, len(chunk)), chunk))

    def _due_ns(self, sent_ns: int, n_bytes: int) -> int:
        if self.lane.is_cut:
            return NEVER_NS
        self._last_ns = max(self._last_ns, self.lane.due_ns(sent_ns, n_bytes))
        return self._last_ns

    def arrive(self) -> bytes:
        """Takes the next chunk off the way."""
        _, chunk = self._chunks.popleft()
        self.n_bytes -= len(chunk)
        return chunk

    def again(self, now_ns: int) -> None:
        """Everything under way starts now: the lane has been cut, or healed."""
        self._chunks = deque((self._due_ns(now_ns, len(chunk)), chunk) for _, chunk in self._chunks)

    def drop(self) -> None:
        """Forgets what is under way: nobody is there to hear it."""
        self._chunks.clear()
        self.n_bytes = 0
