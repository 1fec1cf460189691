"""What the launcher (launcher/trisplit.c) must find unchanged before it answers without Python."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trisplit.cache import key
from trisplit.cache.entry import STDOUT, Entry, Frame
from trisplit.cache.key import Impure, Key, key_of
from trisplit.cache.store import Store
from trisplit.errors import RequestProblem
from trisplit.scripts import closure, purity, runner, script
from trisplit.scripts.engines import identity, trial, world
from trisplit.scripts.engines.identity import SURFACE, Node, identify
from trisplit.scripts.engines.trial import passes_trial
from trisplit.scripts.engines.world import world_digest
from trisplit.scripts.purity import HARMLESS, MEDDLING
from trisplit.scripts.script import Script, kind_in, nearest_package

LAUNCHER, SHELL, PYTHON = "trisplit", "trisplit-sh", "trisplit-py"
"""The programs an installer puts side by side: the launcher, the one for a shell, what both hand over to."""

# Where it is decided what has which key; whoever edits one has another trisplit.
_CODE = (closure, identity, key, purity, runner, script, trial, world)

_INSTALLED = {"site-packages", "dist-packages"}

# Variables by which Python would load another trisplit than the launcher belongs to, and others that only
# look like them.
_OTHER_CODE = "PYTHON"
_SAME_CODE = (
    *("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8"),
    *("PYTHONWARNINGS", "PYTHONFAULTHANDLER", "PYTHON_VERSION", "PYTHON_SHA256", "PYTHON_PIP_VERSION"),
)


def keep_seals(store: Store, script: Script, command: str, door: Path) -> None:
    """Keeps what the launcher in the folder `door` needs for a script like this one, unless it is there.

    Both are entries like others, so they are verified when read, and may be evicted.
    """
    node = identify(command, store)
    if node.unsure or not node.files or passes_trial(node, store):
        return
    _keep(store, _key("seal", command=command, door=str(door)), seal(node, door))
    if os.path.splitext(script.named)[1] in (".js", ".ts"):
        try:
            package = nearest_package(script.path)
            if package is not None:
                _keep(store, _key("package", content=package[1]), kind_in(package[1]))
        except RequestProblem:
            return


def seal(node: Node, door: Path) -> str:
    """Lines: which node and which world, variables that must not be set, files that must be as they are.

    The last line is the SHA-256 of those before. Empty when one of them cannot be written in a line.
    """
    names = [str(door / PYTHON), *filter(os.path.isabs, node.files)]
    if not _INSTALLED & set(Path(__file__).parts):
        names += _code()  # what was installed is replaced by an installer, who writes PYTHON anew as well
    lines = [f"engine {node.digest}", f"world {world_digest()}"]
    lines += [f"avoid {name}" for name in (*MEDDLING, _OTHER_CODE)]
    lines += [f"allow {name}" for name in (*HARMLESS, *_SAME_CODE)]
    lines += _files(sorted(set(names)))
    if any("\n" in line for line in lines):
        return ""
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}sha256 {hashlib.sha256(text.encode()).hexdigest()}\n"


def code_marks() -> tuple[str, ...]:
    """What changes when the files our rules are in do."""
    return tuple(_files(_code()))


def _code() -> list[str]:
    names = [str(Path(world.__file__).with_name("closed_world.js")), __file__]
    return names + [str(module.__file__) for module in _CODE]


def _files(names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            facts = os.stat(name)
        except OSError:
            yield f"none {name}"
            continue
        times = " ".join(f"{ns // 10**9}.{ns % 10**9:09}" for ns in (facts.st_mtime_ns, facts.st_ctime_ns))
        yield f"file {facts.st_dev} {facts.st_ino} {facts.st_size} {times} {name}"


def _key(kind: str, **parts: Any) -> Key:
    named = key_of(kind, **parts)
    assert not isinstance(named, Impure)  # texts and bytes have content
    return named


def _keep(store: Store, named: Key, text: str) -> None:
    wanted = Entry(frames=(Frame(STDOUT, text.encode()),), surface=SURFACE, label=LAUNCHER)
    if text and store.read(named) != wanted:
        store.put(named, wanted)
