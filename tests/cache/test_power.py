"""Counters of energy: read, begun anew, not there; and what one core draws, of those that follow its use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trisplit.cache.power import Energy, busy_core_watts, energy


def package(folder: Path, name: str, uj: int, most_uj: int = 1000) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{uj}\n")
    (folder / name / "max_energy_range_uj").write_text(f"{most_uj}\n")


def test_packages_add_up_and_may_begin_anew(tmp_path: Path) -> None:
    package(tmp_path, "intel-rapl:0", 900)
    package(tmp_path, "intel-rapl:1", 5)
    package(tmp_path, "intel-rapl:0:0", 10**6)  # a part of the first
    before = energy(tmp_path)
    package(tmp_path, "intel-rapl:0", 100)
    package(tmp_path, "intel-rapl:1", 25)
    after = energy(tmp_path)
    assert isinstance(before, Energy)
    assert isinstance(after, Energy)
    assert after.joules_since(before) == pytest.approx((200 + 20) / 1e6)


def test_it_says_why_there_is_nothing_to_read(tmp_path: Path) -> None:
    assert energy(tmp_path / "none") == f"{tmp_path / 'none'} is not there"
    assert energy(tmp_path) == f"nothing in {tmp_path} counts energy"
    package(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("?")
    assert busy_core_watts(tmp_path) == f"{tmp_path / 'intel-rapl:0' / 'energy_uj'} cannot be read: no number"


@contextmanager
def counting(folder: Path, idle_watts: float, core_watts: float) -> Iterator[None]:
    """A counter of a machine that draws so much at rest, and so much more a second of our processor time."""
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            uj = 1e6 * (idle_watts * time.perf_counter() + core_watts * time.process_time())
            temporary = folder / "new"
            temporary.write_text(f"{uj:.0f}")
            temporary.rename(folder / "intel-rapl:0" / "energy_uj")
            done.wait(0.002)

    package(folder, "intel-rapl:0", 0, 2**50)
    thread = threading.Thread(target=count)
    thread.start()
    time.sleep(0.05)
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_busy_core_is_told_from_an_idle_machine(tmp_path: Path) -> None:
    with counting(tmp_path, 3, 20):
        watts = busy_core_watts(tmp_path, within_s=0.3)
    assert watts == pytest.approx(20, rel=0.5)  # the thread that counts may come late
