"""Hits inside a process that lives on: what was found is held, and looked at again ten times a second."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trisplit.cache import ledger
from trisplit.cache.entry import Entry
from trisplit.cache.key import Key
from trisplit.cache.records import Fold
from trisplit.cache.store import Store
from trisplit.scripts.closure import may_load
from trisplit.scripts.engines.identity import Node, identify
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import SURFACE, Answer, name_of
from trisplit.scripts.script import Script

SURE_FOR_NS = 100_000_000
"""For so long an answer is taken to be what it was: a run that began then would have printed it."""

MOST_BYTES = 64 << 20
PUT_DOWN_EACH_NS = 1_000_000_000


@dataclass(slots=True)
class _Held:
    """An entry of one file, and when it was last read from the store."""

    key: Key
    entry: Entry
    answer: Answer
    read_ns: int


class Held:
    """Hits of one node in one set of surroundings. Not for several threads at once.

    Each time the bytes of the script are hashed; that node is the same one, and that an entry is still kept,
    is looked at when the last look is SURE_FOR_NS old. Scripts of several files are looked up as ever. The
    ledger is told in sums, at most once a second, and by `close`.
    """

    def __init__(self, store: Store, command: str, around: Surroundings) -> None:
        self._store, self._command, self._around = store, command, around
        self._node: Node | None = None
        self._looked_ns = -SURE_FOR_NS
        self._held: dict[tuple[object, ...], _Held] = {}
        self._n_bytes = 0
        self._hits = self._cpu_us = self._wall_us = 0
        self._began_s, self._told_ns = ledger.now_s(), time.monotonic_ns()
        self._used_ns = 0

    def recall(self, script: Script, arguments: Sequence[str]) -> Answer | None:
        """A hit, or None. Nothing is run but, once, a trial of the engine."""
        began_ns = time.monotonic_ns()
        asked = self._name(script, arguments)
        held = self._held.get(asked)
        if held is None or began_ns - held.read_ns > SURE_FOR_NS or began_ns - self._looked_ns > SURE_FOR_NS:
            held = self._looked_up(asked, script, arguments)
            if held is None:
                return None
        self._hits += 1
        self._cpu_us += held.entry.cpu_us
        self._wall_us += held.entry.wall_us
        ended_ns = time.monotonic_ns()
        self._used_ns += ended_ns - began_ns
        if ended_ns - self._told_ns > PUT_DOWN_EACH_NS:
            self.put_down()
        return held.answer

    def key_of(self, script: Script, arguments: Sequence[str]) -> Key | None:
        """The key of what is held; None of what is not."""
        held = self._held.get(self._name(script, arguments))
        return None if held is None else held.key

    def put_down(self) -> None:
        """Tells the ledger, as one sum, of the hits since the last time."""
        if self._hits:
            spent_us = self._used_ns // 1000
            told = Fold(
                at_s=self._began_s,
                until_s=ledger.now_s(),
                surface=SURFACE,
                hits=self._hits,
                spent_cpu_us=spent_us,
                spent_wall_us=spent_us,
                skipped_cpu_us=self._cpu_us - spent_us,
                skipped_wall_us=self._wall_us - spent_us,
            )
            ledger.append(self._store.folder / ledger.FILE, told)
        self._hits = self._cpu_us = self._wall_us = self._used_ns = 0
        self._began_s, self._told_ns = ledger.now_s(), time.monotonic_ns()

    @staticmethod
    def _name(script: Script, arguments: Sequence[str]) -> tuple[object, ...]:
        digest = hashlib.sha256(script.source).digest()
        return digest, script.path, script.language, script.kind, script.unclear, *arguments

    def _looked_up(self, asked: tuple[object, ...], script: Script, arguments: Sequence[str]) -> _Held | None:
        now_ns = time.monotonic_ns()
        node = identify(self._command, self._store)
        if self._node is None or node.digest != self._node.digest:
            self._held.clear()
            self._n_bytes = 0
        self._node, self._looked_ns = node, now_ns
        if (before := self._held.pop(asked, None)) is not None:
            self._n_bytes -= before.entry.n_bytes
        found = name_of(script, arguments, self._command, self._store, self._around)
        entry = None if isinstance(found, str) else self._store.get(found[0])
        if isinstance(found, str) or entry is None or entry.impure:
            return None
        answer = Answer(exit_code=entry.exit_code, frames=entry.frames, said=f"hit: {found[0]}")
        held = _Held(found[0], entry, answer, now_ns)
        if not may_load(script.source) and entry.n_bytes <= MOST_BYTES:
            if self._n_bytes + entry.n_bytes > MOST_BYTES:
                self._held.clear()
                self._n_bytes = 0
            self._held[asked] = held
            self._n_bytes += entry.n_bytes
        return held
