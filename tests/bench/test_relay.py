"""Bytes through relays: whole, in order, never early; links that are cut and healed; and no remains."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.bench.test_rounds import gone, is_alive
from trisplit.bench.delays import Delay
from trisplit.bench.forwarder import MAX_HELD_BYTES
from trisplit.bench.probe import measure
from trisplit.bench.relay import RelayLink, Relays, links_between, relays
from trisplit.errors import RequestProblem, UnknownName

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

DEADLINE_S = 20.0


def run(main: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main

    asyncio.run(within())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says everything again until the caller has said all, then ends as well."""
    while said := await reader.read(1 << 16):
        writer.write(said)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def station(serve: Serve = echo) -> AsyncIterator[str]:
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def dial(running: Relays, caller: str, name: str) -> Streams:
    host, port = running.addresses_for[caller][name].split(":")
    return await asyncio.open_connection(host, int(port))


async def hang_up(*streams: Streams) -> None:
    for _, writer in streams:
        writer.close()
        await writer.wait_closed()


def link(caller: str, name: str, address: str, **delay: float) -> RelayLink:
    return RelayLink(
        caller=caller, station=name, address=address, delay=Delay(**{"one_way_ms": 1.0, **delay})
    )


async def asked(streams: Streams, message: bytes) -> tuple[bytes, float]:
    """The answer to a message of the same length, and the milliseconds it took."""
    reader, writer = streams
    began = time.monotonic()
    writer.write(message)
    return await reader.readexactly(len(message)), 1e3 * (time.monotonic() - began)


def test_a_question_and_its_answer_take_both_ways_of_their_own_link() -> None:
    async def main() -> None:
        async with station() as address:
            links = [link("a", "near", address, one_way_ms=10), link("a", "far", address, one_way_ms=30)]
            async with relays(links) as r:
                streams = [await dial(r, "a", name) for name in ("near", "far")]
                (near_said, near_ms), (far_said, far_ms) = [await asked(s, b"hello") for s in streams]
                assert near_said == far_said == b"hello"
                assert near_ms >= 20
                assert far_ms >= 60
                await hang_up(*streams)

    run(main())


@pytest.mark.parametrize("ms", [0.0, 0.1, 3.0])
def test_no_message_is_ever_early(ms: float) -> None:
    late = asyncio.run(measure(Delay(one_way_ms=ms), messages=40))
    assert late.n == 80
    assert 0 <= late.best_ms <= late.p50_ms <= late.p95_ms <= late.max_ms


def test_a_rate_holds_a_message_until_its_last_byte_has_left() -> None:
    """4000 bytes at 8 Mbit/s take 4 ms, which belong to what is nominal."""

    async def main() -> None:
        assert (await measure(Delay(one_way_ms=1, mbit=8), messages=5, n_bytes=4000)).best_ms >= 0
        async with station() as address, relays([link("a", "b", address, mbit=8)]) as r:
            streams = await dial(r, "a", "b")
            assert (await asked(streams, bytes(4000)))[1] >= 2 * (1 + 4)
            await hang_up(streams)

    run(main())


def test_millions_of_bytes_in_chunks_of_any_size_stay_in_order_under_jitter() -> None:
    async def main() -> None:
        async with station() as address, relays([link("a", "b", address, jitter_ms=5)]) as r:
            reader, writer = streams = await dial(r, "a", "b")
            pieces = [os.urandom(1 + n * n % 70_001) for n in range(200)]

            async def say() -> None:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                writer.write_eof()

            saying = asyncio.create_task(say())
            assert await reader.read(-1) == b"".join(pieces)
            await saying
            await hang_up(streams)

    run(main())


def test_many_callers_of_one_port_do_not_hear_each_other() -> None:
    async def main() -> None:
        async with station() as address, relays([link("a", "b", address)]) as r:
            callers = [await dial(r, "a", "b") for _ in range(20)]
            said = await asyncio.gather(*(asked(s, bytes([n]) * 99) for n, s in enumerate(callers)))
            assert [answer for answer, _ in said] == [bytes([n]) * 99 for n in range(20)]
            await hang_up(*callers)

    run(main())


# --- ends of connections --------------------------------------------------------------------------


def test_an_end_arrives_after_everything_that_was_said_before_it() -> None:
    async def main() -> None:
        async def farewell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"last words")
            writer.close()

        async with station(farewell) as address, relays([link("a", "b", address)]) as r:
            reader, writer = streams = await dial(r, "a", "b")
            assert await reader.read(-1) == b"last words"
            writer.write_eof()
            await hang_up(streams)

    run(main())


def test_a_station_that_is_not_there_or_breaks_off_ends_the_connection() -> None:
    async def main() -> None:
        async def break_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        async with station() as left:
            pass
        async with (
            station(break_off) as rude,
            relays([link("a", "left", left), link("a", "rude", rude)]) as r,
        ):
            for name in ("left", "rude"):
                reader, writer = streams = await dial(r, "a", name)
                writer.write(b"is anybody there?")
                assert await reader.read(-1) == b""
                await hang_up(streams)

    run(main())


def test_the_station_hears_that_its_caller_has_gone() -> None:
    async def main() -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.put_nowait(await reader.read(-1))
            writer.close()

        async with station(listen) as address, relays([link("a", "b", address)]) as r:
            streams = await dial(r, "a", "b")
            streams[1].write(b"and gone")
            await hang_up(streams)
            assert await heard.get() == b"and gone"

    run(main())


# --- orders ---------------------------------------------------------------------------------------


def test_a_cut_link_is_silent_and_says_everything_once_it_is_healed() -> None:
    """The other link, ten times as long, tells when the cut one would have answered."""

    async def main() -> None:
        async with station() as address:
            links = [link("a", "s1", address), link("a", "s2", address, one_way_ms=10)]
            async with relays(links) as r:
                (reader, writer), clock = streams = [await dial(r, "a", name) for name in ("s1", "s2")]
                await asked(streams[0], b"before")
                await r.cut("s1")
                writer.write(b"one ")
                await asked(clock, b"tick")
                writer.write(b"two")
                answer = asyncio.ensure_future(reader.readexactly(len(b"one two")))
                await asked(clock, b"tick")
                assert not answer.done()
                await r.heal("s1")
                assert await answer == b"one two"
                await hang_up(*streams)

    run(main())


def test_not_even_an_end_is_heard_over_a_cut_link() -> None:
    async def main() -> None:
        goes = asyncio.Event()

        async def go(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await goes.wait()
            writer.close()

        async with station(go) as leaving, station() as staying:
            links = [link("a", "s1", leaving), link("a", "s2", staying, one_way_ms=10)]
            async with relays(links) as r:
                (reader, _), clock = streams = [await dial(r, "a", name) for name in ("s1", "s2")]
                await r.cut("a", "s1")
                goes.set()
                end = asyncio.ensure_future(reader.read(-1))
                await asked(clock, b"tick")
                assert not end.done()
                await r.heal("a", "s1")
                assert await end == b""
                await hang_up(*streams)

    run(main())


def test_another_delay_holds_from_now_on_for_the_links_it_names() -> None:
    async def main() -> None:
        async with station() as address:
            links = [link("a", name, address) for name in ("s1", "s2")]
            async with relays(links) as r:
                streams = [await dial(r, "a", name) for name in ("s1", "s2")]
                await r.change(Delay(one_way_ms=40), "s2")
                assert (await asked(streams[1], b"x"))[1] >= 80
                await r.change(Delay(one_way_ms=25))
                assert (await asked(streams[0], b"x"))[1] >= 50
                await hang_up(*streams)

    run(main())


def test_lateness_is_told_for_each_chunk_once() -> None:
    async def main() -> None:
        async with station() as address, relays([link("a", "b", address)]) as r:
            assert await r.lateness() is None
            streams = await dial(r, "a", "b")
            for _ in range(3):
                await asked(streams, b"x")
            late = await r.lateness()
            assert late
            assert late.n == 6
            assert late.best_ms >= 0
            assert await r.lateness() is None
            await hang_up(streams)

    run(main())


def test_a_sender_waits_when_nobody_hears_it_and_nothing_is_lost() -> None:
    """More than relays hold back and sockets buffer; without a limit all of it would be taken."""

    async def main() -> None:
        n_bytes = MAX_HELD_BYTES + (32 << 20)
        async with station() as address, relays([link("a", "b", address)]) as r:
            reader, writer = streams = await dial(r, "a", "b")
            await r.cut("b")
            writer.transport.set_write_buffer_limits(0)
            writer.write(bytes(n_bytes))
            saying = asyncio.create_task(writer.drain())
            done, _ = await asyncio.wait([saying], timeout=1.0)
            assert not done
            await r.heal("b")
            assert not any(await reader.readexactly(n_bytes))
            await saying
            await hang_up(streams)

    run(main())


def test_names_that_no_link_has_are_refused() -> None:
    async def main() -> None:
        async with relays([link("a", "s1", "127.0.0.1:1")]) as r:
            for order in (r.cut("s2"), r.heal("s1", "s2"), r.change(Delay(one_way_ms=1), "s2")):
                with pytest.raises(UnknownName, match="no end of a link is named 's2'"):
                    await order

    run(main())


@pytest.mark.parametrize(
    ("links", "what"),
    [
        ([link("a", "b", "127.0.0.1:1"), link("a", "b", "127.0.0.1:2")], "two links from a to b"),
        ([link("a", "b", "nowhere")], "'nowhere' is not an address"),
    ],
)
def test_links_that_cannot_be_are_refused_before_anything_starts(
    links: Sequence[RelayLink], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("trisplit.bench.relay.running")
    with pytest.raises(RequestProblem) as caught:
        run(_opened(links))
    assert caught.value.what == what


def test_a_system_without_epoll_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.delattr(select, "epoll")
        await _opened([])

    with pytest.raises(RequestProblem, match="emulated links need epoll"):
        run(main())


async def _opened(links: Sequence[RelayLink]) -> None:
    async with relays(links):
        pytest.fail("they were opened")


# --- who is how far from whom -----------------------------------------------------------------------


def test_every_pair_has_a_link_and_a_far_station_is_far_from_everybody() -> None:
    addresses = {"s1": "127.0.0.1:1", "s2": "127.0.0.1:2", "s3": "127.0.0.1:3"}
    links = links_between(addresses, Delay(one_way_ms=20, mbit=100), farther={"s3": 3.0})
    assert {(one.caller, one.station, one.address): one.delay.one_way_ms for one in links} == {
        ("coordinator", "s1", "127.0.0.1:1"): 20,
        ("coordinator", "s2", "127.0.0.1:2"): 20,
        ("coordinator", "s3", "127.0.0.1:3"): 60,
        ("s1", "s2", "127.0.0.1:2"): 20,
        ("s1", "s3", "127.0.0.1:3"): 60,
        ("s2", "s1", "127.0.0.1:1"): 20,
        ("s2", "s3", "127.0.0.1:3"): 60,
        ("s3", "s1", "127.0.0.1:1"): 60,
        ("s3", "s2", "127.0.0.1:2"): 60,
    }
    assert {one.delay.mbit for one in links} == {100}
    with pytest.raises(UnknownName, match="no station is named 's4'"):
        links_between(addresses, Delay(one_way_ms=20), farther={"s4": 3.0})


# --- processes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_relays_end_with_the_process_that_started_them(how: signal.Signals) -> None:
    code = """
import asyncio, json
from trisplit.bench.delays import Delay
from trisplit.bench.relay import RelayLink, relays
async def run():
    link = RelayLink(caller="a", station="b", address="127.0.0.1:1", delay=Delay(one_way_ms=60_000))
    async with relays([link]) as running:
        host, port = running.addresses_for["a"]["b"].split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"under way")
        print(json.dumps(running._worker._process.pid), flush=True)
        await asyncio.sleep(60)
asyncio.run(run())
"""
    parent = subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pid = json.loads(parent.stdout.readline())
    assert is_alive(pid)
    parent.send_signal(how)
    parent.wait(10)
    parent.stdout.close()
    assert gone([pid])
