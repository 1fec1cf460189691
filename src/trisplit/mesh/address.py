"""Where stations are: reading addresses, dialling them, and whether other machines can reach them."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from trisplit.errors import RequestProblem

_TLS: Final = "wss://"
_PLAIN: Final = "ws://"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a station listens, and whether it speaks TLS there: HOST:PORT, or wss://HOST:PORT."""

    host: str
    port: int
    tls: bool = False

    @classmethod
    def read(cls, text: str) -> Address:
        """What a person or a peer wrote; `RequestProblem` when it is no address.

        >>> Address.read("wss://attic.example.com:4001"), Address.read("[::1]:4001").host
        (Address(host='attic.example.com', port=4001, tls=True), '::1')
        """
        tls = text.startswith(_TLS)
        return cls(*host_and_port(text.removeprefix(_TLS if tls else _PLAIN)), tls)

    def __str__(self) -> str:
        """As `read` takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_TLS if self.tls else ''}{host}:{self.port}"


def host_and_port(address: str) -> tuple[str, int]:
    """The two halves of HOST:PORT ([HOST]:PORT for IPv6); `RequestProblem` when it is not that.

    >>> host_and_port("127.0.0.1:4001"), host_and_port("[::1]:0")
    (('127.0.0.1', 4001), ('::1', 0))
    """
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare and bare == host) or not re.fullmatch("[0-9]{1,5}", port):
        fix = "write HOST:PORT, as 127.0.0.1:4001, and wss:// before it for TLS"
        raise RequestProblem(f"{address!r} is not an address", fix=fix)
    if int(port) >= 2**16:
        raise RequestProblem(f"port {port} does not exist", fix="choose one below 65536")
    return bare, int(port)


def neighbours(address: str, count: int) -> list[str]:
    """The address and those at the ports after it; port 0, any free one, has itself for a neighbour.

    >>> neighbours("127.0.0.1:4001", 3), neighbours("[::1]:0", 2)
    (['127.0.0.1:4001', '127.0.0.1:4002', '127.0.0.1:4003'], ['[::1]:0', '[::1]:0'])
    """
    host, (_, port) = address.rpartition(":")[0], host_and_port(address)
    places = [f"{host}:{port and port + i}" for i in range(count)]
    host_and_port(places[-1])
    return places


def is_loopback(host: str) -> bool:
    """Whether a socket bound to this host can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reason(error: OSError) -> str:
    """Why a socket call failed, in the system's own words: asyncio puts addresses where those should be."""
    if isinstance(error, ssl.SSLError):  # its numbers are not the system's
        why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason
        return (why or str(error)).lower().replace("_", " ")
    said = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return said or type(error).__name__


async def dial(host: str, port: int) -> socket.socket:
    """A connected TCP socket, by the first of the host's addresses that answers; `OSError` when none does."""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # what Python says of names that no resolver would take
        raise OSError(f"{host!r} is no host name: {error}") from None
    refused = OSError("the name has no address")
    for family, kind, proto, _, where in addresses:
        sock = socket.socket(family, kind, proto)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, where)
        except OSError as error:
            sock.close()
            refused = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise refused
