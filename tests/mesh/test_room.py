"""Sizes as people write them, and what is none."""

from __future__ import annotations

import pytest

from trisplit.errors import RequestProblem
from trisplit.mesh.room import parse_size

MB = 10**6


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("900", 900),
        ("900 B", 900),
        ("3kB", 3000),
        ("200MB", 200 * MB),
        ("1.5 GB", 1500 * MB),
        ("2KiB", 2048),
        ("1 MiB", 2**20),
        (" 0.5gib ", 2**29),
    ],
)
def test_sizes_as_people_write_them(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    "text", ["", "MB", "-1MB", "1.5", "1.5B", "2 TB", "1e9", "1,5GB", "٣MB", "9" * 40, "1 MB 2"]
)
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(RequestProblem, match="is not a size"):
        parse_size(text)
