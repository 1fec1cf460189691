"""Memory for keys and values: taken only where it is written to, and seen at several addresses at once."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_ITEM_BYTES = 4
# sys/mman.h of Linux
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2


def pages_for(shape: tuple[int, ...]) -> mmap.mmap:
    """Memory for floats of this shape that is taken only where it is written to.

    numpy asks for 2 MB pages from 4 MB on, and gathering pages fills whatever is mapped: either way
    one token would make the keys and values of a whole context resident.
    """
    pages = mmap.mmap(-1, _ITEM_BYTES * math.prod(shape))  # shared, so that gathering passes it over
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return pages


def floats(pages: mmap.mmap, shape: tuple[int, ...]) -> Floats:
    """Zeros at first, in those pages."""
    return np.frombuffer(pages, dtype=np.float32).reshape(shape)


def rounded_up(rows: int, row_floats: int) -> int:
    """The least number of rows, at least these, that fill pages to the last byte."""
    unit = mmap.PAGESIZE // math.gcd(mmap.PAGESIZE, _ITEM_BYTES * row_floats)
    return -(-rows // unit) * unit


def seen_often(values: Floats, times: int) -> Floats | None:
    """The same memory as [times, *values.shape]: what is written to one entry stands in all.

    `values` are whole pages of `pages_for`. No memory is taken, though RSS counts a page once for every
    entry it was touched in. None where the system cannot do it: only Linux maps a mapping again.
    """
    if sys.platform != "linux" or values.nbytes % mmap.PAGESIZE or values.ctypes.data % mmap.PAGESIZE:
        return None
    libc = ctypes.CDLL(None)
    libc.mremap.restype = ctypes.c_void_p
    address, size = ctypes.c_void_p, ctypes.c_size_t
    libc.mremap.argtypes = (address, size, size, ctypes.c_int, address)
    # Only addresses: it is covered by the mappings below, which go when it goes. numpy may only read it.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    place = mmap.mmap(-1, times * values.nbytes, flags=flags, prot=mmap.PROT_READ)
    often = floats(place, (times, *values.shape))
    for at in range(times):
        target = often[at].ctypes.data
        # Of no bytes: a shared mapping is not moved then, but made once more.
        how = _MREMAP_MAYMOVE | _MREMAP_FIXED
        if libc.mremap(values.ctypes.data, 0, values.nbytes, how, target) != target:
            return None
    return often
