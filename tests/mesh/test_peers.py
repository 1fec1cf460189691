"""Stations as a coordinator sees them: one that talks without end is lost, not kept."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.wire.words import EXAMPLES
from trisplit.errors import PeerProblem
from trisplit.mesh.link import MAX_WAITING
from trisplit.mesh.peers import Peer, Peers
from trisplit.mesh.trust import NOBODY
from trisplit.wire.messages import Join, Joined, Loading

ORDER = EXAMPLES["Join"]
assert isinstance(ORDER, Join)


def test_what_nobody_asks_for_is_not_kept_without_end() -> None:
    async def listen() -> None:
        peers, peer = Peers(10.0, NOBODY), Peer("s1", "127.0.0.1:1", link=None)  # type: ignore[arg-type]
        for done in range(MAX_WAITING):
            peers._hear(peer, Loading(done, MAX_WAITING, "layer 0"))
        with pytest.raises(PeerProblem, match="station s1 talks faster than it is heard"):
            peers._hear(peer, Loading(0, 1, "layer 0"))
        assert len(peer.said) == MAX_WAITING
        await peers.leave("")

    asyncio.run(listen())


def test_of_two_questions_of_a_kind_the_older_is_answered_first() -> None:
    async def ask() -> None:
        link = SimpleNamespace(send=lambda _: None)
        peers, peer = Peers(10.0, NOBODY), Peer("s1", "127.0.0.1:1", link=link)  # type: ignore[arg-type]
        abandoned, wanted = (peers.question(peer, ORDER, Joined) for _ in range(2))
        with pytest.raises(PeerProblem, match="did not come"):
            await peers.wait(abandoned, 0.0, "the first answer")
        peers._hear(peer, Joined())
        assert not wanted.done(), "that was the answer to the first"
        peers._hear(peer, Joined())
        assert wanted.result() == Joined()
        assert not peer.said, "nothing is left over to be taken for another answer"
        await peers.leave("")

    asyncio.run(ask())
