"""Which program exactly runs scripts: its file, its libraries, and what it says about itself."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from trisplit.cache.entry import STDOUT, Entry, Frame
from trisplit.cache.key import Impure, Key, canonical, key_of
from trisplit.cache.store import Store
from trisplit.errors import RequestProblem

ANSWER_WITHIN_S = 30.0
SURFACE = "engine"

_ASK = """
process.report.excludeNetwork = true;
console.log(JSON.stringify({
  binary: process.execPath, versions: process.versions, libraries: process.report.getReport().sharedObjects,
  arch: process.arch, meddled: Boolean(process.env.NODE_OPTIONS),
}));
"""
_TYPED = "const one: number = 1;\nconsole.log(one);\n"
_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


class _Said(msgspec.Struct, frozen=True):
    """What node says about itself."""

    binary: str
    versions: dict[str, str]
    libraries: list[str]
    arch: str
    meddled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that was asked. `facts` are part of every key; `unsure` says why they cannot be told.

    As long as nothing happens to `files` it is this one; without any it must be asked each time.
    """

    command: str
    version: str = ""
    binary: str = ""
    facts: tuple[object, ...] = ()
    files: tuple[str, ...] = ()
    unsure: str = ""

    @property
    def digest(self) -> str:
        """Its facts as 64 hexadecimal digits."""
        return hashlib.sha256(canonical(self.facts)).hexdigest()


def find(name: str) -> str:
    """The program of that name on PATH, or at that path; RequestProblem when there is none."""
    command = shutil.which(name)
    if command is None:
        raise RequestProblem(
            f"no {name} is on PATH, and it is what runs this script",
            fix=f"install {name}, or name a program with --engine",
        )
    return command


def identify(command: str, store: Store) -> Node:
    """Who this node is: asked once for each program file; what is no program but starts one, every time.

    Its file and libraries are looked at every time. Nothing here fails: what cannot be told is `unsure`.
    """
    question = _question(asked=_ASK, program=_mark(command))
    kept = _kept(store, question) if _is_program(command) else None
    said = kept or _asked(command)
    if isinstance(said, str):
        return Node(command=command, unsure=said)
    if kept is None and _is_program(command):
        _keep(store, question, msgspec.json.encode(said))
    if said.meddled:
        return Node(command=command, unsure=f"{command} gives node options of its own")
    marks = tuple(_mark(path) for path in sorted({said.binary, *said.libraries}))
    facts = (sorted(said.versions.items()), said.arch, marks)
    return Node(
        command=command,
        version=said.versions.get("node", ""),
        binary=said.binary,
        facts=facts,
        files=(command, said.binary, *said.libraries) if _is_program(command) else (),
    )


def runs_typescript(node: Node, store: Store) -> bool:
    """Whether this node runs TypeScript, and without a word about it; tried once."""
    question = _question(typed=_TYPED, node=node.facts)
    kept = store.read(question)
    if kept is not None:
        return kept.output() == b"yes"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "typed.ts")
        script.write_text(_TYPED)
        try:
            ran = subprocess.run(
                [node.command, script], capture_output=True, timeout=ANSWER_WITHIN_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    silent = (ran.returncode, ran.stdout, ran.stderr) == (0, b"1\n", b"")
    _keep(store, question, b"yes" if silent else b"no")
    return silent


def _question(**parts: Any) -> Key:
    key = key_of(SURFACE, **parts)
    assert not isinstance(key, Impure)  # texts and numbers have content
    return key


def _asked(command: str) -> _Said | str:
    """What it says, or why that cannot be used."""
    try:
        ran = subprocess.run(
            [command, "-e", _ASK], capture_output=True, timeout=ANSWER_WITHIN_S, stdin=subprocess.DEVNULL
        )
        return msgspec.json.decode(ran.stdout, type=_Said)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return f"{command} does not say which node it is"


def _kept(store: Store, question: Key) -> _Said | None:
    kept = store.read(question)
    return None if kept is None else msgspec.json.decode(kept.output(), type=_Said)


def _keep(store: Store, question: Key, said: bytes) -> None:
    store.put(question, Entry(frames=(Frame(STDOUT, said),), surface=SURFACE, label="node"))


def _is_program(command: str) -> bool:
    """Whether this is machine code; a script that starts node may choose another one the next time."""
    try:
        with open(command, "rb") as file:
            return file.read(4) in _PROGRAMS
    except OSError:
        return False


def _mark(path: str) -> tuple[object, ...]:
    """What changes when a file is replaced, whatever its clock is set to."""
    try:
        facts = os.stat(path)
    except OSError:  # the system's own library is no file
        return (path,)
    real = os.path.realpath(path)
    return real, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
