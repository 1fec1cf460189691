"""Whoever samples a stream, as the coordinator sees it: a station in a ring, elsewhere itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from trisplit.mesh.streams import Came, Stream
from trisplit.mesh.tail import Tail, tail_of
from trisplit.mesh.trips import Trips
from trisplit.models.session import Floats
from trisplit.wire.choosing import Sample
from trisplit.wire.frame import DECODED, Activation


class Sampler(Protocol):
    """Chooses what follows, and feeds what nobody has drafted unless drafts go in rounds."""

    async def order(self, order: Sample) -> None:
        """How to choose from now on; it holds for rows of the stream's epoch."""

    def draft(self, position: int, ids: Sequence[int]) -> None:
        """These ids are fed from `position` on."""

    async def came(self) -> list[Came]:
        """What was chosen since it was asked last."""


def sampler(trips: Trips, stream: Stream) -> Sampler:
    """Whoever samples this stream."""
    return Here(trips, stream) if trips.ends is not None else There(trips, stream)


class There:
    """The tail of a ring."""

    def __init__(self, trips: Trips, stream: Stream) -> None:
        self._trips, self._stream = trips, stream

    async def order(self, order: Sample) -> None:
        self._stream.order = order
        await self._trips.order(order)

    def draft(self, position: int, ids: Sequence[int]) -> None:
        self._trips.draft(self._stream, position, ids)

    async def came(self) -> list[Came]:
        return [*iter(self._stream.next_came, None)]


class Here:
    """The coordinator of a chain or a star, to whom all rows come back."""

    def __init__(self, trips: Trips, stream: Stream) -> None:
        self._trips, self._stream = trips, stream
        self._tail: Tail | None = None

    async def order(self, order: Sample) -> None:
        self._stream.rows, self._tail = deque(), tail_of(order)

    def draft(self, position: int, ids: Sequence[int]) -> None:
        if self._tail is not None:
            self._tail.draft(self._stream.epoch, position, ids)

    async def came(self) -> list[Came]:
        rows, tail = self._stream.rows, self._tail
        while rows and tail is not None:
            said = rows.popleft()
            if said.position + said.rows >= tail.known:  # no echo of a prompt
                await self._after(said, tail)
        return [*iter(self._stream.next_came, None)]

    async def _after(self, said: Activation, tail: Tail) -> None:
        """What these rows lead to; what was not drafted is fed."""
        stream, number = self._stream, self._stream.order_number
        rows = np.frombuffer(said.payload, dtype=np.float32).reshape(said.rows, 1, -1)
        logits: list[Floats] = await asyncio.gather(*(self._trips.logits(row) for row in rows))
        if number != stream.order_number:  # given up meanwhile
            return
        chosen = tail.after(said.epoch, said.position + 1, np.stack(logits))
        if chosen is None:
            return
        if chosen.epoch != stream.epoch:
            stream.turn(chosen.epoch, chosen.position)
        for at, token_id in enumerate(chosen.token_ids, chosen.position):
            stream.stand(at, token_id)
        if chosen.feeds:
            self._trips.say(stream, chosen.position, chosen.token_ids, DECODED)
        if chosen.voids:
            self._trips.fence(stream)
