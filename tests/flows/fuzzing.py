"""Everybody who should not be calling a station: strangers, other meshes, and members of its own gone mad."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import picows

from tests.flows.test_token_trip import CONTEXT
from tests.mesh.peers import COORDINATOR, UPGRADE, UPSTREAM, Raw, raw_call, say
from tests.wire.mutants import Mutator
from tests.wire.words import EXAMPLES, framed
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.pushing import Stock
from trisplit.mesh.streams import Stream
from trisplit.wire.choosing import Fence, Sample
from trisplit.wire.frame import IDS, Activation
from trisplit.wire.greeting import VERSION, Hello
from trisplit.wire.messages import Adopt, Ask, Close, Open, Ping
from trisplit.wire.session import Said

PATIENCE_S = 120.0
AT_ONCE = 6
BURST = 20  # mutants in a row on one connection; behind the first that is refused they meet its end


class Fuzzer:
    """Sends `left` mutants, the same ones for the same seed, to the station on a port of loopback."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self.left = 0
        self._corpus = [framed(said, 0) for said in (*EXAMPLES.values(), UPSTREAM)]
        self._mutator = Mutator(seed, self._corpus)
        self._random = self._mutator.random

    # --- from outside ---

    async def strangers(self, n: int) -> None:
        """`n` mutants from callers that are in no mesh of this station, several at a time."""
        self.left = n
        async with asyncio.timeout(PATIENCE_S + n / 500):
            await asyncio.gather(*(self._one_after_the_other() for _ in range(AT_ONCE)))

    async def _one_after_the_other(self) -> None:
        while self.left > 0:
            await self._random.choice((self._by_bytes, *[self._by_frames] * 5))()

    async def _by_bytes(self) -> None:
        """A caller whose very upgrade or WebSocket frames are damaged."""
        self.left -= 1
        hello = framed(self._random.choice((COORDINATOR, UPSTREAM)), 0)
        frames = [masked(data) for data in (hello, *self._random.choices(self._corpus, k=3))]
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(self._mutator.mutant(UPGRADE + b"\r\n" + b"".join(frames)))
            writer.write_eof()
            await reader.read()
            writer.close()
            await writer.wait_closed()

    async def _by_frames(self) -> None:
        """A caller that says Hello as it should, mostly, and mutants from there on."""
        hello = self._random.choice((COORDINATOR, UPSTREAM))
        words = ("Load", "Ask", "Ping") if hello is COORDINATOR else ("Activation", "Activation", "Ping")
        transport, raw = await raw_call(self._port)
        first = framed(hello, 0)
        if self._random.random() < 0.2:
            self.left -= 1
            first = self._mutator.mutant(first)
        say(transport, first)
        while not raw.heard and not raw.closed.done():
            await asyncio.sleep(0)
        self.burst(transport, [EXAMPLES[word] for word in words], 1)
        await ended(raw)
        transport.disconnect(False)
        await transport.wait_disconnected()

    # --- from inside ---

    async def as_coordinator(self, mesh: Coordinator, stream: Stream) -> None:
        """A coordinator that was sound until now, on its own link."""
        link = mesh._members.link(0)
        self.burst(link._transport, words_of(mesh, stream), link.session._to_send)
        await asyncio.wait([asyncio.create_task(link.wait_closed())], timeout=0.05)

    async def as_member(self, mesh: Coordinator, stream: Stream) -> None:
        """A station of the same mesh: its rows are for streams that are open."""
        transport, raw = await raw_call(self._port)
        say(transport, framed(Hello(VERSION, mesh._members.mesh, "station", "mad"), 0))
        while not raw.heard and not raw.closed.done():
            await asyncio.sleep(0)
        rows = [said for said in words_of(mesh, stream) if isinstance(said, Activation)]
        self.burst(transport, rows, 1)
        await ended(raw)
        transport.disconnect(False)
        await transport.wait_disconnected()

    def burst(self, transport: picows.WSTransport, words: Sequence[Said], at: int) -> None:
        """Mutants of some of these words, from that number of the sequence on."""
        self.left -= BURST
        for n in range(BURST):
            say(transport, self._mutator.mutant(framed(self._random.choice(words), at + n)))


def words_of(mesh: Coordinator, stream: Stream) -> list[Said]:
    """What could be said next about a stream."""
    number = stream.number
    rows = [_rows(mesh, number, at, n) for at, n in ((0, 1), (0, 3), (7, 2))]
    how = {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.0, "repetition_penalty": 1.1, "seed": 5}
    sample = Sample(number, 0, (5, 6, 7), **how, end=CONTEXT, stop_ids=(), drafts="none")  # type: ignore[arg-type]
    load = Stock(mesh.model, "f32", "auto").order(mesh.plan.groups, mesh._members.how)
    orders = (sample, Fence(number, 1), Close(number), Open(number + 1), Ask(), EXAMPLES["Recall"], Ping(1))
    return [*rows, *rows, *orders, load, Adopt(load), EXAMPLES["Join"]]


def _rows(mesh: Coordinator, stream: int, position: int, n: int) -> Activation:
    """Rows that the first group takes: hidden ones, or in a ring ids."""
    if mesh.ends is None:
        return Activation(stream, position, 0, 0, n, (9).to_bytes(4, "little") * n, IDS)
    return Activation(stream, position, 0, 0, n, bytes(4 * mesh.model.config.hidden * n))


def masked(data: bytes) -> bytes:
    """A client's WebSocket frame; its mask changes nothing."""
    n = len(data)
    length = bytes([0x80 + n]) if n < 126 else bytes([0x80 + 126]) + n.to_bytes(2)
    return b"\x82" + length + bytes(4) + data


async def ended(raw: Raw) -> None:
    """Until the station has hung up, or has taken everything for sound."""
    await asyncio.wait([raw.closed], timeout=0.05)
