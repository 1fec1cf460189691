"""Secrets and certificates are read from where they are kept, or refused with what to do."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from tests.mesh.certificates import issue
from trisplit.errors import RequestProblem
from trisplit.mesh.trust import (
    LEAST_BYTES,
    MAKE_ONE,
    MOST_BYTES,
    NOBODY,
    VARIABLE,
    Trust,
    read_trust,
    station_tls,
)

SECRET = b"0123456789abcdef"


def kept(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    file = folder / "mesh.secret"
    file.write_bytes(content)
    file.chmod(mode)
    return file


def test_without_any_there_is_none() -> None:
    assert read_trust(None, None) == NOBODY == Trust()


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    for content in (SECRET, SECRET + b"\n", b" " + SECRET + b"\r\n"):
        assert read_trust(kept(tmp_path, content), None).secret == SECRET


def test_a_secret_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "  another secret, longer\n")
    assert read_trust(None, None).secret == b"another secret, longer"
    assert read_trust(kept(tmp_path, SECRET), None).secret == SECRET, "a file that is named goes first"
    monkeypatch.setenv(VARIABLE, "")
    assert read_trust(None, None).secret is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601])
def test_a_secret_that_others_can_read_is_none(tmp_path: Path, mode: int) -> None:
    file = kept(tmp_path, SECRET, mode)
    with pytest.raises(RequestProblem, match=f"can be read by others \\(mode {mode:04o}\\)") as caught:
        read_trust(file, None)
    assert caught.value.fix == f"chmod 600 {file}"


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match=r"cannot read the secret .*: No such file"):
        read_trust(tmp_path / "nowhere", None)
    with pytest.raises(RequestProblem, match=r"cannot read the secret .*: Is a directory"):
        read_trust(tmp_path, None)


@pytest.mark.parametrize("content", [b"", b"\n", SECRET[:-1], b"x" * (MOST_BYTES + 1), b"x" * 2**20])
def test_a_secret_of_no_use(tmp_path: Path, content: bytes) -> None:
    wanted = rf"bytes where {LEAST_BYTES} to {MOST_BYTES:,} are taken"
    with pytest.raises(RequestProblem, match=wanted) as caught:
        read_trust(kept(tmp_path, content), None)
    assert MAKE_ONE in caught.value.fix


def test_a_secret_that_is_not_text(tmp_path: Path) -> None:
    """It could not be handed to a station process by the environment."""
    with pytest.raises(RequestProblem, match="is not text"):
        read_trust(kept(tmp_path, SECRET + b"\0" + SECRET), None)


def test_the_way_to_make_one_makes_one(tmp_path: Path) -> None:
    assert os.system(f"cd {tmp_path} && {MAKE_ONE}") == 0
    made = read_trust(tmp_path / "mesh.secret", None).secret
    assert made is not None
    assert len(made) == 64


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    trust = read_trust(kept(tmp_path, SECRET), None)
    assert SECRET.decode() not in repr(trust)


# --- certificates ---------------------------------------------------------------------------------


def test_certificates(tmp_path: Path) -> None:
    papers = issue(tmp_path, "127.0.0.1")
    shown = station_tls(papers.cert, papers.key)
    judge = read_trust(None, papers.ca).authorities
    assert shown is not None
    assert judge is not None
    assert judge.verify_mode is ssl.CERT_REQUIRED
    assert judge.check_hostname
    assert {shown.minimum_version, judge.minimum_version} == {ssl.TLSVersion.TLSv1_3}
    assert station_tls(None, None) is None


def test_certificates_of_no_use(tmp_path: Path) -> None:
    papers, others = issue(tmp_path / "one", "127.0.0.1"), issue(tmp_path / "other", "127.0.0.1")
    with pytest.raises(RequestProblem, match="a certificate and its key come together"):
        station_tls(papers.cert, None)
    with pytest.raises(RequestProblem, match="a certificate and its key come together"):
        station_tls(None, papers.key)
    with pytest.raises(RequestProblem, match="no certificate with its key: key values mismatch"):
        station_tls(papers.cert, others.key)
    with pytest.raises(RequestProblem, match="no certificate with its key"):
        station_tls(papers.key, papers.key)
    with pytest.raises(RequestProblem, match=r"cannot read the certificate .*: No such file"):
        station_tls(tmp_path / "nowhere", papers.key)
    with pytest.raises(RequestProblem, match="holds no certificate"):
        read_trust(None, papers.key)
    with pytest.raises(RequestProblem, match=r"cannot read the certificate .*: No such file"):
        read_trust(None, tmp_path / "nowhere")
    papers.key.chmod(0o644)
    with pytest.raises(RequestProblem, match=r"the key .* can be read by others \(mode 0644\)"):
        station_tls(papers.cert, papers.key)


def test_a_key_with_a_password_is_not_asked_for(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    papers = issue(tmp_path, "127.0.0.1")
    key = serialization.load_pem_private_key(papers.key.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"sesame"),
    )
    papers.key.write_bytes(locked)
    with pytest.raises(RequestProblem, match="no certificate with its key") as caught:
        station_tls(papers.cert, papers.key)
    assert "the key without a password" in caught.value.fix
