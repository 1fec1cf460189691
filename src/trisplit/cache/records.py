"""The lines of a ledger: a request, many of an hour or a day, how often a command was asked for. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

# The last three are no requests: runs ahead of any, and hits that were run again in the background.
Outcome = Literal["hit", "miss", "impure", "charge", "verified", "mismatch"]

MOST_WORDS_BYTES = 1024


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. Of a hit, `spent` is what it took, and `skipped` what the run had taken more than that.

    So spent and skipped together are what there would have been to compute without a cache. What was run for
    the cache alone (`charge`, `verified`, `mismatch`) is spent, and taken from what was skipped. Times are
    whole microseconds, so that sums are exact; `at_s` is seconds since 1970. `words` are what could be asked
    for again: a script and its arguments.
    """

    at_s: int
    surface: str
    outcome: Outcome
    key: str = ""
    spent_cpu_us: int = 0
    spent_wall_us: int = 0
    skipped_cpu_us: int = 0
    skipped_wall_us: int = 0
    words: tuple[str, ...] = ()


class Fold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records of one surface between two times, added up. Their totals are theirs to the microsecond."""

    at_s: int
    until_s: int
    surface: str
    hits: int = 0
    misses: int = 0
    impure: int = 0
    charges: int = 0
    verified: int = 0
    mismatches: int = 0
    spent_cpu_us: int = 0
    spent_wall_us: int = 0
    skipped_cpu_us: int = 0
    skipped_wall_us: int = 0


class Reuse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often the same words were asked for, last at `at_s`; what running them took, when it last did."""

    words: tuple[str, ...]
    at_s: int
    runs: int
    key: str = ""
    run_cpu_us: int = 0


class Torn(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines could not be read, and are gone."""

    torn: int


@dataclass(frozen=True, slots=True)
class Lines:
    """A ledger as it was read. `torn`: lines torn by a full disk or a crash."""

    records: tuple[Record, ...] = ()
    folds: tuple[Fold, ...] = ()
    reuses: tuple[Reuse, ...] = ()
    torn: int = 0


def encode(line: Record | Fold | Reuse | Torn) -> bytes:
    """One line, its end with it."""
    return msgspec.json.encode(line) + b"\n"


def decode(lines: Iterable[bytes]) -> Lines:
    """All lines there are; each kind has something that no other has."""
    records, folds, reuses, torn = list[Record](), list[Fold](), list[Reuse](), 0
    for line in lines:
        match _decoded(line):
            case Record() as record:
                records.append(record)
            case Fold() as fold:
                folds.append(fold)
            case Reuse() as reuse:
                reuses.append(reuse)
            case Torn(torn=n):
                torn += n
            case None:
                torn += 1
    return Lines(tuple(records), tuple(folds), tuple(reuses), torn)


def _decoded(line: bytes) -> Record | Fold | Reuse | Torn | None:
    kinds: tuple[type[Record | Fold | Reuse | Torn], ...] = (Record, Fold, Reuse, Torn)
    for kind in kinds:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(line, type=kind)
    return None


def as_fold(record: Record) -> Fold:
    """One request as the sum of one."""
    counts = {
        "hit": "hits",
        "miss": "misses",
        "impure": "impure",
        "charge": "charges",
        "verified": "verified",
        "mismatch": "mismatches",
    }
    return Fold(
        at_s=record.at_s,
        until_s=record.at_s,
        surface=record.surface,
        spent_cpu_us=record.spent_cpu_us,
        spent_wall_us=record.spent_wall_us,
        skipped_cpu_us=record.skipped_cpu_us,
        skipped_wall_us=record.skipped_wall_us,
        **{counts[record.outcome]: 1},
    )
