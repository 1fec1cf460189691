"""Waiting for the word of a peer that may have nothing to say, but must not fall silent."""

from __future__ import annotations

from trisplit.errors import PeerProblem
from trisplit.mesh.link import Link
from trisplit.wire.session import Said


async def next_word(link: Link, silence_s: float) -> Said:
    """The next word, however long it takes, of a peer that at least pings; as `Link.receive`.

    PeerProblem too when nothing at all has come for that long: its host may be gone, or the way to it.
    """
    while True:
        heard = link.session.heard
        try:
            return await link.receive(silence_s)
        except PeerProblem:
            if not link.is_open or link.session.heard == heard:
                raise
