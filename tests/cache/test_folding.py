"""Lines added up: the same totals, few lines whatever there was, and how often commands were asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trisplit.cache import folding
from trisplit.cache.folding import DAY_S, DAYS_FOR_S, HOUR_S, folded, folds_of, reuses_of
from trisplit.cache.ledger import sums
from trisplit.cache.records import Lines, Record, Reuse, decode, encode

NOW_S = 1_800_000_000

RECORDS = st.lists(
    st.builds(
        Record,
        at_s=st.integers(NOW_S - 2 * DAYS_FOR_S, NOW_S + DAY_S),
        surface=st.sampled_from(("script", "generate", "memo")),
        outcome=st.sampled_from(("hit", "miss", "impure", "charge", "verified", "mismatch")),
        key=st.sampled_from(("", "aa", "bb")),
        words=st.sampled_from(((), ("a.js",), ("b.js", "x"))),
        spent_cpu_us=st.integers(0, 2**40),
        skipped_cpu_us=st.integers(-(2**20), 2**40),
    )
)


def lines(content: bytes) -> Lines:
    return decode(content.splitlines(keepends=True))


@given(RECORDS, st.integers(0, 3))
def test_folding_changes_no_total_however_often(records: list[Record], torn: int) -> None:
    before = b"".join(map(encode, records)) + b"?\n" * torn
    once = folded(lines(before), NOW_S)
    twice = folded(lines(once + before), NOW_S + 40 * DAY_S)
    assert sums([*lines(once).folds, *lines(once).records]) == sums(records)
    assert sums(lines(twice).folds) == sums([*records, *records])
    assert lines(once).torn == torn
    assert lines(twice).torn == 2 * torn


def test_hours_then_days_then_one_line() -> None:
    ages_s = (HOUR_S, HOUR_S + 1, 5 * HOUR_S, 9 * DAY_S, 9 * DAY_S + HOUR_S, 2 * DAYS_FOR_S, 3 * DAYS_FOR_S)
    start_s = NOW_S // DAY_S * DAY_S + 23 * HOUR_S
    records = [Record(at_s=start_s - age_s, surface="script", outcome="hit") for age_s in ages_s]
    assert [fold.hits for fold in folds_of(Lines(tuple(records)), start_s + 60)] == [2, 2, 1, 1, 1]


def test_many_lines_become_few() -> None:
    records = (
        Record(at_s=NOW_S - n * 600, surface="script", outcome="hit", words=(f"{n}.js",)) for n in range(9000)
    )
    short = folded(Lines(tuple(records)), NOW_S)
    assert len(lines(short).reuses) == folding.MOST_REUSES
    assert len(lines(short).folds) < 270
    assert len(short) < 150_000


def test_how_often_a_command_was_asked_for() -> None:
    """A hit that does not say its words counts for those its key was first said with."""
    records = (
        Record(at_s=1, surface="script", outcome="miss", key="aa", words=("a.js",), spent_cpu_us=70),
        Record(at_s=2, surface="script", outcome="hit", key="aa"),
        Record(at_s=3, surface="script", outcome="hit", key="aa"),
        Record(at_s=4, surface="script", outcome="impure", words=("b.js", "x")),
        Record(at_s=5, surface="script", outcome="verified", key="aa"),
        Record(at_s=6, surface="memo", outcome="miss", key="cc"),
    )
    b, a = reuses_of(Lines(records))
    assert a == Reuse(words=("a.js",), at_s=3, runs=3, key="aa", run_cpu_us=70)
    assert (b.words, b.runs) == (("b.js", "x"), 1)
    assert [one.runs for one in reuses_of(Lines(records), since_s=3)] == [1, 1]
    short = lines(folded(Lines(records), NOW_S) + encode(records[2]))
    assert [one.runs for one in reuses_of(short)] == [1, 4]
