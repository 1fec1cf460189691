"""Stations as a coordinator sees them: one that talks without end is lost, not kept."""

from __future__ import annotations

import asyncio

import pytest

from trisplit.errors import PeerProblem
from trisplit.mesh.link import MAX_WAITING
from trisplit.mesh.peers import Peer, Peers
from trisplit.mesh.trust import NOBODY
from trisplit.wire.messages import Loading


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
