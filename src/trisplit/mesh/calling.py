"""Calling a station or a mesh: a socket, TLS if asked for, a WebSocket, a greeting; a link, or why not."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import picows

from trisplit.errors import PeerProblem
from trisplit.mesh.address import Address, dial, reason
from trisplit.mesh.greeting import greet
from trisplit.mesh.link import LOG, SEE_ITS_OUTPUT, Ears, Link, plain
from trisplit.mesh.trust import NOBODY, Trust, expect_broken_handshakes
from trisplit.wire.frame import MAX_FRAME
from trisplit.wire.greeting import Hello, Role
from trisplit.wire.session import Session, Side

_SOMETHING_ELSE: Final = "see that it listens there, with TLS (wss://) on both sides or on none"
_SIDES: Final[dict[Role, Side]] = {"coordinator": "coordinator", "station": "upstream", "client": "client"}


async def connect(address: str, *, hello: Hello, deadline_s: float, trust: Trust = NOBODY) -> Link:
    """Call a station, or as a client a mesh; exchange Hello and Welcome, all within `deadline_s` seconds.

    Raises `RequestProblem` for an address that is none and `PeerProblem` for everything the other
    side can do; cleaning up after one that does not close takes at most `LINGER_S` more.
    """
    end_s = asyncio.get_running_loop().time() + deadline_s
    where = Address.read(address)
    link = await _upgrade(hello.role, where, trust, deadline_s)
    try:
        async with asyncio.timeout_at(end_s):
            await greet(link, hello, trust.secret)
    except TimeoutError:
        await link.close("no Welcome")
        what = f"{link.peer} did not greet us within {deadline_s:g} s"
        raise PeerProblem(what, fix=SEE_ITS_OUTPUT) from None
    except BaseException:
        await link.close("no Welcome")
        raise
    return link


async def _upgrade(role: Role, where: Address, trust: Trust, deadline_s: float) -> Link:
    """A WebSocket to the address, within the deadline."""
    peer = f"the {'mesh' if role == 'client' else 'station'} at {where}"
    session = Session(_SIDES[role])
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    links: list[Link] = []
    if where.tls:
        expect_broken_handshakes(loop)
    try:
        async with asyncio.timeout(deadline_s):
            sock = await dial(where.host, where.port)
        left_s = max(0.001, end_s - loop.time())  # no time at all is a ValueError to TLS
        await picows.ws_connect(
            lambda _request, _response: Ears(session, peer, links.append),
            f"{where}/" if where.tls else f"ws://{where}/",
            ssl_context=trust.authorities,
            socket_factory=lambda _: sock,
            websocket_handshake_timeout=left_s,
            logger_name=LOG,
            max_frame_size=MAX_FRAME,
            enable_auto_pong=False,
            max_redirects=0,
            ssl_handshake_timeout=left_s if where.tls else None,
        )
    except TimeoutError:
        raise PeerProblem(f"{peer} did not answer in {deadline_s:g} s", fix=SEE_ITS_OUTPUT) from None
    except ssl.SSLCertVerificationError as error:
        fix = "name its certificate, or the authority's, with --ca; and call it by a name written there"
        raise PeerProblem(f"{peer} cannot be trusted: {reason(error)}", fix=fix) from None
    except (ssl.SSLError, ConnectionResetError) as error:
        what = f"{peer} does not speak {'TLS' if where.tls else 'WebSocket'}: {reason(error)}"
        raise PeerProblem(what, fix=_SOMETHING_ELSE) from None
    except OSError as error:
        what = f"{peer} cannot be reached: {reason(error)}"
        raise PeerProblem(what, fix="start it, or mend the address") from None
    except picows.WSError as error:
        what = f"{peer} does not speak WebSocket: {plain(str(error))}"
        raise PeerProblem(what, fix=_SOMETHING_ELSE) from None
    if not links:  # picows calls it success when the socket closes before the upgrade
        raise PeerProblem(f"{peer} hung up before a word", fix=_SOMETHING_ELSE)
    return links[0]
