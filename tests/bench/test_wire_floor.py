"""Legs of `bench wire`: two real processes, in turns, and batches that are batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.mesh.peers import UPSTREAM, call, station
from trisplit.bench import rounds, wire_ends, wire_floor
from trisplit.bench.peers import Answer, Order
from trisplit.bench.posts import Post
from trisplit.bench.wire_ends import FRAME_BYTES
from trisplit.bench.wire_floor import floor
from trisplit.mesh.link import Link


def test_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)
    found = asyncio.run(floor(300, rounds=2))
    assert 0 < found.leg_us < 1e6
    assert 0 < found.tcp_us < 1e6
    assert found.frames_per_s > 1
    assert found.frames_per_s_batched > 1


def test_the_ways_take_turns_and_medians_are_of_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Order] = []

    class End:
        def __init__(self, post: Post) -> None:
            self.post, self.ready = post, {"address": post.name, "tcp_port": 1}

        async def ask(self, order: Order) -> Answer:
            asked.append(order)
            turn = len(asked)
            return {"us": [float(turn)] * order.get("n", 0), "per_s": 1e3 * turn}

    @asynccontextmanager
    async def started(posts: Sequence[Post]) -> AsyncIterator[list[End]]:
        yield [End(post) for post in posts]

    monkeypatch.setattr(wire_floor, "started", started)
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)
    found = asyncio.run(floor(10, rounds=3))
    assert asked == [
        {"address": "the near end"},
        *[{"what": what, "n": 4} for what in ("link", "tcp", "frames", "batched")] * 3,
    ]
    assert (found.leg_us, found.tcp_us) == (6.0, 7.0)
    assert (found.frames_per_s, found.frames_per_s_batched) == (8e3, 9e3)


def test_batched_frames_share_messages_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    hear = Link._hear

    def measured(link: Link, message: Any) -> None:
        sizes.append(len(message.get_payload_as_bytes()))
        hear(link, message)

    async def accept(link: Link) -> None:
        link.on_activation = lambda _: None
        await link.wait_closed()

    async def dialogue() -> None:
        async with station(accept) as server:
            link = await call(server, UPSTREAM)
            monkeypatch.setattr(Link, "_hear", measured)
            assert await wire_ends._stream(link, 40, batched=False) > 0
            rows = [n_bytes for n_bytes in sizes if n_bytes >= FRAME_BYTES]
            assert rows == [FRAME_BYTES] * 40
            sizes.clear()
            assert await wire_ends._stream(link, 40, batched=True) > 0
            rows = [n_bytes for n_bytes in sizes if n_bytes >= FRAME_BYTES]
            assert [n_bytes // FRAME_BYTES for n_bytes in rows] == [16, 16, 8]
            await link.close()

    asyncio.run(dialogue())
