"""What this machine is and has to spare: processor, cores, memory."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_LOADAVG = Path("/proc/loadavg")
_CPUINFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")

# linux/mman.h
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25
_HUGE = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts that go beside every figure we quote."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str


def this_machine() -> Machine:
    """The machine this process runs on."""
    return Machine(
        cpu=cpu_kind(),
        cores=usable_cores(),
        memory_bytes=_meminfo("MemTotal"),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def cpu_kind() -> str:
    """The processor's own name; results are bit-identical only between processors of one kind."""
    for line in _lines(_CPUINFO):
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            flags = next((f for f in _lines(_CPUINFO) if f.startswith("flags")), "")
            best = next((isa for isa in ("avx512f", "avx2", "avx") if isa in flags), "")
            return f"{name} {best}".strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores this process may use: its affinity, cut by a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = " ".join(_lines(_QUOTA)).split()
    if len(words) == 2 and words[0].isdigit():
        cores = min(cores, max(1, math.ceil(int(words[0]) / int(words[1]))))
    return cores


def free_cores() -> int:
    """Cores nobody is running on just now, at least one.

    More threads than free cores halves the speed of decoding: its threads wait for each other.
    """
    words = " ".join(_lines(_LOADAVG)).split()
    running = int(words[3].split("/")[0]) - 1 if len(words) > 3 else 0
    return max(1, usable_cores() - max(0, running))


def available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    return _meminfo("MemAvailable") or None


def rss_bytes() -> int:
    """Resident memory of this process."""
    words = " ".join(_lines(Path("/proc/self/statm"))).split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def return_free_memory() -> None:
    """Hands memory the process has freed back to the system; nothing where the C library cannot."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def gather_into_huge_pages() -> None:
    """Moves what the process has allocated into 2 MB pages, where the kernel can (Linux 6.1 and newer).

    Decoding reads every weight once a token; with 4 kB pages the processor keeps stopping to look up
    where the next one lies. Seen on the layers of SmolLM2, one thread: f32 24.0 to 20.8 ms a token,
    int8 10.1 to 8.6, int4 10.1 to 8.4. To be called when weights are loaded and before buffers that
    are mostly empty are made: gathering would fill those in.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "madvise"):
        return
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, end in _own_memory():
        start, end = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
        if end > start:
            for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):
                libc.madvise(start, end - start, advice)  # only a wish: no matter if it is refused


def _own_memory() -> list[tuple[int, int]]:
    """Address ranges of the heap and of anonymous writable memory."""
    ranges = []
    for line in _lines(Path("/proc/self/maps")):
        words = line.split()
        if words[1].startswith("rw") and words[5:] in ([], ["[heap]"]):
            start, end = words[0].split("-")
            ranges.append((int(start, 16), int(end, 16)))
    return ranges


def _meminfo(key: str) -> int:
    for line in _lines(_MEMINFO):
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
