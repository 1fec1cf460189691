"""How two machines meet: who is calling, whether both know the secret, and who was called."""

from __future__ import annotations

from typing import Final, Literal

from trisplit.wire.fields import U32, Bytes32, Name, Text, Word

VERSION: Final = 1
Role = Literal["coordinator", "station", "client"]


class Hello(Word, frozen=True):
    """The first word of whoever connects; its role decides what the link is for."""

    version: U32
    mesh: Name
    role: Role
    name: Name


class Challenge(Word, frozen=True):
    """Prove that you know the secret (trisplit.wire.secret): a number never used before."""

    nonce: Bytes32


class Proof(Word, frozen=True):
    """The caller's proof over both numbers, and its own."""

    nonce: Bytes32
    proof: Bytes32


class Counterproof(Word, frozen=True):
    """The called's proof over the same."""

    proof: Bytes32


class Welcome(Word, frozen=True):
    """The answer of whoever was connected to."""

    version: U32
    name: Name
    pid: U32
    cpu: Text
    runtime: Text
