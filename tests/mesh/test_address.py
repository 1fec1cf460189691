"""HOST:PORT is read strictly, and loopback is told from the rest."""

from __future__ import annotations

import pytest

from trisplit.errors import RequestProblem
from trisplit.mesh.address import host_and_port, is_loopback, neighbours


@pytest.mark.parametrize(
    ("address", "halves"),
    [
        ("127.0.0.1:4001", ("127.0.0.1", 4001)),
        ("attic.example.com:0", ("attic.example.com", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses(address: str, halves: tuple[str, int]) -> None:
    assert host_and_port(address) == halves


@pytest.mark.parametrize(
    "address", ["", ":1", "host", "host:", "host:x", "host:-1", "host:²", "::1:5", "[]:5", "host:123456"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(RequestProblem, match="is not an address"):
        host_and_port(address)


def test_ports_end_at_65535() -> None:
    with pytest.raises(RequestProblem, match="port 65536 does not exist"):
        host_and_port("host:65536")


def test_neighbours_have_the_ports_after_it_or_any_free_one() -> None:
    assert neighbours("h:4001", 3) == ["h:4001", "h:4002", "h:4003"]
    assert neighbours("[::1]:0", 2) == ["[::1]:0", "[::1]:0"]
    assert neighbours("h:65535", 1) == ["h:65535"]
    with pytest.raises(RequestProblem, match="port 65536 does not exist"):
        neighbours("h:65535", 2)


@pytest.mark.parametrize(
    ("host", "only_here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
    ],
)
def test_loopback(host: str, only_here: bool) -> None:
    assert is_loopback(host) is only_here
