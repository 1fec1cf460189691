"""Proofs that both ends of a link know one secret, without saying it (HMAC-SHA256, RFC 2104)."""

from __future__ import annotations

import hmac
from typing import Final, Literal

from trisplit.wire.greeting import Hello

NONCE_BYTES: Final = 32

_PROTOCOL: Final = b"trisplit secret 1"


def proof(
    secret: bytes,
    prover: Literal["caller", "called"],
    hello: Hello,
    of_caller: bytes,
    of_called: bytes,
) -> bytes:
    """What `prover` says to show that it knows the secret: 32 bytes, good for this one greeting.

    Caller and called have chosen a nonce each (`of_caller`, `of_called`), so that neither can be
    played an old greeting; the prover's role is covered, so that its own proof sent back proves
    nothing; and the Hello is, so that nobody enters under another role, or for another mesh, than
    the caller named. Each field goes in behind its length, so that no two greetings give the same
    bytes.
    """
    fields = (
        _PROTOCOL,
        prover.encode(),
        of_caller,
        of_called,
        hello.version.to_bytes(4),
        hello.mesh.encode(),
        hello.role.encode(),
        hello.name.encode(),
    )
    told = b"".join(len(field).to_bytes(4) + field for field in fields)
    return hmac.digest(secret, told, "sha256")


def same(one: bytes, other: bytes) -> bool:
    """Whether two proofs are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(one, other)
