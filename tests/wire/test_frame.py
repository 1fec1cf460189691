"""A frame is exactly its bytes: pinned, cut, grown, and changed one field at a time."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.words import EXAMPLES, activations, any_message, framed, u32
from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire import frame, route
from trisplit.wire.frame import Activation
from trisplit.wire.session import Said

ONE = Activation(
    stream=1,
    position=0x01020304,
    epoch=5,
    group=0x0607,
    rows=2,
    payload=struct.pack("<2f", 1.0, -2.0),
    flags=frame.ROW_BY_ROW,
    residual=True,
)
ROUTED = msgspec.structs.replace(ONE, route=route.encode((3, 1)))
ONE_AS_BYTES = bytes.fromhex(
    "00000001 00000009 03 01"  # stream, sequence, kind, flags
    "01020304 00000005 0607 0002 01 00000008"  # position, epoch, group, rows, dtype, length
    "0000803f 000000c0"  # 1.0 and -2.0, little-endian
)


ROUTED_AS_BYTES = bytes.fromhex(
    "00000001 00000009 03 03"  # bit 1 of the flags: a route
    "01020304 00000005 0607 0002 01 00000008"
    "000b"  # first to neighbour 3, then to its neighbour 1
    "0000803f 000000c0"
)


def changed(**fields: object) -> bytes:
    """ONE's frame with header fields put to any value, as a peer could send it."""
    names = ("stream", "sequence", "kind", "flags", "position", "epoch", "group", "rows", "dtype", "length")
    values = dict(zip(names, struct.unpack_from("!IIBBIIHHBI", ONE_AS_BYTES))) | fields
    return struct.pack("!IIBBIIHHBI", *(values[name] for name in names)) + ONE_AS_BYTES[27:]


def test_the_bytes_of_an_activation() -> None:
    assert frame.encode_activation(ONE, 9) == ONE_AS_BYTES
    assert frame.decode(ONE_AS_BYTES) == (9, ONE)


def test_the_bytes_of_a_control_message() -> None:
    data = bytes.fromhex("00000000 0000000a 01 00") + b"packed"
    assert frame.encode_control(b"packed", 10) == data
    assert frame.decode(data) == (10, memoryview(b"packed"))


def test_the_bytes_of_an_activation_with_a_route() -> None:
    assert frame.encode_activation(ROUTED, 9) == ROUTED_AS_BYTES
    assert frame.decode(ROUTED_AS_BYTES) == (9, ROUTED)


def test_the_bytes_of_an_early_row() -> None:
    early = Activation(1, 2, 3, 4, 1, struct.pack("<f", 1.0), flags=frame.DECODED, early=True)
    data = bytes.fromhex("00000001 00000009 05 04 00000002 00000003 0004 0001 01 00000004 0000803f")
    assert frame.encode_activation(early, 9) == data
    assert frame.decode(data) == (9, early)


@pytest.mark.parametrize("word", [0o10, 0o77077, 0x8000, 0xFFFF])
def test_a_word_of_no_route_is_refused(word: int) -> None:
    with pytest.raises(PeerProblem, match=f"the route word {word:#06x}, which is none"):
        frame.decode(ROUTED_AS_BYTES[:27] + word.to_bytes(2) + ROUTED_AS_BYTES[29:])


def test_a_route_that_is_announced_must_lead_somewhere() -> None:
    with pytest.raises(PeerProblem, match="leads nowhere"):
        frame.decode(ROUTED_AS_BYTES[:27] + bytes(2) + ROUTED_AS_BYTES[29:])


def test_decoding_copies_nothing() -> None:
    received = bytearray(ONE_AS_BYTES)
    _, said = frame.decode(memoryview(received))
    assert isinstance(said, Activation)
    received[27] = 0xFF
    assert said.payload[0] == 0xFF


def test_numbers_of_any_item_size_are_sent_as_their_bytes() -> None:
    numbers = memoryview(ONE.payload).cast("I")
    same = Activation(1, ONE.position, 5, ONE.group, 2, numbers, flags=ONE.flags, residual=True)
    assert frame.encode_activation(same, 9) == ONE_AS_BYTES


@given(activations(), u32)
def test_round_trip(said: Activation, sequence: int) -> None:
    assert frame.decode(frame.encode_activation(said, sequence)) == (sequence, said)


@pytest.mark.parametrize("whole", [ONE_AS_BYTES, ROUTED_AS_BYTES], ids=["plain", "routed"])
def test_a_cut_activation_is_refused(whole: bytes) -> None:
    for n_bytes in range(len(whole)):
        with pytest.raises(PeerProblem):
            frame.decode(whole[:n_bytes])


@pytest.mark.parametrize("more", [b"\0", b"\0\0\0\0", ONE_AS_BYTES])
def test_trailing_bytes_are_refused(more: bytes) -> None:
    with pytest.raises(PeerProblem, match="announces 8 bytes and brings"):
        frame.decode(ONE_AS_BYTES + more)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": 0}, "unknown kind 0"),
        ({"kind": 4}, "unknown kind 4"),
        ({"kind": 255}, "unknown kind 255"),
        ({"flags": 16}, "unknown flags 0x10"),
        ({"flags": 8}, "2 rows of one decoded token"),
        ({"flags": 4}, "2 rows of one decoded token"),
        ({"flags": 0x81}, "unknown flags 0x81"),
        ({"dtype": 0}, "dtype 0"),
        ({"dtype": 2}, "dtype 2, which we do not speak"),
        ({"dtype": 3}, "dtype 3"),
        ({"stream": 0}, "the link itself"),
        ({"rows": 0}, "8 bytes for 0 rows"),
        ({"rows": 3}, "8 bytes for 3 rows of 4-byte numbers"),
        ({"length": 7}, "announces 7 bytes and brings 8"),
        ({"length": 2**32 - 1}, "announces 4,294,967,295 bytes"),
    ],
)
def test_a_wrong_field_is_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(PeerProblem, match=why):
        frame.decode(changed(**fields))


def test_an_activation_without_numbers_is_refused() -> None:
    with pytest.raises(PeerProblem, match="0 bytes for 2 rows"):
        frame.decode(changed(length=0)[:27])


@pytest.mark.parametrize("field", [{"stream": 1}, {"flags": 1}])
def test_a_control_message_has_no_stream_and_no_flags(field: dict[str, int]) -> None:
    values = {"stream": 0, "flags": 0} | field
    with pytest.raises(PeerProblem, match="both must be 0"):
        frame.decode(struct.pack("!IIBB", values["stream"], 0, frame.CONTROL, values["flags"]))


def test_what_is_too_long_is_neither_sent_nor_read() -> None:
    largest = frame.encode_control(bytes(frame.MAX_CONTROL), 0)
    assert frame.decode(largest)[0] == 0
    with pytest.raises(PeerProblem, match="4,194,304 is the limit"):
        frame.decode(largest + b"\0")
    with pytest.raises(OwnProblem, match="4,194,305 bytes"):
        frame.encode_control(bytes(frame.MAX_CONTROL + 1), 0)
    too_long = bytes(frame.MAX_FRAME)
    with pytest.raises(PeerProblem, match="67,108,864 is the limit"):
        frame.decode(too_long + b"\0")
    with pytest.raises(OwnProblem, match="67,108,864 with the headers is the limit"):
        frame.encode_activation(Activation(1, 0, 0, 0, 1, too_long), 0)
    for route_word, head_bytes in ((0, 28), (0o1, 32)):
        just = Activation(1, 0, 0, 0, 1, memoryview(too_long)[head_bytes:], route=route_word)
        assert frame.decode(frame.encode_activation(just, 0)) == (0, just)


@pytest.mark.parametrize(
    "said",
    [
        Activation(0, 0, 0, 0, 1, bytes(4)),
        Activation(1, 0, 0, 0, 0, bytes(4)),
        Activation(1, 0, 0, 0, 2, bytes(4)),
        Activation(1, 0, 0, 0, 1, b""),
        Activation(1, 0, 0, 0, 1, bytes(4), dtype=2),
        Activation(1, 0, 0, 0, 1, bytes(4), flags=2),
        Activation(1, 0, 0, 0, 1, bytes(4), route=0o10),
        Activation(1, 0, 0, 0, 1, bytes(4), route=0x8001),
        Activation(1, 0, 0, 0, 1, bytes(4), route=-1),
        Activation(1, -1, 0, 0, 1, bytes(4)),
        Activation(2**32, 0, 0, 0, 1, bytes(4)),
        Activation(1, 0, 0, 2**16, 1, bytes(4)),
    ],
)
def test_what_a_peer_would_refuse_is_not_sent(said: Activation) -> None:
    with pytest.raises(OwnProblem):
        frame.encode_activation(said, 0)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_frame_or_a_peer_problem(data: bytes) -> None:
    try:
        sequence, said = frame.decode(data)
    except PeerProblem:
        return
    again = (
        frame.encode_activation(said, sequence)
        if isinstance(said, Activation)
        else frame.encode_control(bytes(said), sequence)
    )
    assert again == data


@given(activations() | any_message, u32)
def test_its_headers_tell_a_whole_frame(said: Said, sequence: int) -> None:
    data = framed(said, sequence)
    assert frame.is_whole(data)
    if isinstance(said, Activation):
        assert not any(map(frame.is_whole, (data[:-1], data + b"\0", data[:27], data[:10], data[:8])))


@given(st.binary(max_size=64))
def test_what_is_decoded_is_whole(data: bytes) -> None:
    try:
        frame.decode(data)
    except PeerProblem:
        return
    assert frame.is_whole(data)


def test_the_sequence_goes_round() -> None:
    assert [frame.after(n) for n in (0, 2**32 - 2, 2**32 - 1)] == [1, 2**32 - 1, 0]


def test_every_example_has_a_frame() -> None:
    for said in EXAMPLES.values():
        sequence, body = frame.decode(framed(said, 77))
        assert sequence == 77
        assert isinstance(body, Activation) == isinstance(said, Activation)
