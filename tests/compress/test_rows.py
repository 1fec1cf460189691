"""Rows that lie in a file, and work done abreast."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from trisplit.compress.rows import Rows, abreast


def test_every_passage_has_its_own_place() -> None:
    lengths = [3, 0, 1, 5]
    with closing(Rows(lengths, 4)) as rows:
        assert len(rows) == 4
        wanted = [np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32) for n in lengths]
        for number in (3, 0, 2, 1):
            rows.write(number, np.zeros_like(wanted[number]))
            rows.write(number, np.asfortranarray(wanted[number]))
        for number, one in enumerate(wanted):
            assert np.array_equal(rows.read(number), one)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_and_few_are_made_ahead(threads: int) -> None:
    drawn, own = 0, threading.get_ident()

    def given() -> Iterator[int]:
        nonlocal drawn
        for number in range(20):
            assert threading.get_ident() == own
            drawn += 1
            yield number

    seen = []
    for result in abreast(lambda number: 2 * number, given(), threads):
        seen.append(result)
        assert drawn <= len(seen) + threads
    assert seen == [2 * number for number in range(20)]


def test_what_fails_is_told() -> None:
    with pytest.raises(ZeroDivisionError):
        list(abreast(lambda number: 1 / number, [1, 0], 2))
