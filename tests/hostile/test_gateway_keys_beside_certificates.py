"""Private keys that lie beside the caller's certificates, or in one file with them, are not handed to a worker."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from runner.gateway.authority import Authority, trusted

KEY = b"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def own() -> bytes:
    return Authority().certificate


@pytest.mark.parametrize(("name", "first"), [("SSL_CERT_FILE", True), ("REQUESTS_CA_BUNDLE", False)])
def test_of_a_file_with_both_only_the_certificate_is_trusted(
    name: str, first: bool, own: bytes, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(KEY + own if first else own + KEY)
    given = trusted(Authority(), {name: str(both)})
    assert b"PRIVATE KEY" not in given
    assert own.strip() in given


def test_of_a_folder_only_the_certificates_are_trusted(own: bytes, tmp_path: Path) -> None:
    (tmp_path / "own.crt").write_bytes(own)
    (tmp_path / "own.key").write_bytes(KEY)
    (tmp_path / "netrc").write_text("machine judge.example password secret-word")
    # as OpenSSL's own tools lay such a folder out
    (tmp_path / "5ed36f99.0").symlink_to("own.crt")
    given = trusted(Authority(), {"SSL_CERT_DIR": str(tmp_path)})
    assert b"PRIVATE KEY" not in given
    assert b"secret-word" not in given
    assert given.count(own.strip()) == 1


def test_what_is_left_can_be_read_whole(own: bytes, tmp_path: Path) -> None:
    (tmp_path / "own.crt").write_bytes(b"a comment\n" + own + KEY)
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted(authority, {"SSL_CERT_DIR": str(tmp_path)}).decode())
    known = context.get_ca_certs(binary_form=True)
    for certificate in (own, authority.certificate):
        assert ssl.PEM_cert_to_DER_cert(certificate.decode()) in known
