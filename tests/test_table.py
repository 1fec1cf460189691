"""Tables: numbers stay numbers until they are drawn, plain text lines up."""

from __future__ import annotations

import doctest

import trisplit.table
from trisplit.table import Table, size


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(trisplit.table).failed == 0


def test_plain_text_lines_up() -> None:
    table = Table(("station", "ms"), (("s1", 1.5), ("s22", 10.25), ("all", None)), title="times")
    assert str(table).splitlines() == [
        "times",
        "station    ms",
        "-------  ----",
        "s1        1.5",
        "s22      10.2",
        "all         -",
    ]


def test_sizes_are_decimal() -> None:
    assert [size(n) for n in (0, 999, 1000, 1_500_000, 2_000_000_000)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "2.0 GB",
    ]
