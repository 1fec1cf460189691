"""What tells friends from strangers: the secret of a mesh, and certificates, read from where they are."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trisplit.errors import RequestProblem

VARIABLE: Final = "TRISPLIT_SECRET"
LEAST_BYTES: Final = 16  # who has heard a greeting may try secrets at home, as fast as a machine can
MOST_BYTES: Final = 4096

MAKE_ONE: Final = "(umask 077; python3 -c 'import secrets; print(secrets.token_hex(32))' > mesh.secret)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What this end of a link goes by: the secret both ends must know, and whose certificates it takes.

    Without a secret none is asked for and none is given; a mesh has one on every link or on none.
    `authorities` judges stations that speak TLS; None leaves that to what the system trusts.
    """

    secret: bytes | None = field(default=None, repr=False)
    authorities: ssl.SSLContext | None = field(default=None, repr=False)


NOBODY: Final = Trust()


def read_trust(secret_file: Path | None, ca: Path | None) -> Trust:
    """From the files a person named, and TRISPLIT_SECRET where no file is; `RequestProblem` if unusable."""
    return Trust(secret=_read_secret(secret_file), authorities=_read_authorities(ca) if ca else None)


def station_tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What a station shows its callers: a chain of certificates and the key to the first, in PEM."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise RequestProblem("a certificate and its key come together", fix="give both --cert and --key")
    _read_private(key, "key", most_bytes=2**20)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours: no older one need be spoken
    try:
        # No password: a station that waits for one at a terminal nobody sees looks like one that hangs.
        context.load_cert_chain(_readable(cert, "certificate"), key, password="")
    except (ssl.SSLError, ValueError) as error:
        what = f"{cert} and {key} are no certificate with its key: {_said(error)}"
        raise RequestProblem(what, fix="give PEM files of one pair, the key without a password") from None
    return context


def expect_broken_handshakes(loop: asyncio.AbstractEventLoop) -> None:
    """Keeps the loop from printing a traceback for a peer that hangs up in the middle of TLS.

    aiofastnet (1.2) hands the loop's handler the class ConnectionResetError for it, beside raising it
    where a station is called; asyncio prints what it is handed, and fails over a class.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("exception") is not ConnectionResetError:
            loop.default_exception_handler(context)

    if loop.get_exception_handler() is None:
        loop.set_exception_handler(handle)


def _read_authorities(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the host's name as well
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a station's own certificate will do
    try:
        context.load_verify_locations(_readable(ca, "certificate"))
    except ssl.SSLError as error:
        what = f"{ca} holds no certificate: {_said(error)}"
        raise RequestProblem(what, fix="give a PEM file: of an authority, or of the station itself") from None
    return context


def _read_secret(file: Path | None) -> bytes | None:
    if file is None:
        where, raw = VARIABLE, os.environb.get(VARIABLE.encode(), b"").strip()
        if not raw:
            return None
    else:
        where, raw = str(file), _read_private(file, "secret", most_bytes=MOST_BYTES).strip()
    if not LEAST_BYTES <= len(raw) <= MOST_BYTES:
        what = f"the secret in {where} has {len(raw)} bytes where {LEAST_BYTES} to {MOST_BYTES:,} are taken"
        raise RequestProblem(what, fix=f"make one: {MAKE_ONE}")
    if b"\0" in raw:
        raise RequestProblem(f"the secret in {where} is not text", fix=f"make one: {MAKE_ONE}")
    return raw


def _read_private(file: Path, kind: str, *, most_bytes: int) -> bytes:
    """A file's bytes, one more than `most_bytes` at most; refused, as ssh does, when others can read it."""
    try:
        with file.open("rb") as open_file:
            mode = stat.S_IMODE(os.fstat(open_file.fileno()).st_mode)
            if mode & 0o077:
                what = f"the {kind} {file} can be read by others (mode {mode:04o})"
                raise RequestProblem(what, fix=f"chmod 600 {file}")
            return open_file.read(most_bytes + 1)
    except OSError as error:
        what = f"cannot read the {kind} {file}: {error.strerror or error}"
        raise RequestProblem(what, fix="name a file that is there") from None


def _readable(file: Path, kind: str) -> Path:
    """The file, which can be opened: ssl says less about one that cannot."""
    try:
        file.open("rb").close()
    except OSError as error:
        what = f"cannot read the {kind} {file}: {error.strerror or error}"
        raise RequestProblem(what, fix="name a file that is there") from None
    return file


def _said(error: Exception) -> str:
    said = error.reason if isinstance(error, ssl.SSLError) else ""
    return (said or str(error)).lower().replace("_", " ")
