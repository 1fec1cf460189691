"""Waiting for the word of a peer that may have nothing to say, but must not fall silent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from trisplit.errors import PeerProblem, Problem
from trisplit.mesh.link import Link
from trisplit.wire.messages import Ping, Pong
from trisplit.wire.session import Said

MOST_MISSED: Final = 5


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


class Pulse:
    """Whether a peer whose turn it is not still lives; one for each link, which hears of every Pong there."""

    def __init__(self, link: Link) -> None:
        self._link, self._is_due = link, False

    def hear(self, said: Said) -> None:
        """A word has come."""
        self._is_due = self._is_due and not isinstance(said, Pong)

    async def stops(self, every_s: float) -> None:
        """Returns when the link has ended, or a ping has had no answer for `MOST_MISSED` times `every_s`.

        Nobody else may listen meanwhile. However long we had no processor ourselves, that is one missed.
        """
        missed = 0
        with contextlib.suppress(Problem):
            while missed < MOST_MISSED:
                if not self._is_due:
                    self._link.send(Ping(0))
                    self._is_due = True
                await self._hear_for(every_s)
                missed = missed + 1 if self._is_due else 0

    async def _hear_for(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self.hear(await self._link.receive(None))
