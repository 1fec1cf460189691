"""The first words on a link, said by either end: Hello, the secret if there is one, Welcome."""

from __future__ import annotations

import secrets
from typing import Final

from trisplit.errors import PeerProblem
from trisplit.mesh.link import Link
from trisplit.mesh.trust import VARIABLE
from trisplit.wire.greeting import Challenge, Counterproof, Hello, Proof, Welcome
from trisplit.wire.secret import NONCE_BYTES, proof, same

_SAME_SECRET: Final = f"give both ends the same secret, by --secret-file or {VARIABLE}"


async def greet(link: Link, hello: Hello, secret: bytes | None) -> None:
    """Say Hello and hear Welcome, as the side that called; with a secret both sides prove they know it.

    Raises `PeerProblem` when the other side knows another secret, or one of the two has none. How
    long it may take is the caller's to say, here and in `be_greeted`.
    """
    link.send(hello)
    said = await link.receive(None)
    if isinstance(said, Challenge) and secret is None:
        raise PeerProblem(f"{link.peer} asks for a secret, and we have none", fix=_SAME_SECRET)
    if isinstance(said, Welcome) and secret is not None:
        raise PeerProblem(f"{link.peer} asks for no secret, and we have one", fix=_SAME_SECRET)
    if secret is None:
        link.insist(said, Welcome)
        return
    nonce, own = link.insist(said, Challenge).nonce, secrets.token_bytes(NONCE_BYTES)
    # We first: whoever calls strangers up does not get to hear what guesses could be tried against.
    link.send(Proof(own, proof(secret, "caller", hello, own, nonce)))
    answer = await link.expect(Counterproof, None)
    if not same(answer.proof, proof(secret, "called", hello, own, nonce)):
        raise PeerProblem(f"{link.peer} does not know our secret", fix=_SAME_SECRET)
    await link.expect(Welcome, None)


async def be_greeted(link: Link, welcome: Welcome, secret: bytes | None) -> None:
    """Hear Hello and say Welcome, as the side that was called; to who knows our secret, if we have one."""
    hello = await link.expect(Hello, None)
    if secret is not None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        link.send(Challenge(nonce))
        said = await link.expect(Proof, None)
        if not same(said.proof, proof(secret, "caller", hello, said.nonce, nonce)):
            raise PeerProblem("the caller does not know the secret", fix=_SAME_SECRET)
        link.send(Counterproof(proof(secret, "called", hello, said.nonce, nonce)))
    link.send(welcome)
