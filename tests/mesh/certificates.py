"""Certificates for tests: an authority of its own, and what it says of a station on loopback."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Papers:
    """PEM files: a station's certificate and key, and the authority to trust it by."""

    cert: Path
    key: Path
    ca: Path


def issue(folder: Path, *names: str, expired: bool = False) -> Papers:
    """Papers for a station that is called by these names, valid from now on or no more."""
    folder.mkdir(exist_ok=True)
    papers = Papers(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    authority = trustme.CA()
    past = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC) if expired else None
    issued = authority.issue_cert(*names, not_before=past, not_after=past)
    papers.ca.write_bytes(authority.cert_pem.bytes())
    papers.cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    papers.key.write_bytes(issued.private_key_pem.bytes())
    papers.key.chmod(0o600)
    return papers
