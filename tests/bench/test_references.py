"""What is read: every byte that was asked for, once, by as many threads."""

from __future__ import annotations

import numpy as np
import pytest

from trisplit.bench import references
from trisplit.bench.references import COLUMNS, Reference

ROW = 4 * COLUMNS


def test_sgemv_multiplies_a_matrix_of_as_many_bytes() -> None:
    reference = Reference("sgemv", 10 * ROW, threads=1)
    for rows in (10, 3):
        product = reference.call(rows * ROW)()
        assert isinstance(product, np.ndarray)
        assert product.tolist() == [1.5 * COLUMNS] * rows
    assert "numpy" in reference.detail


def test_a_matrix_smaller_than_a_row_is_one_row() -> None:
    product = Reference("sgemv", 400, threads=1).call(400)()
    assert isinstance(product, np.ndarray)
    assert product.tolist() == [150.0]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n_bytes", [8 * 1000, 8 * 1001 + 4])
def test_a_read_touches_every_pair_of_values_once(
    threads: int, n_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    summing = ("sum of float32", np.add.reduce, "f4")
    monkeypatch.setattr(references, "_REDUCTIONS", [summing])
    reference = Reference("read", 8 * 2000, threads)
    sums = reference.call(n_bytes)()
    parts = sums if isinstance(sums, list) else [sums]
    assert len(parts) == threads
    assert sum(map(float, parts)) == 1.5 * 2 * (n_bytes // 8)
    assert reference.detail.endswith("sum of float32")


def test_the_fastest_way_to_read_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ("slow", lambda part: [np.sum(part) for _ in range(200)], "f4")
    fast = ("fast", np.max, "f4")
    monkeypatch.setattr(references, "_REDUCTIONS", [slow, fast, slow])
    assert Reference("read", 40_000, threads=1).detail.endswith("fast")
