"""Rows of passages on their way through a model, in a file: in memory is what was just asked for."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import TypeVar

import numpy as np

from trisplit.models.session import Floats
from trisplit.paths import cache_dir

S = TypeVar("S")
T = TypeVar("T")


class Rows:
    """For every passage [tokens, width] in f32; the file has no name and ends with us.

    Not mapped into memory, where what was read would count as held.
    """

    def __init__(self, lengths: Sequence[int], width: int) -> None:
        self._first, self._width = [0, *accumulate(lengths)], width
        self._file = tempfile.TemporaryFile(dir=cache_dir())  # noqa: SIM115

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self._first) - 1

    def read(self, passage: int) -> Floats:
        """What was written of it, [tokens, width]; not to be written to."""
        first, past = (4 * self._width * row for row in self._first[passage : passage + 2])
        raw = os.pread(self._file.fileno(), past - first, first)
        return np.frombuffer(raw, np.float32).reshape(-1, self._width)

    def write(self, passage: int, rows: Floats) -> None:
        """Puts these in their place; OSError when the disk is full."""
        raw = memoryview(np.ascontiguousarray(rows, np.float32).tobytes())
        at = 4 * self._width * self._first[passage]
        while raw:
            n = os.pwrite(self._file.fileno(), raw, at)
            raw, at = raw[n:], at + n

    def close(self) -> None:
        """Gives the disk back."""
        self._file.close()


def abreast(run: Callable[[S], T], given: Iterable[S], threads: int) -> Iterator[T]:
    """Results in the order of what is given, as many made at a time as there are threads, one on each.

    What is given is taken on the caller's thread, few ahead of what is taken of us.
    """
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[T]] = deque()
        for one in given:
            ahead.append(pool.submit(run, one))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
