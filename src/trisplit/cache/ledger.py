"""What was computed and what was not: a line per run or hit, sums over them, and a file that stays short."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from trisplit.cache.folding import folded, total_of
from trisplit.cache.records import Fold, Lines, Outcome, Record, as_fold, decode, encode
from trisplit.table import Table

__all__ = ["Fold", "Outcome", "Rates", "Record", "Sum", "append", "compact", "read", "sums", "table"]

FILE = "ledger.jsonl"
ALL = "all"

# Beyond this the file is made shorter; then it is looked at again each time it has grown by a piece.
MOST_BYTES = 4 << 20
PIECE_BYTES = 64 << 10

_TRIES, _BETWEEN_S = 50, 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What turns seconds into joules and money; every figure is the user's assumption, and is printed."""

    watts: float = 15.0
    price_per_kwh: float = 0.27
    pue: float = 1.0

    def joules(self, cpu_us: int) -> float:
        """Energy of that much processor time at the wall of the building."""
        return cpu_us / 1e6 * self.watts * self.pue

    def money(self, cpu_us: int) -> float:
        """Its price."""
        return self.joules(cpu_us) / 3.6e6 * self.price_per_kwh


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """One surface, or all. `demand` is what would have been computed without a cache.

    `percent_c` counts a hit as 100 and everything that ran, misses and impure runs alike, as 0.
    """

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

    @property
    def requests(self) -> int:
        """Runs there would have been."""
        return self.hits + self.misses + self.impure

    @property
    def percent_c(self) -> float:
        """Requests that were answered without computing, in percent."""
        return 100 * self.hits / self.requests if self.requests else 0.0

    @property
    def demand_cpu_us(self) -> int:
        """Spent and skipped together."""
        return self.spent_cpu_us + self.skipped_cpu_us


def append(path: Path, record: Record | Fold, *, most_bytes: int = MOST_BYTES) -> None:
    """Adds a line; a ledger that cannot be written is no reason to fail the work it counts.

    A file that has outgrown `most_bytes` is made shorter, without losing a total.
    """
    line, n_bytes = encode(record), 0
    with contextlib.suppress(OSError):
        while not n_bytes:
            n_bytes = _appended(path, line)
        if n_bytes > most_bytes and n_bytes % PIECE_BYTES < len(line):
            compact(path)


def compact(path: Path) -> bool:
    """Adds up what is in the file by hours and days; False when others were at it, and nothing was done.

    It is renamed into its place, so it may be killed at any time. Whoever appends holds a shared lock for
    that moment; the exclusive one is held while the lines of the last moment are taken over. Who waits for it
    longer than a twentieth of a second appends without, and may lose a line. OSError when the disk is full.
    """
    temporary = path.with_name(f".tmp.{os.getpid()}.{secrets.token_hex(8)}")
    try:
        with path.open("rb") as file:
            before = file.read()
            whole = before[: before.rfind(b"\n") + 1]
            temporary.write_bytes(folded(decode(whole.splitlines(keepends=True)), now_s()))
            temporary.chmod(0o600)
            if not _locked(file.fileno(), fcntl.LOCK_EX) or not os.fstat(file.fileno()).st_nlink:
                return False
            file.seek(len(whole))
            with temporary.open("ab") as shorter:
                shorter.write(file.read())
            temporary.rename(path)
            return True
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path, *, since_s: float = 0.0) -> tuple[list[Record | Fold], int]:
    """What there is from `since_s` on, and how many lines could not be read: torn by a full disk or a crash.

    Of requests that were added up already, those count whose hour or day reaches that far.
    """
    lines = lines_of(path)
    found: list[Record | Fold] = [*lines.folds, *lines.records]
    ends = [one.until_s if isinstance(one, Fold) else one.at_s for one in found]
    return [one for one, end_s in zip(found, ends) if end_s >= since_s], lines.torn


def lines_of(path: Path) -> Lines:
    """The whole ledger; none where there is none."""
    try:
        with path.open("rb") as file:
            return decode(file)
    except OSError:
        return Lines()


def sums(records: Iterable[Record | Fold]) -> list[Sum]:
    """One sum per surface in the order of their names, then that of all."""
    by_surface: dict[str, list[Fold]] = {}
    for record in records:
        fold = record if isinstance(record, Fold) else as_fold(record)
        by_surface.setdefault(fold.surface, []).append(fold)
    everything = [fold for some in by_surface.values() for fold in some]
    return [_sum(name, by_surface[name]) for name in sorted(by_surface)] + [_sum(ALL, everything)]


def table(rows: Iterable[Sum], rates: Rates) -> Table:
    """Sums as a table: seconds of processor time, joules, money."""
    columns = (
        *("surface", "requests", "hits", "misses", "impure", "percent_c"),
        *("demand_cpu_s", "spent_cpu_s", "skipped_cpu_s", "skipped_joules", "skipped_money"),
    )
    return Table(
        columns,
        tuple(
            (
                *(row.surface, row.requests, row.hits, row.misses, row.impure, row.percent_c),
                *(row.demand_cpu_us / 1e6, row.spent_cpu_us / 1e6, row.skipped_cpu_us / 1e6),
                *(rates.joules(row.skipped_cpu_us), rates.money(row.skipped_cpu_us)),
            )
            for row in rows
        ),
    )


def now_s() -> int:
    """Seconds since 1970, for a record."""
    return int(time.time())


def _sum(surface: str, folds: list[Fold]) -> Sum:
    total = total_of(surface, folds)
    return Sum(**{field.name: getattr(total, field.name) for field in fields(Sum)})


def _appended(path: Path, line: bytes) -> int:
    """How long the file is with the line; 0 when it was replaced before the line was in it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        _locked(fd, fcntl.LOCK_SH)
        if not os.fstat(fd).st_nlink:
            return 0
        os.write(fd, line)  # in one piece, so that writers do not come between each other's bytes
        return max(1, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _locked(fd: int, how: int) -> bool:
    """Whether the lock was to be had within a while; a process that was stopped must not stop others."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        except OSError:  # a file system without locks
            return how == fcntl.LOCK_SH
        else:
            return True
    return False
