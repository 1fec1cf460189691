"""What the processor says it draws (RAPL), where it lets us read that."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/sys/class/powercap")
WITHIN_S: Final = 0.5
ASSUMED_WATTS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Energy:
    """Counters of all packages at one moment: microjoules, and where each begins anew."""

    counters: Mapping[str, tuple[int, int]]

    def joules_since(self, before: Energy) -> float:
        """What the packages drew from then to now, by whoever; a counter may have begun anew once."""
        drawn = 0
        for name, (now_uj, most_uj) in self.counters.items():
            begun_uj = before.counters[name][0]
            drawn += now_uj - begun_uj if now_uj >= begun_uj else now_uj + most_uj - begun_uj
        return drawn / 1e6


def energy(folder: Path = FOLDER) -> Energy | str:
    """The counters now, or why they cannot be read."""
    packages = sorted(folder.glob("intel-rapl:?")) or sorted(folder.glob("intel-rapl:??"))
    if not folder.is_dir() or not packages:
        return f"{folder} is not there" if not folder.is_dir() else f"nothing in {folder} counts energy"
    found = {}
    for package in packages:
        try:
            now_uj = int((package / "energy_uj").read_text())
            found[package.name] = (now_uj, int((package / "max_energy_range_uj").read_text()))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no number"
            return f"{package / 'energy_uj'} cannot be read: {why}"
    return Energy(found)


def busy_core_watts(folder: Path = FOLDER, *, within_s: float = WITHIN_S) -> float | str:
    """Watts of one busy core beyond those of an idle machine, from two looks; or why they cannot be told.

    What others do meanwhile is in it, so it is a figure for a quiet machine.
    """
    looks = []
    for busy in (None, False, True):
        until_s = time.perf_counter() + within_s
        while busy and time.perf_counter() < until_s:
            pass
        if busy is False:
            time.sleep(within_s)
        seen = energy(folder)
        if isinstance(seen, str):
            return seen
        looks.append((seen, time.perf_counter(), time.process_time()))
    (began, began_s, _), (idle, idle_s, before_s), (ended, ended_s, after_s) = looks
    idle_watts = idle.joules_since(began) / (idle_s - began_s)
    beyond_j = ended.joules_since(idle) - idle_watts * (ended_s - idle_s)
    return max(0.0, beyond_j) / (after_s - before_s)


@dataclass(frozen=True, slots=True)
class Watts:
    """Power of a busy core, and the words that say where the figure is from."""

    watts: float
    source: str


def watts_of_a_core(stated: float | None, folder: Path = FOLDER) -> Watts:
    """What was stated; else what the processor says; else an assumption, and why it is one."""
    if stated is not None:
        return Watts(stated, "stated")
    told = busy_core_watts(folder)
    if isinstance(told, str):
        return Watts(ASSUMED_WATTS, f"assumed: {told}")
    return Watts(told, "measured now (RAPL)")
