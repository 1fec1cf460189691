"""What decoding is held against: numpy's product of a matrix and a vector, and a plain read of memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from trisplit.bench.measure import timed

Kind = Literal["sgemv", "read"]
Call = Callable[[], object]

# Wide rows suit sgemv best: at 576 columns, the width of a small model, it reaches two thirds of this speed.
COLUMNS: Final = 4096

# Which reduction reads fastest differs from processor to processor; these are the ones that ever led.
_REDUCTIONS: Final[Sequence[tuple[str, Callable[[NDArray[Any]], object], str]]] = (
    ("or of int64", np.bitwise_or.reduce, "i8"),
    ("sum of int64", np.add.reduce, "i8"),
    ("max of int64", np.max, "i8"),
    ("max of float32", np.max, "f4"),
    ("dot of float32", lambda part: np.dot(part, part), "f4"),
)
_TRIES: Final = 5
_MAPS: Final = Path("/proc/self/maps")


class Reference:
    """A buffer of float32 as large as the largest model, of which as many bytes as wanted are read.

    The process must have been started with the BLAS limited to `threads` threads.
    """

    def __init__(self, kind: Kind, n_bytes: int, threads: int) -> None:
        self._buffer = np.full(-(-n_bytes // 4), 1.5, dtype=np.float32)
        self._how: Callable[[NDArray[np.float32]], Call]
        self._threads, self._pool = threads, ThreadPoolExecutor(threads)
        if kind == "sgemv":
            self._how, how = _product, _blas()
        else:
            self._how, how = self._fastest_read()
        self.detail = f"numpy {np.__version__}, {how}"

    def call(self, n_bytes: int) -> Call:
        """Reads this many bytes once, rounded down to whole rows of a matrix."""
        return self._how(self._buffer[: n_bytes // 4])

    def _fastest_read(self) -> tuple[Callable[[NDArray[np.float32]], Call], str]:
        best_ms, best = float("inf"), _REDUCTIONS[0]
        for reduction in _REDUCTIONS:
            ms = timed(self._reading(*reduction[1:], self._buffer), warm=1, repeats=_TRIES).best_ms
            if ms < best_ms:
                best_ms, best = ms, reduction
        return partial(self._reading, *best[1:]), best[0]

    def _reading(
        self, reduce: Callable[[NDArray[Any]], object], kind: str, buffer: NDArray[np.float32]
    ) -> Call:
        """Every thread reduces a part of its own; numpy lets go of the interpreter meanwhile."""
        values = buffer[: len(buffer) // 2 * 2].view(kind)
        parts = np.array_split(values, self._threads)
        return lambda: list(self._pool.map(reduce, parts)) if len(parts) > 1 else reduce(values)


def _product(buffer: NDArray[np.float32]) -> Call:
    columns = min(COLUMNS, len(buffer))
    matrix = buffer[: len(buffer) // columns * columns].reshape(-1, columns)
    x = np.ones(columns, np.float32)
    return lambda: matrix @ x


def _blas() -> str:
    """The library numpy multiplies with, and the kernel it chose for this processor where it can be asked."""
    facts: Any = np.show_config(mode="dicts")
    blas = facts["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']} {_kernel()}".strip()


def _kernel() -> str:
    mapped = _MAPS.read_text().split() if _MAPS.exists() else []
    for path in {word for word in mapped if "openblas" in word}:
        asked = getattr(ctypes.CDLL(path), "scipy_openblas_get_corename64_", None)
        if asked is not None:
            asked.restype = ctypes.c_char_p
            return f"({asked().decode()} kernel)"
    return ""
