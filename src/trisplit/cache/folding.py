"""A ledger made shorter: older lines added up by the hour and the day, totals as they were. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from trisplit.cache.records import Fold, Lines, Reuse, Torn, as_fold, encode

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S

# How long hours are told apart, and then days; what is older stands in one line.
HOURS_FOR_S: Final = 8 * DAY_S
DAYS_FOR_S: Final = 400 * DAY_S

MOST_REUSES: Final = 1000

_ADDED = [name for name in Fold.__struct_fields__ if name not in ("at_s", "until_s", "surface")]


def folded(lines: Lines, now_s: int) -> bytes:
    """The same totals in a few hundred lines a surface, and the commands that were asked for last."""
    kept: list[Fold | Reuse | Torn] = [*folds_of(lines, now_s), *reuses_of(lines)[:MOST_REUSES]]
    if lines.torn:
        kept.append(Torn(torn=lines.torn))
    return b"".join(map(encode, kept))


def folds_of(lines: Lines, now_s: int) -> list[Fold]:
    """Sums by surface and hour, or day, in the order of time."""
    sums: dict[tuple[str, int, int], Fold] = {}
    for fold in (*lines.folds, *map(as_fold, lines.records)):
        age_s = now_s - fold.at_s
        grain_s = HOUR_S if age_s < HOURS_FOR_S else DAY_S if age_s < DAYS_FOR_S else 0
        when = (fold.surface, grain_s, fold.at_s // grain_s if grain_s else 0)
        sums[when] = add(sums[when], fold) if when in sums else fold
    return sorted(sums.values(), key=lambda fold: (fold.at_s, fold.surface))


def add(one: Fold, other: Fold) -> Fold:
    """Both together, under the surface of the first."""
    total = {name: getattr(one, name) + getattr(other, name) for name in _ADDED}
    at_s, until_s = min(one.at_s, other.at_s), max(one.until_s, other.until_s)
    return msgspec.structs.replace(one, at_s=at_s, until_s=until_s, **total)


def reuses_of(lines: Lines, since_s: float = 0.0) -> list[Reuse]:
    """How often each command was asked for from `since_s` on, the one asked for last first.

    Hits need not say their words: they count for those that their key was first said with.
    """
    found: dict[tuple[str, ...], Reuse] = {}
    by_key: dict[str, tuple[str, ...]] = {}
    for reuse in lines.reuses:
        if reuse.key:
            by_key[reuse.key] = reuse.words
        if reuse.at_s >= since_s:
            found[reuse.words] = _both(found.get(reuse.words), reuse)
    for record in lines.records:
        words = record.words or by_key.get(record.key, ())
        if record.key and words:
            by_key[record.key] = words
        if not words or record.at_s < since_s or record.outcome not in ("hit", "miss", "impure"):
            continue
        ran = record.spent_cpu_us if record.outcome == "miss" else 0
        one = Reuse(words=words, at_s=record.at_s, runs=1, key=record.key, run_cpu_us=ran)
        found[words] = _both(found.get(words), one)
    return sorted(found.values(), key=lambda reuse: (-reuse.at_s, reuse.words))


def _both(before: Reuse | None, after: Reuse) -> Reuse:
    if before is None:
        return after
    return Reuse(
        words=after.words,
        at_s=max(before.at_s, after.at_s),
        runs=before.runs + after.runs,
        key=after.key or before.key,
        run_cpu_us=after.run_cpu_us or before.run_cpu_us,
    )


def total_of(surface: str, folds: Iterable[Fold]) -> Fold:
    """All of them as one; of nothing zero."""
    total = Fold(at_s=0, until_s=0, surface=surface)
    for fold in folds:
        total = add(total, fold)
    return total
