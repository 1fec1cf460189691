"""Facts about this machine agree with what the system says elsewhere."""

from __future__ import annotations

import os

import numpy as np

from trisplit import machine


def test_cores_are_between_one_and_all() -> None:
    assert 1 <= machine.free_cores() <= machine.usable_cores() <= (os.cpu_count() or 1)


def test_resident_memory_grows_with_what_is_touched() -> None:
    before = machine.rss_bytes()
    block = np.ones(64 * 2**20, np.uint8)
    grown = machine.rss_bytes() - before
    assert 0.9 * block.nbytes < grown < 1.5 * block.nbytes


def test_memory_is_told_in_bytes() -> None:
    facts = machine.this_machine()
    available = machine.available_bytes()
    assert available is not None
    assert 2**20 < available <= facts.memory_bytes
    assert facts.cpu
