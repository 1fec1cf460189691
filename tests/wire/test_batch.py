"""Batches: what waits together comes out as it went in, and what no batcher makes is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.test_frame import ONE_AS_BYTES
from tests.wire.words import activations, any_message, framed, u32
from trisplit.errors import PeerProblem
from trisplit.wire import frame, packing
from trisplit.wire.batch import MOST_BYTES, MOST_FRAMES, Batcher, split
from trisplit.wire.frame import Activation
from trisplit.wire.messages import Ping

PING = framed(Ping(7), 10)
BATCH_AS_BYTES = (
    bytes.fromhex("00000000 00000002 04 00 0000001c") + PING + bytes.fromhex("00000023") + ONE_AS_BYTES
)


def rows(n_bytes: int, number: int = 0) -> bytes:
    """A frame of that many bytes, its headers included, which must leave a multiple of 4 for the numbers."""
    return frame.encode_activation(Activation(1, number, 0, 0, 1, bytes(n_bytes - 27)), number)


def sent(payloads: Sequence[bytes]) -> list[bytes]:
    """The messages that payloads of one turn leave as."""
    batcher = Batcher()
    return [message for payload in payloads for message in batcher.add(payload)] + batcher.flush()


def heard(messages: Sequence[bytes]) -> list[bytes]:
    return [bytes(one) for message in messages for one in split(message)]


def test_the_bytes_of_a_batch() -> None:
    assert sent([PING, ONE_AS_BYTES]) == [BATCH_AS_BYTES]
    assert split(BATCH_AS_BYTES) == [PING, ONE_AS_BYTES]


def test_a_single_frame_stays_a_plain_frame() -> None:
    batcher = Batcher()
    assert batcher.add(ONE_AS_BYTES) == []
    assert batcher.flush() == [ONE_AS_BYTES]
    assert batcher.flush() == []
    assert split(ONE_AS_BYTES) == (ONE_AS_BYTES,)


def test_splitting_copies_nothing() -> None:
    received = bytearray(BATCH_AS_BYTES)
    _, one = split(memoryview(received))
    received[-1] = 0xFF
    assert one[-1] == 0xFF


def test_sixteen_frames_leave_at_once() -> None:
    batcher = Batcher()
    assert [batcher.add(PING) for _ in range(MOST_FRAMES - 1)] == [[]] * (MOST_FRAMES - 1)
    (batch,) = batcher.add(PING)
    assert split(batch) == [PING] * MOST_FRAMES
    assert batcher.flush() == []
    assert [len(split(message)) for message in sent([PING] * 40)] == [16, 16, 8]


def test_64_kib_bind_at_three_frames_of_21() -> None:
    frames = [rows(21 * 2**10 + 3, number) for number in range(7)]
    assert [len(split(message)) for message in sent(frames)] == [3, 3, 1]
    assert heard(sent(frames)) == frames


@pytest.mark.parametrize(("more", "counts"), [(0, [2]), (4, [1, 1])])
def test_a_batch_is_at_most_64_kib_long(more: int, counts: list[int]) -> None:
    """Two frames, with 10 bytes before and 4 before each."""
    frames = [rows(2003), rows(MOST_BYTES - 10 - 2 * 4 - 2003 + more)]
    messages = sent(frames)
    assert [len(split(message)) for message in messages] == counts
    assert sum(map(len, messages)) == (MOST_BYTES if more == 0 else MOST_BYTES - 18 + more)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0" * 9, b"not a frame of ours", ONE_AS_BYTES[:-1], ONE_AS_BYTES + b"\0", BATCH_AS_BYTES],
    ids=["empty", "short", "text", "cut", "long", "batch"],
)
def test_what_is_not_exactly_one_frame_passes_alone_and_in_order(payload: bytes) -> None:
    assert sent([PING, ONE_AS_BYTES, payload, PING]) == [BATCH_AS_BYTES, payload, PING]


def test_a_frame_too_long_to_share_passes_alone_and_in_order() -> None:
    longest, longer = rows(MOST_BYTES - 17), rows(MOST_BYTES - 13)  # 14 bytes stand before the first
    assert sent([PING, ONE_AS_BYTES, longest, PING, longer]) == [BATCH_AS_BYTES, longest, PING, longer]


any_frame = st.builds(frame.encode_activation, activations(), u32) | st.builds(
    lambda said, sequence: frame.encode_control(packing.encode(said), sequence), any_message, u32
)
long_frame = st.integers(0, 40).map(lambda n: rows(27 + 4 + 1024 * n))
payloads = st.lists(
    any_frame | long_frame | st.binary(max_size=40).filter(lambda b: b[8:9] != b"\4"), max_size=40
)


@given(payloads)
def test_everything_comes_out_as_it_went_in(given_in: list[bytes]) -> None:
    messages = sent(given_in)
    assert heard(messages) == given_in
    for message in messages:
        if len(message) > 8 and message[8] == 4:
            assert len(message) <= MOST_BYTES
            assert 2 <= len(split(message)) <= MOST_FRAMES


def changed(at: int, value: bytes) -> bytes:
    return BATCH_AS_BYTES[:at] + value + BATCH_AS_BYTES[at + len(value) :]


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (changed(3, b"\1"), "stream 1"),
        (changed(9, b"\1"), "flags 1"),
        (changed(7, b"\0"), "for 0 frames"),
        (changed(7, b"\1"), "for 1 frames"),
        (changed(7, b"\3"), "3 frames are not all"),
        (changed(7, b"\x11"), "for 17 frames"),
        (changed(4, b"\xff"), "for 4,278,190,082 frames"),
        (changed(13, b"\x1b"), "not all of its"),
        (changed(13, b"\x1d"), "not all of its"),
        (changed(10, b"\xff"), "not all of its"),
        (changed(13, b"\0"), "not all of its"),
        (changed(22, b"\4"), "not all of its"),
        (BATCH_AS_BYTES + b"\0", "not all of its"),
        (BATCH_AS_BYTES + PING, "not all of its"),
        (BATCH_AS_BYTES[:9], "of 9 bytes"),
        (sent([rows(2003 + 4 * n) for n in range(16)])[0].ljust(MOST_BYTES + 1), "of 65,537 bytes"),
        (struct.pack("!IIBBI", 0, 2, 4, 0, len(BATCH_AS_BYTES)) + BATCH_AS_BYTES, "2 frames are not all"),
    ],
)
def test_what_no_batcher_makes_is_refused(batch: bytes, why: str) -> None:
    with pytest.raises(PeerProblem, match=f"a batch .*{why}"):
        split(batch)


def test_every_cut_of_a_batch_is_refused() -> None:
    for n_bytes in range(9, len(BATCH_AS_BYTES)):
        with pytest.raises(PeerProblem, match="a batch"):
            split(BATCH_AS_BYTES[:n_bytes])


def test_batches_hold_no_batches() -> None:
    inner = [BATCH_AS_BYTES, PING]
    nested = struct.pack("!IIBB", 0, 2, 4, 0) + b"".join(struct.pack("!I", len(one)) + one for one in inner)
    with pytest.raises(PeerProblem, match="2 frames are not all"):
        split(nested)


@given(st.binary(max_size=80).map(lambda tail: BATCH_AS_BYTES[:14] + tail) | st.binary(max_size=80))
def test_any_bytes_are_frames_or_a_peer_problem(message: bytes) -> None:
    try:
        frames = split(message)
    except PeerProblem:
        return
    assert sent([bytes(one) for one in frames]) == [message]
