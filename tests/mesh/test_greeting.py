"""Who knows the secret is let in, and nobody else, whatever they say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import picows
import pytest

from tests.mesh.peers import (
    COORDINATOR,
    ROW,
    SECRET,
    TIME_S,
    UPSTREAM,
    WELCOME,
    Raw,
    address_of,
    call,
    end_of,
    raw_call,
    say,
    station,
)
from tests.wire.words import framed
from trisplit.errors import PeerProblem
from trisplit.mesh.calling import connect
from trisplit.mesh.door import Tally
from trisplit.mesh.link import Link
from trisplit.mesh.trust import Trust
from trisplit.wire import frame, messages, packing
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import Challenge, Counterproof, Hello, Proof
from trisplit.wire.messages import Facts, Ping, Pong
from trisplit.wire.secret import proof
from trisplit.wire.session import Said

KNOWN, OTHER, NONE = Trust(secret=SECRET), Trust(secret=SECRET + b"!"), Trust()


def heard(raw: Raw) -> list[messages.Message]:
    """What a raw caller has been told."""
    said = []
    for data in raw.heard:
        _, body = frame.decode(data)
        assert not isinstance(body, Activation)
        said.append(packing.decode(body))
    return said


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIME_S):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("hello", [COORDINATOR, UPSTREAM], ids=["coordinator", "station"])
def test_who_knows_the_secret_is_let_in(hello: Hello) -> None:
    async def dialogue() -> None:
        tally = Tally()
        async with station(trust=KNOWN, tally=tally) as server:
            link = await call(server, hello, KNOWN)
            assert link.welcome == WELCOME
            link.send(Ping(3))
            assert await link.expect(Pong, TIME_S) == Pong(3)
            await link.close()
        assert tally.refused == 0

    asyncio.run(dialogue())


@pytest.mark.parametrize(
    ("stations", "callers", "why"),
    [
        (KNOWN, OTHER, "gave up: the caller does not know the secret"),
        (KNOWN, NONE, "asks for a secret, and we have none"),
        (NONE, KNOWN, "asks for no secret, and we have one"),
    ],
)
@pytest.mark.parametrize("hello", [COORDINATOR, UPSTREAM], ids=["coordinator", "station"])
def test_both_ends_have_one_secret_or_none(stations: Trust, callers: Trust, why: str, hello: Hello) -> None:
    greeted: list[Link] = []

    async def accept(link: Link) -> None:
        greeted.append(link)

    async def dialogue() -> None:
        tally = Tally()
        async with station(accept, trust=stations, tally=tally) as server:
            with pytest.raises(PeerProblem, match=why) as caught:
                await call(server, hello, callers)
            assert "give both ends the same secret, by --secret-file or TRISPLIT_SECRET" in caught.value.fix
        assert len(greeted) == (stations is NONE)
        assert tally.refused == (stations is KNOWN)

    asyncio.run(dialogue())


def test_the_secret_and_old_nonces_are_never_said() -> None:
    async def dialogue() -> None:
        async with station(trust=KNOWN) as server:
            nonces = set()
            for _ in range(20):
                transport, raw = await raw_call(server.port)
                say(transport, framed(COORDINATOR, 0))
                await until(lambda raw=raw: raw.heard)
                (challenge,) = heard(raw)
                assert isinstance(challenge, Challenge)
                nonces.add(challenge.nonce)
                own = bytes(32)
                answer = proof(SECRET, "caller", COORDINATOR, own, challenge.nonce)
                say(transport, framed(Proof(own, answer), 1))
                await until(lambda raw=raw: len(raw.heard) == 3)
                counter = heard(raw)[1]
                assert isinstance(counter, Counterproof)
                assert counter.proof == proof(SECRET, "called", COORDINATOR, own, challenge.nonce)
                assert SECRET not in b"".join(raw.heard)
                transport.disconnect()
            assert len(nonces) == 20

    asyncio.run(dialogue())


def refused(answer: Callable[[Challenge], list[Said]], hello: Hello = COORDINATOR) -> str:
    """The reason a caller hears that answers a challenge so; that it has not been let in is checked."""
    greeted: list[Link] = []

    async def accept(link: Link) -> None:
        greeted.append(link)

    async def dialogue() -> str:
        tally = Tally()
        async with station(accept, trust=KNOWN, tally=tally) as server:
            transport, raw = await raw_call(server.port)
            say(transport, framed(hello, 0))
            await until(lambda: raw.heard)
            (challenge,) = heard(raw)
            assert isinstance(challenge, Challenge)
            for sequence, said in enumerate(answer(challenge), 1):
                say(transport, framed(said, sequence))
            _, reason = await asyncio.wait_for(raw.closed, TIME_S)
            assert not any(isinstance(said, Counterproof) for said in heard(raw)), "a proof for nothing"
            await until(lambda: tally.refused == 1)
            return reason

    reason = asyncio.run(dialogue())
    assert not greeted
    return reason


OWN = bytes(range(32))


def test_an_old_greeting_opens_nothing() -> None:
    """All a listener on the wire has heard, said again: the station has chosen another number since."""
    old = Proof(OWN, proof(SECRET, "caller", COORDINATOR, OWN, bytes(32)))
    assert refused(lambda _: [old]) == "the caller does not know the secret"


def test_what_the_station_itself_says_opens_nothing() -> None:
    """Its own nonce as ours, and the proof that it would give: the roles are in the proof."""
    back = refused(lambda c: [Proof(c.nonce, proof(SECRET, "called", COORDINATOR, c.nonce, c.nonce))])
    assert back == "the caller does not know the secret"


def test_a_proof_is_for_the_hello_it_came_with() -> None:
    """A coordinator's proof does not open the link of a station."""
    said = refused(lambda c: [Proof(OWN, proof(SECRET, "caller", COORDINATOR, OWN, c.nonce))], UPSTREAM)
    assert said == "the caller does not know the secret"


@pytest.mark.parametrize(
    "said", [Ping(1), Challenge(OWN), Counterproof(OWN), COORDINATOR, ROW, Facts(1, 1, 1, 1, 1, 1, 1)]
)
def test_the_greeting_cannot_be_passed_over(said: Said) -> None:
    word = type(said).__name__
    assert refused(lambda _: [said]) == f"out of turn: {word} while the link is challenged"


def test_a_caller_that_does_not_go_on_is_left_at_the_deadline() -> None:
    async def dialogue() -> None:
        async with station(trust=KNOWN, greeting_s=0.1) as server:
            transport, raw = await raw_call(server.port)
            say(transport, framed(COORDINATOR, 0))
            assert await asyncio.wait_for(raw.closed, TIME_S) == (
                1011,
                "a caller did not greet us within 0.1 s",
            )

    asyncio.run(dialogue())


# --- stations that are none -----------------------------------------------------------------------


class Impostor(Raw):
    """A station that does not know the secret and answers the caller's n-th word as a test wants."""

    def __init__(self, *answers: Callable[[list[messages.Message]], list[Said]]) -> None:
        super().__init__()
        self._answers, self._said = list(answers), 0

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        super().on_ws_frame(transport, frame)
        if not self.closed.done() and self._answers:
            for said in self._answers.pop(0)(heard(self)):
                say(transport, framed(said, self._said))
                self._said += 1


def believed(*answers: Callable[[list[messages.Message]], list[Said]]) -> str:
    """Why a caller that knows the secret leaves such a station."""

    async def dialogue() -> str:
        impostor = await picows.ws_create_server(lambda _: Impostor(*answers), "127.0.0.1", 0)
        try:
            with pytest.raises(PeerProblem) as caught:
                await connect(address_of(impostor), hello=COORDINATOR, deadline_s=0.5, trust=KNOWN)
        finally:
            impostor.close()
        return caught.value.what

    return asyncio.run(dialogue())


def echo(said: list[messages.Message]) -> list[Said]:
    """The caller's own proof, back to it."""
    last = said[-1]
    assert isinstance(last, Proof)
    return [Counterproof(last.proof), WELCOME]


def challenge(_: list[messages.Message]) -> list[Said]:
    return [Challenge(OWN)]


def test_a_caller_is_not_satisfied_with_its_own_proof() -> None:
    assert "does not know our secret" in believed(challenge, echo)


def test_a_caller_is_not_satisfied_without_a_proof() -> None:
    assert "Welcome while the link is proving" in believed(challenge, lambda _: [WELCOME])
    assert "does not know our secret" in believed(challenge, lambda _: [Counterproof(OWN), WELCOME])
    assert "asks for no secret" in believed(lambda _: [WELCOME])


def test_a_caller_does_not_wait_for_a_proof_without_end() -> None:
    assert "did not greet us within 0.5 s" in believed(challenge)
    assert "did not greet us within 0.5 s" in believed()


def test_nobody_notices_those_who_are_refused() -> None:
    async def stranger(port: int) -> None:
        with contextlib.suppress(PeerProblem):
            await connect(f"127.0.0.1:{port}", hello=COORDINATOR, deadline_s=TIME_S, trust=OTHER)

    async def dialogue() -> None:
        async with station(trust=KNOWN) as server:
            link = await call(server, UPSTREAM, KNOWN)
            strangers: list[Awaitable[None]] = [stranger(server.port) for _ in range(30)]
            await asyncio.gather(*strangers)
            link.send(Ping(1))
            assert await link.expect(Pong, TIME_S) == Pong(1)
            await link.close("done")
            assert (await end_of(link)).what.endswith("is closed")

    asyncio.run(dialogue())
