"""What tests of the launcher share: one compiled here, an installation of it, and how it is started."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.scripts.worlds import NODE
from trisplit.cache.entry import Entry, Frame
from trisplit.cache.key import Key
from trisplit.cache.store import Store
from trisplit.scripts import sealing
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import name_of
from trisplit.scripts.script import Script, read_script

ROOT = Path(__file__).parent.parent.parent
COMPILED = runpy.run_path(str(ROOT / "launcher" / "compiled.py"))
PLAIN = Surroundings(environment={})
ASKED = b"asked Python\n"

# What an installer puts beside the launcher; and one that says what it was given, and does nothing.
_REAL = """#!{python}
import sys
sys.path.insert(0, {source!r})
open(__file__ + ".told", "a").write("x")
from trisplit.cli import main
main()
"""
_SAYS = "#!/bin/sh\necho asked Python\n"


def install(folder: Path, launcher: bytes, *, real: bool = False) -> Path:
    """A folder of programs as an installer leaves it; the launcher in it."""
    folder.mkdir()
    python = _REAL.format(python=sys.executable, source=str(ROOT / "src")) if real else _SAYS
    for name, content in (("trisplit", launcher), ("trisplit-py", python.encode())):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    return folder / "trisplit"


def environment(cache: Path, **more: str) -> dict[str, str]:
    """One in which a launcher may answer, and little else."""
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**plain, "TRISPLIT_CACHE": str(cache), **more}


def said(program: Path, *words: str | Path, cache: Path, **how: Any) -> bytes:
    """What it printed; it must end well and print nothing else."""
    more = how.pop("more", {})
    ran = subprocess.run(
        [program, "run", *words],
        env=environment(cache, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        **how,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout


def keep(
    store: Store,
    path: Path,
    text: str,
    *arguments: str,
    around: Surroundings = PLAIN,
    program: Path | None = None,
) -> Key | None:
    """Keeps `text` as what the script printed, and what the launcher needs; None where it has no key."""
    assert NODE is not None
    script = read_script(str(path))
    if program is not None:
        sealing.keep_seals(store, script, NODE, program.parent)
    found = name_of(script, arguments, NODE, store, around)
    if isinstance(found, str):
        return None
    store.put(found[0], entry_of(script, text))
    return found[0]


def entry_of(script: Script, text: str) -> Entry:
    """An entry that cost as much as no other."""
    frames = (Frame(1, text.encode()),)
    return Entry(frames=frames, surface="script", label=script.named, cpu_us=54321, wall_us=65432)
