"""Who may call, who is hung up on, and where we listen."""

from __future__ import annotations

import asyncio

import pytest

from tests.mesh.peers import (
    ROW,
    SECRET,
    TIME_S,
    UPGRADE,
    WELCOME,
    answer_all,
    call,
    call_and_open,
    end_of,
    raw_call,
    station,
)
from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh import server as server_module
from trisplit.mesh.door import Tally
from trisplit.mesh.link import Link
from trisplit.mesh.server import listen
from trisplit.mesh.trust import Trust
from trisplit.wire.frame import Activation
from trisplit.wire.messages import Pong


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00" * 20 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        UPGRADE + b"Origin: http://example.com\r\n\r\n",
        UPGRADE.replace(b"Version: 13", b"Version: \xff") + b"\r\n",
        b"x" * 20_000,
        b"",
    ],
    ids=["TLS", "plain HTTP", "a browser", "a version that is no text", "endless header", "silence"],
)
def test_callers_without_a_websocket_are_hung_up_on(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def dialogue() -> None:
        async with station(greeting_s=0.2) as server:
            bystander = await call_and_open(server)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            answer = await asyncio.wait_for(reader.read(), TIME_S)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
            writer.close()
            await writer.wait_closed()
            bystander.send(ROW)
            await bystander.expect(Activation, TIME_S)
            await bystander.close()

    asyncio.run(dialogue())
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_caller_that_never_says_hello_is_told_so() -> None:
    async def dialogue() -> None:
        async with station(greeting_s=0.1) as server:
            _, raw = await raw_call(server.port)
            code, reason = await asyncio.wait_for(raw.closed, TIME_S)
            assert (code, reason) == (1011, "a caller did not greet us within 0.1 s")

    asyncio.run(dialogue())


def test_a_problem_of_the_station_is_told_with_its_fix() -> None:
    async def accept(_link: Link) -> None:
        raise RequestProblem("a context of 9 tokens \ud800" + "x" * 5000, fix="ask for more")

    async def dialogue() -> None:
        async with station(accept) as server:
            link = await call(server)
            with pytest.raises(PeerProblem, match=r"gave up: a context of 9 tokens \\ud800xxx") as caught:
                await link.expect(Pong, TIME_S)
            assert caught.value.fix == "ask for more"
            await link.close()

    asyncio.run(dialogue())


def test_closing_the_server_says_bye_to_everybody() -> None:
    async def dialogue() -> None:
        async with station() as server:
            links = [await call(server) for _ in range(3)]
        for link in links:
            assert "ended the link" in (await end_of(link)).what
            await link.close()
        with pytest.raises(PeerProblem, match="cannot be reached"):
            await call(server)

    asyncio.run(dialogue())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.com"])
def test_nobody_listens_beyond_loopback(host: str) -> None:
    with pytest.raises(RequestProblem, match="can be reached from other machines, and there is no secret"):
        asyncio.run(listen(host, 0, welcome=WELCOME, accept=answer_all))


def test_with_a_secret_it_listens_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "is_loopback", lambda _: False)
    trust = Trust(secret=SECRET)

    async def dialogue() -> None:
        async with station(trust=trust) as server:
            await (await call(server, trust=trust)).close()

    asyncio.run(dialogue())


def test_what_is_no_host_to_listen_on() -> None:
    trust = Trust(secret=SECRET)
    for host in ("x" * 64 + ".y", "a\0b", "192.0.2.1"):
        with pytest.raises(RequestProblem, match="cannot listen on"):
            asyncio.run(listen(host, 0, welcome=WELCOME, accept=answer_all, trust=trust))


def test_who_comes_when_it_is_full_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_LINKS", 2)

    async def dialogue() -> None:
        tally = Tally()
        async with station(tally=tally) as server:
            first, second = await call(server), await call(server)
            third = await call(server)
            assert "gave up: 2 others are connected already" in (await end_of(third)).what
            await third.close()
            await first.close()
            fourth = await call_and_open(server)
            fourth.send(ROW)
            await fourth.expect(Activation, TIME_S)
            await fourth.close()
            await second.close()
        assert tally.refused == 1

    asyncio.run(dialogue())


def test_a_port_in_use_is_a_request_problem() -> None:
    async def dialogue() -> None:
        async with station() as server:
            with pytest.raises(RequestProblem, match=f"cannot listen on 127.0.0.1:{server.port}"):
                await listen("127.0.0.1", server.port, welcome=WELCOME, accept=answer_all)

    asyncio.run(dialogue())
