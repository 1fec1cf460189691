"""Entries as bytes: what was packed comes back, and a changed bit is noticed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trisplit.cache.entry import Entry, Frame, note, pack, read_plain, unpack

KEY, OTHER = "ab" * 32, "cd" * 32
FRAMES = st.lists(st.builds(Frame, st.sampled_from((1, 2)), st.binary(max_size=40)), max_size=5).map(tuple)
ENTRIES = st.builds(
    Entry,
    frames=FRAMES,
    exit_code=st.integers(0, 255),
    surface=st.text(max_size=8),
    label=st.text(max_size=20),
    cpu_us=st.integers(0, 2**50),
    wall_us=st.integers(0, 2**50),
    impure=st.sampled_from(("", "reads the clock")),
)


@given(ENTRIES)
def test_what_is_packed_comes_back(entry: Entry) -> None:
    assert unpack(KEY, pack(KEY, entry)) == entry
    assert unpack(OTHER, pack(KEY, entry)) is None


@given(ENTRIES, st.data())
def test_any_changed_bit_is_noticed(entry: Entry, data: st.DataObject) -> None:
    packed = bytearray(pack(KEY, entry))
    at = data.draw(st.integers(0, len(packed) * 8 - 1))
    packed[at // 8] ^= 1 << at % 8
    assert unpack(KEY, bytes(packed)) is None


@given(ENTRIES, st.data())
def test_a_part_is_nothing(entry: Entry, data: st.DataObject) -> None:
    packed = pack(KEY, entry)
    assert unpack(KEY, packed[: data.draw(st.integers(0, len(packed) - 1))]) is None
    assert unpack(KEY, packed + b"\0") is None


@given(st.binary(max_size=100), st.data())
def test_plain_entries_are_two_files_that_belong_together(body: bytes, data: st.DataObject) -> None:
    entry = Entry(frames=(Frame(1, body),) if body else (), surface="script", label="a", cpu_us=7)
    beside = note(KEY, entry)
    assert entry.is_plain
    assert read_plain(KEY, body, beside) == entry
    assert read_plain(OTHER, body, beside) is None
    assert read_plain(KEY, body + b"x", beside) is None
    assert read_plain(KEY, body, beside[: data.draw(st.integers(0, len(beside) - 2))]) is None


def test_only_standard_output_and_success_are_plain() -> None:
    assert Entry().is_plain
    assert not Entry(exit_code=1).is_plain
    assert not Entry(impure="reads the clock").is_plain
    assert not Entry(frames=(Frame(1, b"a"), Frame(2, b"b"))).is_plain
