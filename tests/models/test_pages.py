"""Pages that several addresses show, and buffers that fill them."""

from __future__ import annotations

import gc
import mmap
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.models.pages import floats, pages_for, rounded_up, seen_often

PAGE = mmap.PAGESIZE // 4  # floats
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux maps a mapping again")


@given(st.integers(1, 10_000), st.integers(1, 64), st.integers(1, 512))
def test_rows_fill_pages_to_the_last_byte(rows: int, heads: int, width: int) -> None:
    room = rounded_up(rows, heads * width)
    assert room * heads * width % PAGE == 0
    assert rows <= room < rows + PAGE


@on_linux
def test_what_is_written_once_is_seen_everywhere() -> None:
    slots = floats(pages_for((3, 2, PAGE)), (3, 2, PAGE))
    slots[0] = 1
    often = seen_often(slots[1], 4)
    assert often is not None
    assert often.shape == (4, 2, PAGE)
    assert not often.any()
    slots[1, 1, 7] = 5
    assert (often[:, 1, 7] == 5).all()
    assert often.sum() == 20


@on_linux
def test_pages_seen_often_outlive_those_they_were_made_of() -> None:
    slots = floats(pages_for((2, PAGE)), (2, PAGE))
    slots[1] = 3
    often = seen_often(slots[1], 3)
    del slots
    gc.collect()
    assert often is not None
    assert (often == 3).all()


@on_linux
def test_mappings_end_with_what_they_were_made_for() -> None:
    slots = floats(pages_for((2, PAGE)), (2, PAGE))
    before = _mappings()
    kept = [seen_often(slots[0], 8) for _ in range(10)]
    assert _mappings() >= before + 70
    del kept
    gc.collect()
    assert _mappings() < before + 10


def _mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_parts_of_pages_cannot_be_seen_often() -> None:
    values = floats(pages_for((2, PAGE)), (2, PAGE)).reshape(-1)
    assert seen_often(values[: PAGE - 1], 2) is None
    assert seen_often(values[5 : 5 + PAGE], 2) is None
