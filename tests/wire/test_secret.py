"""Proofs of a secret: pinned, and another for every greeting, role and secret."""

from __future__ import annotations

import hashlib
from itertools import combinations
from pathlib import Path
from typing import Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.words import bytes32, texts, u32
from trisplit.wire.greeting import Hello
from trisplit.wire.secret import proof, same

SECRET = b"correct horse battery staple"
HELLO = Hello(1, "attic", "coordinator", "desk")
PINNED = "7f7233f1fec852069d663df20690287ffced4dfd4784d8df3a46d6797c0b6716"
ONE, TWO = bytes(range(32)), bytes(range(32, 64))

Prover = Literal["caller", "called"]
greetings = st.tuples(
    st.binary(min_size=16, max_size=40),
    st.sampled_from(["caller", "called"]),
    st.builds(Hello, u32, texts, st.sampled_from(["coordinator", "station"]), texts),
    bytes32,
    bytes32,
)


def written_out(secret: bytes, told: bytes) -> bytes:
    """RFC 2104, from the text: H(K xor opad, H(K xor ipad, told))."""
    key = secret.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in key) + told).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in key) + inner).digest()


def test_the_bytes_of_docs_wire() -> None:
    told = bytes.fromhex(
        "00000011" + b"trisplit secret 1".hex() + "00000006" + b"caller".hex()
        + "00000020" + ONE.hex() + "00000020" + TWO.hex()
        + "00000004" + "00000001" + "00000005" + b"attic".hex()
        + "0000000b" + b"coordinator".hex() + "00000004" + b"desk".hex()
    )  # fmt: skip
    mine = proof(SECRET, "caller", HELLO, ONE, TWO)
    assert mine == written_out(SECRET, told)
    assert mine.hex() == PINNED
    page = Path(__file__).parents[2] / "docs" / "wire.md"
    assert PINNED in page.read_text(encoding="utf-8")


def test_nothing_of_a_greeting_can_be_changed() -> None:
    """Its own proof sent back, an old nonce, another mesh, and the end of one name in the next."""
    said = {
        "as it was": proof(SECRET, "caller", HELLO, ONE, TWO),
        "reflected": proof(SECRET, "called", HELLO, ONE, TWO),
        "nonces swapped": proof(SECRET, "caller", HELLO, TWO, ONE),
        "another secret": proof(SECRET + b"!", "caller", HELLO, ONE, TWO),
        "another nonce of the caller": proof(SECRET, "caller", HELLO, TWO, TWO),
        "another nonce of the called": proof(SECRET, "caller", HELLO, ONE, ONE),
    }
    for field, other in {"version": 2, "mesh": "cellar", "role": "station", "name": "chair"}.items():
        hello = msgspec.structs.replace(HELLO, **{field: other})
        said[field] = proof(SECRET, "caller", hello, ONE, TWO)
    moved = msgspec.structs.replace(HELLO, mesh="atticcoordinator", name="desk")
    said["moved"] = proof(SECRET, "caller", moved, ONE, TWO)
    for (a, one), (b, other) in combinations(said.items(), 2):
        assert not same(one, other), (a, b)
    assert same(said["as it was"], proof(SECRET, "caller", HELLO, ONE, TWO))


@given(greetings, greetings)
def test_two_greetings_have_one_proof_only_if_they_are_one(
    one: tuple[bytes, Prover, Hello, bytes, bytes], other: tuple[bytes, Prover, Hello, bytes, bytes]
) -> None:
    assert same(proof(*one), proof(*other)) == (one == other)
    assert len(proof(*one)) == 32
