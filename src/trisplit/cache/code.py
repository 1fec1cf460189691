"""What decides the bits of a computation besides its arguments: our code, libraries, the processor."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from pathlib import Path

from trisplit.machine import cpu_kind, usable_cores

# What libraries for matrices look at: sums in another order end in other bits.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE")


def code_of(module: str) -> str:
    """A digest of the sources of a module's package as they are on disk; empty where there are none."""
    loaded = sys.modules[module]
    if not getattr(loaded, "__file__", None):
        return ""
    file, digest = Path(str(loaded.__file__)), hashlib.sha256()
    names = module.split(".")
    folder = file.parents[len(names) - (1 if file.name == "__init__.py" else 2)] if len(names) > 1 else None
    for path in [file] if folder is None else sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder or file.parent)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@functools.cache
def machine() -> tuple[object, ...]:
    """Python, every installed library, processor, cores, and what libraries are told of threads."""
    from importlib.metadata import distributions  # takes longer to load than most of what is asked here

    libraries = sorted({f"{d.metadata['Name']} {d.version}" for d in distributions()})
    threads = [f"{name}={os.environ[name]}" for name in _THREADS if name in os.environ]
    return sys.version, platform.machine(), cpu_kind(), usable_cores(), threads, libraries
