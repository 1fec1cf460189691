"""The spine of every cached computation: its entry, or a run that is kept; either is put in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from trisplit.cache import ledger
from trisplit.cache.entry import Entry
from trisplit.cache.key import Key
from trisplit.cache.records import MOST_WORDS_BYTES
from trisplit.cache.store import Store


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Processor and wall time since it was made, of this process with all its threads."""

    _cpu_ns: int = field(default_factory=time.process_time_ns)
    _wall_ns: int = field(default_factory=time.perf_counter_ns)

    @classmethod
    def of_process(cls) -> Self:
        """Since this process began; of wall time that is taken to be no longer than its processor time."""
        cpu_ns = time.process_time_ns()
        return cls(0, time.perf_counter_ns() - cpu_ns)

    @property
    def cpu_us(self) -> int:
        """Processor time in microseconds."""
        return (time.process_time_ns() - self._cpu_ns) // 1000

    @property
    def wall_us(self) -> int:
        """Wall time in microseconds."""
        return (time.perf_counter_ns() - self._wall_ns) // 1000


def answer(store: Store, key: Key, run: Callable[[], Entry]) -> tuple[Entry, bool]:
    """The result under `key`, and whether it came from the store; else `run` makes it and it is kept.

    What `run` leaves out of the entry's cost is measured here.
    """
    watch = Stopwatch()
    entry = recall(store, key, watch)
    if entry is not None:
        return entry, True
    made = run()
    if not made.wall_us:
        made = replace(made, cpu_us=watch.cpu_us, wall_us=watch.wall_us)
    remember(store, key, made)
    return made, False


def recall(store: Store, key: Key, watch: Stopwatch) -> Entry | None:
    """The result under `key`, put down as a hit that began with `watch`; None where there is no result."""
    entry = store.get(key)
    if entry is None or entry.impure:
        return None
    spent_cpu_us, spent_wall_us = watch.cpu_us, watch.wall_us
    ledger.append(
        store.folder / ledger.FILE,
        ledger.Record(
            at_s=ledger.now_s(),
            surface=entry.surface,
            outcome="hit",
            key=key,
            spent_cpu_us=spent_cpu_us,
            spent_wall_us=spent_wall_us,
            skipped_cpu_us=entry.cpu_us - spent_cpu_us,
            skipped_wall_us=entry.wall_us - spent_wall_us,
        ),
    )
    return entry


def remember(store: Store, key: Key, entry: Entry, words: Sequence[str] = ()) -> None:
    """Keeps what a run made, and puts the run down as a miss, or as impure."""
    store.put(key, entry)
    put_down(store, entry, key, words)


def put_down(store: Store, entry: Entry, key: Key | None = None, words: Sequence[str] = ()) -> None:
    """Puts a run down in the ledger; without a key it could never have been answered from the store.

    `words` are what could be asked for again. Very long ones are left out.
    """
    is_short = sum(len(word) for word in words) <= MOST_WORDS_BYTES
    ledger.append(
        store.folder / ledger.FILE,
        ledger.Record(
            at_s=ledger.now_s(),
            surface=entry.surface,
            outcome="impure" if entry.impure or key is None else "miss",
            key=key or "",
            spent_cpu_us=entry.cpu_us,
            spent_wall_us=entry.wall_us,
            words=tuple(words) if is_short else (),
        ),
    )


def put_down_extra(
    store: Store, key: Key, outcome: Literal["charge", "verified", "mismatch"], cost: Entry
) -> None:
    """Puts down what was run for the cache alone, and for nobody who asked."""
    ledger.append(
        store.folder / ledger.FILE,
        ledger.Record(
            at_s=ledger.now_s(),
            surface=cost.surface,
            outcome=outcome,
            key=key,
            spent_cpu_us=cost.cpu_us,
            spent_wall_us=cost.wall_us,
            skipped_cpu_us=-cost.cpu_us,
            skipped_wall_us=-cost.wall_us,
        ),
    )
