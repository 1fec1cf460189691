"""Facts about this machine agree with what the system says elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from trisplit import machine


def test_cores_are_between_one_and_all() -> None:
    assert 1 <= machine.free_cores() <= machine.usable_cores() <= (os.cpu_count() or 1)


def test_resident_memory_grows_with_what_is_touched() -> None:
    """In a fresh process: this one would take freed memory first."""
    code = (
        "from trisplit.machine import rss_bytes; before = rss_bytes();"
        "block = bytearray(b'x' * 2**26); print(rss_bytes() - before)"
    )
    grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert 0.9 * 2**26 < grown < 2.1 * 2**26


def test_memory_is_told_in_bytes() -> None:
    facts = machine.this_machine()
    available = machine.available_bytes()
    assert available is not None
    assert 2**20 < available <= facts.memory_bytes
    assert facts.cpu


def test_memory_gathered_into_huge_pages_keeps_its_contents() -> None:
    block = np.random.default_rng(0).integers(0, 256, 8 * 2**20, dtype=np.uint8)
    before = block.copy()
    machine.gather_into_huge_pages()
    np.testing.assert_array_equal(block, before)


def test_gathering_does_not_fill_untouched_memory_made_later() -> None:
    code = (
        "import numpy as np; from trisplit.machine import gather_into_huge_pages, rss_bytes;"
        "weights = np.ones(2**25, np.uint8); gather_into_huge_pages(); before = rss_bytes();"
        "kv = np.empty(2**28, np.uint8); print(rss_bytes() - before)"
    )
    grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert grown < 2**23
