"""A hit that is run again, out of sight, and compared: what is false does not stay."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from trisplit.cache.entry import STDERR, Entry
from trisplit.cache.key import Key
from trisplit.cache.recall import put_down_extra
from trisplit.cache.store import Store
from trisplit.errors import RequestProblem
from trisplit.scripts.engines.reference import Ran
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import SURFACE, name_of, refuse
from trisplit.scripts.script import Script, read_script

RATE = 0.01
"""The share of hits that are run again, unless `--verify-rate` says another."""

WITHIN_S = 120.0

Verdict = Literal["verified", "mismatch", "unknown"]


def recheck(
    key: Key,
    script: Script,
    arguments: Sequence[str],
    command: str,
    store: Store,
    around: Surroundings,
    *,
    folder: Path,
) -> Verdict:
    """Runs what was answered from `key` by the engine itself, in the folder and environment of that request.

    Nobody sees its output, and its standard input is empty. Where it differs from what is kept, the entry
    goes and the script counts as impure; the ledger shows either verdict and what it cost. `unknown`: nothing
    is kept any more, the script was changed meanwhile, or it did not end in time; then nothing is done.
    """
    entry = store.read(key)
    if entry is None or entry.impure or not _is_still(key, script, arguments, command, store, around):
        return "unknown"
    ran = _run_apart([command, str(script.path), *arguments], folder, around)
    if ran is None or not _is_still(key, script, arguments, command, store, around):
        return "unknown"
    cost = Entry(surface=SURFACE, cpu_us=ran.cpu_us, wall_us=ran.wall_us)
    if (entry.exit_code, entry.output(), entry.output(STDERR)) == (ran.exit_code, ran.stdout, ran.stderr):
        put_down_extra(store, key, "verified", cost)
        return "verified"
    refuse(store, key, script, cost)
    return "mismatch"


def _is_still(
    key: Key, script: Script, arguments: Sequence[str], command: str, store: Store, around: Surroundings
) -> bool:
    """Whether the files on disk are those that have this key."""
    try:
        found = name_of(read_script(str(script.path)), arguments, command, store, around)
    except RequestProblem:
        return False
    return not isinstance(found, str) and found[0] == key


def _run_apart(words: Sequence[str], folder: Path, around: Surroundings) -> Ran | None:
    """Its end and its output; None if it could not be run there, or was ended because it took too long."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=dict(around.environment),
                start_new_session=True,
            )
        except OSError:
            return None
        late = threading.Timer(WITHIN_S, process.kill)
        late.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        finally:
            late.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if time.monotonic() - began >= WITHIN_S:
            return None
        out.seek(0)
        err.seek(0)
        return Ran(
            exit_code=process.returncode,
            cpu_us=int(1e6 * (used.ru_utime + used.ru_stime)),
            wall_us=int(1e6 * (time.monotonic() - began)),
            stdout=out.read(),
            stderr=err.read(),
        )
