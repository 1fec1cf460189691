"""Links over real sockets: the dialogue, and peers that stall, leave, or die."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import picows
import pytest
import uvloop

from tests.mesh.peers import (
    COORDINATOR,
    ROW,
    TIME_S,
    UPSTREAM,
    WELCOME,
    Raw,
    address_of,
    call,
    call_and_open,
    end_of,
    say,
    station,
)
from tests.wire.words import EXAMPLES, framed
from trisplit.errors import OwnProblem, PeerProblem
from trisplit.mesh import link as link_module
from trisplit.mesh.calling import connect
from trisplit.mesh.link import MAX_WAITING, Link
from trisplit.wire.frame import Activation
from trisplit.wire.messages import Bye, Close, Closed, Facts, Fault, Joined, Ping, Pong
from trisplit.wire.session import Said


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_the_whole_dialogue(run: Callable[[Awaitable[None]], None]) -> None:
    async def dialogue() -> None:
        async with station() as server:
            link = await call_and_open(server)
            assert link.welcome == WELCOME
            assert link.peer == f"station s2 at 127.0.0.1:{server.port}"
            large = Activation(1, 7, 1, 2, 512, bytes(range(256)) * 9216, residual=True)
            for said in (ROW, large, ROW):
                link.send(said)
                assert await link.expect(Activation, TIME_S) == said
            link.send(EXAMPLES["Ask"])
            assert await link.expect(Facts, TIME_S) == EXAMPLES["Facts"]
            link.send(Ping(5))
            assert await link.expect(Pong, TIME_S) == Pong(5)
            link.send(Close(1))
            assert await link.expect(Closed, TIME_S) == Closed(1)
            await link.close("done")

    run(dialogue())


def test_a_station_calls_its_successor() -> None:
    async def dialogue() -> None:
        heard: list[Activation] = []
        all_here = asyncio.Event()

        async def accept(link: Link) -> None:
            assert link.hello == UPSTREAM
            assert link.peer.startswith("station s1 at 127.0.0.1:")

            def take(said: Activation) -> None:
                heard.append(Activation(said.stream, said.position, 0, 0, 1, bytes(said.payload)))
                if len(heard) == 100:
                    all_here.set()

            link.on_activation = take
            await link.wait_closed()

        async with station(accept) as server:
            link = await call(server, UPSTREAM)
            sent = [Activation(1, position, 0, 0, 1, bytes([position] * 2304)) for position in range(100)]
            for said in sent:
                link.send(said)
            await asyncio.wait_for(all_here.wait(), TIME_S)
            assert heard == sent
            await link.close()

    asyncio.run(dialogue())


def test_without_a_sink_the_payload_outlives_the_receive_buffer() -> None:
    async def dialogue() -> None:
        async with station() as server:
            link = await call_and_open(server)
            for fill in range(50):
                link.send(Activation(1, fill, 0, 0, 1, bytes([fill] * 2304)))
            kept = [await link.expect(Activation, TIME_S) for _ in range(50)]
            assert [bytes(said.payload) for said in kept] == [bytes([fill] * 2304) for fill in range(50)]
            await link.close()

    asyncio.run(dialogue())


STATION_PROCESS = """
import asyncio
from tests.mesh.peers import station

async def serve():
    async with station() as server:
        print(server.port, flush=True)
        await asyncio.sleep(60)

asyncio.run(serve())
"""


def test_a_killed_station_is_noticed_at_once() -> None:
    async def dialogue(process: subprocess.Popen[str], port: int) -> None:
        address = f"127.0.0.1:{port}"
        link = await connect(address, hello=COORDINATOR, deadline_s=TIME_S)
        asyncio.get_running_loop().call_later(0.05, process.kill)
        start = time.monotonic()
        with pytest.raises(PeerProblem) as caught:
            await link.receive(60.0)
        assert time.monotonic() - start < 2.0
        assert caught.value.what == f"station s2 at {address} hung up without a word"
        with pytest.raises(PeerProblem, match="hung up"):
            link.send(EXAMPLES["Ask"])
        await link.close()
        await asyncio.to_thread(process.wait)
        with pytest.raises(PeerProblem, match=f"the station at {address} cannot be reached"):
            await connect(address, hello=COORDINATOR, deadline_s=TIME_S)

    with subprocess.Popen(
        [sys.executable, "-c", STATION_PROCESS], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            asyncio.run(dialogue(process, int(process.stdout.readline())))
        finally:
            process.kill()


def test_a_deadline_is_kept_and_the_link_stays_open() -> None:
    async def dialogue() -> None:
        async with station() as server:
            link = await call(server)
            start = time.monotonic()
            with pytest.raises(PeerProblem, match=r"station s2 at .* said nothing for 0\.1 s"):
                await link.receive(0.1)
            assert 0.09 < time.monotonic() - start < 1.0
            link.send(EXAMPLES["Ask"])
            await link.expect(Facts, TIME_S)
            await link.close()

    asyncio.run(dialogue())


@pytest.mark.parametrize("host", ["x" * 64 + ".y", "a\0b"])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(PeerProblem, match="cannot be reached"):
        asyncio.run(connect(f"{host}:4001", hello=COORDINATOR, deadline_s=TIME_S))


def test_a_port_that_takes_calls_and_says_nothing() -> None:
    async def dialogue(port: int) -> None:
        start = time.monotonic()
        with pytest.raises(PeerProblem, match=r"did not answer in 0\.2 s"):
            await connect(f"127.0.0.1:{port}", hello=COORDINATOR, deadline_s=0.2)
        assert 0.19 < time.monotonic() - start < 1.0

    with socket.create_server(("127.0.0.1", 0)) as mute:
        asyncio.run(dialogue(mute.getsockname()[1]))


def test_a_station_that_does_not_welcome() -> None:
    async def dialogue() -> None:
        mute = await picows.ws_create_server(lambda _: Raw(), "127.0.0.1", 0)
        start = time.monotonic()
        with pytest.raises(PeerProblem, match=r"did not greet us within 0\.2 s"):
            await connect(address_of(mute), hello=COORDINATOR, deadline_s=0.2)
        assert time.monotonic() - start < 1.0
        mute.close()

    asyncio.run(dialogue())


def test_a_peer_that_does_not_close_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(picows.WSListener):
        """Never answers the closing handshake."""

    async def dialogue() -> None:
        monkeypatch.setattr(link_module, "LINGER_S", 0.1)
        deaf = await picows.ws_create_server(lambda _: Deaf(), "127.0.0.1", 0)
        start = time.monotonic()
        with pytest.raises(PeerProblem, match="did not greet us"):
            await connect(address_of(deaf), hello=COORDINATOR, deadline_s=0.1)
        assert 0.19 < time.monotonic() - start < 1.0
        deaf.close()

    asyncio.run(dialogue())


@pytest.mark.parametrize(
    ("last", "why", "fix"),
    [
        (Bye("the lights go out"), "ended the link: the lights go out", "see whether it still runs"),
        (Fault("no room for 3 GB", "use fewer tokens"), "gave up: no room for 3 GB", "use fewer tokens"),
        (Fault("red \x1b[31m", "y\n"), r"gave up: red \x1b[31m", r"y\n"),
    ],
)
def test_the_last_word_is_heard_and_then_raised(last: Said, why: str, fix: str) -> None:
    async def leave(link: Link) -> None:
        link.send(last)

    async def dialogue() -> None:
        async with station(leave) as server:
            link = await call(server)
            with pytest.raises(PeerProblem) as caught:
                await link.expect(Pong, TIME_S)
            assert caught.value.what == f"station s2 at 127.0.0.1:{server.port} {why}"
            assert fix in caught.value.fix
            assert (await end_of(link)).what == caught.value.what
            with pytest.raises(PeerProblem):
                link.send(Ping(1))
            await link.close()
            other = await call(server)
            assert await other.receive(TIME_S) == last
            await other.close()

    asyncio.run(dialogue())


def test_a_close_frame_without_a_last_word_gives_its_reason() -> None:
    class Leaver(Raw):
        def on_ws_frame(self, transport: picows.WSTransport, _frame: picows.WSFrame) -> None:
            say(transport, framed(WELCOME, 0))
            transport.send_close(picows.WSCloseCode.SERVICE_RESTART, "back soon")

    async def dialogue() -> None:
        leaver = await picows.ws_create_server(lambda _: Leaver(), "127.0.0.1", 0)
        link = await connect(address_of(leaver), hello=COORDINATOR, deadline_s=TIME_S)
        assert (await end_of(link)).what.endswith("closed the connection: back soon (code 1012)")
        await link.close()
        leaver.close()

    asyncio.run(dialogue())


def test_what_nobody_reads_is_not_kept_for_ever() -> None:
    async def forgetful(link: Link) -> None:
        await link.wait_closed()

    async def dialogue() -> None:
        async with station(forgetful) as server:
            link = await call(server, UPSTREAM)
            for position in range(MAX_WAITING + 1):
                link.send(Activation(1, position, 0, 0, 1, bytes(4)))
            assert "gave up: 1,024 messages (31,744 bytes) of station s1" in (await end_of(link)).what
            await link.close()

    asyncio.run(dialogue())


def test_a_problem_in_the_sink_ends_the_link_with_its_words() -> None:
    async def accept(link: Link) -> None:
        def take(said: Activation) -> None:
            raise PeerProblem(f"{len(said.payload)} bytes where 4 were due", fix="send rows of this model")

        link.on_activation = take
        await link.wait_closed()

    async def dialogue() -> None:
        async with station(accept) as server:
            link = await call(server, UPSTREAM)
            link.send(ROW)
            problem = await end_of(link)
            assert "gave up: 2304 bytes where 4 were due" in problem.what
            assert problem.fix == "send rows of this model"
            await link.close()

    asyncio.run(dialogue())


def test_a_defect_in_the_sink_is_raised_where_we_receive() -> None:
    seen: list[Exception] = []

    async def accept(link: Link) -> None:
        link.on_activation = lambda _: seen.append(1 / 0)  # type: ignore[arg-type]
        try:
            await link.receive(TIME_S)
        except ZeroDivisionError as error:
            seen.append(error)

    async def dialogue() -> None:
        async with station(accept) as server:
            link = await call(server, UPSTREAM)
            link.send(ROW)
            assert "gave up: an internal error: ZeroDivisionError" in (await end_of(link)).what
            await link.close()

    asyncio.run(dialogue())
    assert isinstance(seen[0], ZeroDivisionError)


def test_our_own_mistakes_are_ours() -> None:
    async def dialogue() -> None:
        async with station() as server:
            link = await call(server)
            with pytest.raises(OwnProblem, match="Joined while the link is empty"):
                link.send(Joined())
            waiting = asyncio.create_task(link.receive(TIME_S))
            await asyncio.sleep(0)
            with pytest.raises(OwnProblem, match="two readers"):
                await link.receive(TIME_S)
            link.send(EXAMPLES["Ask"])
            assert await waiting == EXAMPLES["Facts"]
            link.send(EXAMPLES["Ask"])
            with pytest.raises(PeerProblem, match="said Facts where Joined was due"):
                await link.expect(Joined, TIME_S)
            await link.close()
            with pytest.raises(PeerProblem, match="is closed"):
                link.send(EXAMPLES["Ask"])

    asyncio.run(dialogue())
