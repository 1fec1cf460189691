"""A control message is exactly one map of known fields in range, or a peer's problem."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.words import EXAMPLES, any_message
from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire import packing
from trisplit.wire.frame import Activation
from trisplit.wire.messages import Bye, Ping
from trisplit.wire.packing import Message

MESSAGES = [said for said in EXAMPLES.values() if not isinstance(said, Activation)]


def packed(name: str, /, **fields: object) -> bytes:
    """An example with fields changed, added, or (by `...`) left out, as a peer could send it."""
    values = msgspec.to_builtins(EXAMPLES[name], builtin_types=(bytes,)) | fields
    return msgspec.msgpack.encode({key: value for key, value in values.items() if value is not ...})


def test_there_is_an_example_of_every_message() -> None:
    assert {type(said) for said in MESSAGES} == set(Message.__args__)


def test_the_bytes_of_a_message() -> None:
    assert packing.encode(Ping(7)) == b"\x82\xa4type\xa4Ping\xa5nonce\x07"
    assert packing.decode(b"\x82\xa5nonce\xcc\xff\xa4type\xa4Ping") == Ping(255)


@given(any_message)
def test_round_trip(message: Message) -> None:
    assert packing.decode(packing.encode(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_cut_anywhere_or_grown_it_is_refused(message: Message) -> None:
    data = packing.encode(message)
    for n_bytes in range(len(data)):
        with pytest.raises(PeerProblem):
            packing.decode(data[:n_bytes])
    with pytest.raises(PeerProblem, match="trailing"):
        packing.decode(data + b"\xc0")


@pytest.mark.parametrize("name", [type(said).__name__ for said in MESSAGES])
def test_no_field_may_be_added_or_left_out(name: str) -> None:
    with pytest.raises(PeerProblem, match="unknown field `more`"):
        packing.decode(packed(name, more=1))
    for field in type(EXAMPLES[name]).__struct_fields__:
        if (name, field) != ("Fault", "stream"):
            with pytest.raises(PeerProblem, match=f"missing required field `{field}`"):
                packing.decode(packed(name, **{field: ...}))


@pytest.mark.parametrize("name", [type(said).__name__ for said in MESSAGES])
def test_no_field_may_be_of_another_type(name: str) -> None:
    for field in type(EXAMPLES[name]).__struct_fields__:
        with pytest.raises(PeerProblem, match=rf"(Expected .*|unknown field `a`) - at `\$\.{field}`"):
            packing.decode(packed(name, **{field: {"a": 1}}))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("Hello", "role", "king"),
        ("Hello", "version", -1),
        ("Hello", "name", "n" * 201),
        ("Load", "threads", 0),
        ("Load", "context", 0),
        ("Load", "source", {"path": "x" * 2001, "stamp": ""}),
        ("Load", "groups", [{"number": 2**16, "stages": [], "n_bytes": 0}]),
        ("Load", "groups", [{"number": 1, "stages": [], "n_bytes": -1}]),
        ("Load", "groups", [{"number": 1, "stages": [{"layer": -2, "kind": "embed"}], "n_bytes": 0}]),
        ("Load", "groups", [{"number": 1, "stages": [{"layer": 0, "kind": "tail"}], "n_bytes": 0}]),
        (
            "Load",
            "groups",
            [{"number": 1, "stages": [{"layer": 0, "kind": "down", "more": 1}], "n_bytes": 0}],
        ),
        ("Loading", "done", -1),
        ("Need", "stages", []),
        ("Offer", "files", []),
        ("Offer", "files", [{"digest": bytes(32), "n_bytes": 1}] * 3),
        ("Offer", "files", [{"digest": bytes(31), "n_bytes": 1}]),
        ("Want", "digest", bytes(33)),
        ("Want", "n_bytes", 0),
        ("Want", "n_bytes", 2**20 + 1),
        ("Piece", "data", b""),
        ("Piece", "data", bytes(2**20 + 1)),
        ("Open", "stream", 0),
        ("Sample", "ids", [1, -1]),
        ("Sample", "ids", [1, 1.5]),
        ("Sample", "temperature", -0.1),
        ("Sample", "temperature", math.nan),
        ("Sample", "temperature", math.inf),
        ("Sample", "top_k", -1),
        ("Sample", "top_p", 0.0),
        ("Sample", "top_p", 1.01),
        ("Sample", "min_p", -0.01),
        ("Sample", "repetition_penalty", 0.0),
        ("Sample", "seed", -1),
        ("Facts", "busy_ms", math.nan),
        ("Question", "text", "x" * (2**19 + 1)),
        ("Question", "max_tokens", 0),
        ("Question", "stop", ["x"] * 65),
        ("Question", "how", {"temperature": 101.0}),
        ("Token", "token_id", -1),
        ("Answered", "finish_reason", "bored"),
        ("Answered", "ms_per_token", -1.0),
        ("Reported", "sessions", 0),
        ("Reported", "stations", [{"name": "n" * 2001}]),
        ("Fault", "what", "x" * 2001),
    ],
)
def test_no_field_may_be_out_of_range(name: str, field: str, value: object) -> None:
    with pytest.raises(PeerProblem, match=rf"\$\.{field}"):
        packing.decode(packed(name, **{field: value}))


@pytest.mark.parametrize(
    "data",
    [
        msgspec.msgpack.encode({"type": "Sesame"}),
        msgspec.msgpack.encode({"nonce": 1}),
        msgspec.msgpack.encode(["Ping", 1]),
        b"\xc1",
        b"\x82\xa4type\xa3Bye\xa6reason\xa2\xff\xfe",
        b"\x82\xa1x" + b"\x91" * 100_000 + b"\xc0\xa4type\xa4Ping",
    ],
    ids=["unknown", "untagged", "array", "reserved byte", "not UTF-8", "deep"],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(PeerProblem, match="a control message that cannot be read") as caught:
        packing.decode(data)
    assert len(caught.value.what) < 300


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_peer_problem(data: bytes) -> None:
    try:
        message = packing.decode(data)
    except PeerProblem:
        return
    assert isinstance(message, Message)


@pytest.mark.parametrize("message", [Ping(2**64), Bye("\ud800")], ids=["too wide", "half a character"])
def test_what_cannot_be_packed_is_our_own_problem(message: Message) -> None:
    with pytest.raises(OwnProblem, match="cannot be packed"):
        packing.encode(message)
