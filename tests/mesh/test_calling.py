"""Calling stations that speak TLS: trusted by what was named, and by nothing else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from tests.mesh.certificates import Papers, issue
from tests.mesh.peers import COORDINATOR, ROW, SECRET, TIME_S, call_and_open, end_of, station
from trisplit.errors import PeerProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.door import MAX_STRANGERS
from trisplit.mesh.trust import Trust, read_trust, station_tls
from trisplit.wire.frame import Activation

Run = Callable[[Awaitable[None]], None]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return issue(tmp_path_factory.mktemp("papers"), "127.0.0.1", "localhost")


def trusting(ca: Path | None, secret: bytes | None = SECRET) -> Trust:
    return Trust(secret=secret, authorities=read_trust(None, ca).authorities)


async def call_by(address: str, trust: Trust) -> None:
    link = await connect(address, hello=COORDINATOR, deadline_s=TIME_S, trust=trust)
    await link.close()


@both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_link_over_tls(run: Run, host: str, papers: Papers) -> None:
    trust = trusting(papers.ca)

    async def dialogue() -> None:
        async with station(trust=trust, tls=station_tls(papers.cert, papers.key)) as server:
            link = await call_and_open(server, f"wss://{host}:{server.port}", trust)
            large = Activation(1, 7, 1, 2, 512, bytes(range(256)) * 9216, residual=True)
            for said in (ROW, large, ROW):
                link.send(said)
                assert await link.expect(Activation, TIME_S) == said
            await link.close("done")

    run(dialogue())


@both_loops
def test_the_certificate_itself_will_do(run: Run, papers: Papers) -> None:
    async def dialogue() -> None:
        async with station(tls=station_tls(papers.cert, papers.key)) as server:
            await call_by(f"wss://127.0.0.1:{server.port}", trusting(papers.cert, None))

    run(dialogue())


@both_loops
@pytest.mark.parametrize(
    ("names", "expired", "mine", "why"),
    [
        (("127.0.0.1",), False, False, "unable to get local issuer certificate"),
        (("127.0.0.1",), True, True, "certificate has expired"),
        (("192.0.2.1", "localhost"), False, True, "ip address mismatch"),
    ],
    ids=["of another authority", "expired", "of another host"],
)
def test_a_certificate_that_cannot_be_trusted(
    run: Run, names: tuple[str, ...], expired: bool, mine: bool, why: str, papers: Papers, tmp_path: Path
) -> None:
    shown = issue(tmp_path, *names, expired=expired)
    trust = trusting(shown.ca if mine else papers.ca)

    async def dialogue() -> None:
        async with station(trust=trust, tls=station_tls(shown.cert, shown.key)) as server:
            address = f"wss://127.0.0.1:{server.port}"
            with pytest.raises(PeerProblem, match=f"{address} cannot be trusted: .*{why}") as caught:
                await call_by(address, trust)
            assert "--ca" in caught.value.fix

    run(dialogue())


def test_what_the_system_trusts_does_not_hold_ours(papers: Papers) -> None:
    async def dialogue() -> None:
        async with station(tls=station_tls(papers.cert, papers.key)) as server:
            with pytest.raises(PeerProblem, match="cannot be trusted"):
                await call_by(f"wss://127.0.0.1:{server.port}", Trust())

    asyncio.run(dialogue())


@both_loops
def test_tls_on_one_side_only(run: Run, papers: Papers, caplog: pytest.LogCaptureFixture) -> None:
    async def dialogue() -> None:
        async with (
            station(greeting_s=0.5) as plain,
            station(tls=station_tls(papers.cert, papers.key)) as shut,
        ):
            for address in (f"wss://127.0.0.1:{plain.port}", f"127.0.0.1:{shut.port}"):
                with pytest.raises(PeerProblem) as caught:
                    await call_by(address, trusting(papers.ca, None))
                assert "with TLS (wss://) on both sides or on none" in caught.value.fix
            _, hasty = await asyncio.open_connection("127.0.0.1", shut.port)
            hasty.write(b"\x16\x03\x01\x02\x00\x01")
            hasty.close()
            await hasty.wait_closed()
            await call_by(f"wss://127.0.0.1:{shut.port}", trusting(papers.ca, None))

    run(dialogue())
    assert not caplog.records, "what peers do is raised, not printed"


def test_an_older_tls_is_not_spoken(papers: Papers) -> None:
    async def dialogue() -> None:
        old = ssl.create_default_context(cafile=papers.ca)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        async with station(tls=station_tls(papers.cert, papers.key)) as server:
            with pytest.raises((ssl.SSLError, OSError)):
                await asyncio.open_connection("127.0.0.1", server.port, ssl=old)

    asyncio.run(dialogue())


def test_callers_that_begin_tls_and_no_more_are_left(papers: Papers) -> None:
    async def dialogue() -> None:
        tls = station_tls(papers.cert, papers.key)
        async with station(trust=trusting(None), tls=tls, greeting_s=0.3) as server:
            address, trust = f"wss://127.0.0.1:{server.port}", trusting(papers.ca)
            stuck = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_STRANGERS)]
            for _, writer in stuck:
                writer.write(b"\x16\x03\x01\x02\x00\x01")
            with pytest.raises(PeerProblem):
                await call_by(address, trust)
            for reader, writer in stuck:
                await asyncio.wait_for(reader.read(), TIME_S)
                writer.close()
            await call_by(address, trust)

    asyncio.run(dialogue())


def test_the_secret_is_asked_for_under_tls_too(papers: Papers) -> None:
    async def dialogue() -> None:
        tls = station_tls(papers.cert, papers.key)
        async with station(trust=Trust(secret=SECRET), tls=tls) as server:
            address = f"wss://127.0.0.1:{server.port}"
            with pytest.raises(PeerProblem, match="the caller does not know the secret"):
                await call_by(address, trusting(papers.ca, SECRET + b"!"))
            link = await connect(address, hello=COORDINATOR, deadline_s=TIME_S, trust=trusting(papers.ca))
        assert "ended the link" in (await end_of(link)).what
        await link.close()

    asyncio.run(dialogue())
