"""What times are boiled down to, how a call is timed, and how much memory this process ever held."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Many times of one thing, in milliseconds: half lie at or under `p50_ms`, 95 % under `p95_ms`."""

    p50_ms: float
    best_ms: float
    p95_ms: float
    max_ms: float
    n: int

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Spread:
        """At least one time. Percentiles between two times are interpolated, as numpy does.

        >>> Spread.of([4.0, 1.0, 3.0, 5.0, 2.0])
        Spread(p50_ms=3.0, best_ms=1.0, p95_ms=4.8, max_ms=5.0, n=5)
        """
        p50, p95 = np.percentile(times_ms, (50, 95))
        best, worst = float(min(times_ms)), float(max(times_ms))
        return cls(p50_ms=float(p50), best_ms=best, p95_ms=float(p95), max_ms=worst, n=len(times_ms))


def timed(call: Callable[[], object], *, warm: int, repeats: int) -> Spread:
    """The times of `repeats` calls, after `warm` calls that do not count."""
    times_ms = []
    for _ in range(warm + repeats):
        began = time.perf_counter()
        call()
        times_ms.append(1e3 * (time.perf_counter() - began))
    return Spread.of(times_ms[warm:])


def peak_bytes() -> int:
    """The most resident memory this process has had at once; 0 where the system does not say.

    Not `ru_maxrss`: that begins with the size of the parent the process was forked from.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def forget_peak() -> None:
    """Lets `peak_bytes` begin anew from what is held now, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
