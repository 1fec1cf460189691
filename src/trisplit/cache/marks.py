"""What the system says of files that changes when they do, so that a digest need not be made twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from trisplit.cache.entry import STDOUT, Entry, Frame
from trisplit.cache.key import Impure, key_of
from trisplit.cache.store import Store

SURFACE: Final = "digest"

SETTLED_AFTER_S: Final = 120.0
"""What has not changed for so long has a mark: writes through a mapping reach the times of a file late."""


def mark_of(path: Path, now_s: float) -> tuple[object, ...] | None:
    """Place, size and times of a file; None for one that changed lately, or in what would be the future.

    The time of change (ctime) is set by the system at every write and rename, and nobody can set it
    otherwise: a file with the same one, and the same inode and size, has the same bytes.
    """
    try:
        facts = os.stat(path)
    except OSError:
        return None
    if now_s - max(facts.st_ctime, facts.st_mtime) < SETTLED_AFTER_S:
        return None
    return (
        *(os.path.realpath(path), facts.st_dev, facts.st_ino, facts.st_size),
        *(facts.st_mtime_ns, facts.st_ctime_ns),
    )


def digest_once(store: Store, files: Sequence[Path], facts: object, digest: Callable[[], str]) -> str:
    """What `digest` makes of these files and facts; made once for as long as no file changes.

    A file that changed while it was read, or just before, is read again the next time.
    """
    marks = [mark_of(path, time.time()) for path in files]
    key = key_of(SURFACE, marks=marks, facts=facts)
    if None in marks or not marks or isinstance(key, Impure):
        return digest()
    kept = store.read(key)
    if kept is not None:
        return kept.output().decode()
    made = digest()
    if marks == [mark_of(path, time.time()) for path in files]:
        label = os.path.basename(files[0])
        store.put(key, Entry(frames=(Frame(STDOUT, made.encode()),), surface=SURFACE, label=label))
    return made
