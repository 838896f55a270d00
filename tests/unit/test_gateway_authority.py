"""The run's own authority: what it vouches for, strict clients accept, and its key is nowhere to be found."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from runner.errors import InterpreterNotFoundError
from runner.gateway import authority as module
from runner.gateway.authority import Authority, trusted
from runner.provision import Cache
from runner.provision.interpreter import find_interpreter
from tests.conftest import require

STRICT = ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
"""What Python 3.13 asks for by itself."""


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Let two ends talk to each other in memory; return the client's end."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there, server_hostname=host)
    theirs = server.wrap_bio(there, back, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for end in (ours, theirs):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue
    return ours


def client_that_trusts(pem: bytes) -> ssl.SSLContext:
    client = ssl.create_default_context(cadata=pem.decode())
    client.verify_flags |= STRICT
    return client


@pytest.mark.parametrize(
    "host", ["judge.example", "a_b.example", "xn--bcher-kva.example", "127.0.0.1", "10.77.0.5", "::1", "2001:db8::5"]
)
def test_a_strict_client_that_trusts_the_authority_accepts_its_hosts(host: str) -> None:
    authority = Authority()
    client = client_that_trusts(authority.certificate)
    assert handshake(authority.server(host), client, host).version() == "TLSv1.3"


def test_nobody_else_accepts_them_and_each_host_has_its_own() -> None:
    authority, other = Authority(), Authority()
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(authority.server("judge.example"), client_that_trusts(other.certificate), "judge.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(authority.server("judge.example"), client_that_trusts(authority.certificate), "other.example")


def test_openssl_itself_finds_nothing_wrong_with_them(tmp_path: Path) -> None:
    """Every check that there is, by another program than the one that made them."""
    require(shutil.which("openssl"), "openssl")
    authority = Authority()
    client = client_that_trusts(authority.certificate)
    der = handshake(authority.server("judge.example"), client, "judge.example").getpeercert(binary_form=True)
    assert der is not None
    (tmp_path / "authority.pem").write_bytes(authority.certificate)
    (tmp_path / "host.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
    verify = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "judge.example"]
    done = subprocess.run(
        [*verify, "-CAfile", "authority.pem", "host.pem"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "host.pem: OK\n"), done.stderr


async def test_the_python_that_is_strictest_accepts_them_as_it_is(tmp_path: Path) -> None:
    """3.13 checks more than those before it, without being asked to."""
    try:
        found = await find_interpreter("3.13", python=None, cache=Cache(tmp_path))
    except InterpreterNotFoundError:
        found = None
    require(found, "Python 3.13")
    assert found is not None
    authority = Authority()
    code = (
        "import socket, ssl, sys\n"
        "context = ssl.create_default_context(cadata=sys.stdin.read())\n"
        "assert context.verify_flags & ssl.VERIFY_X509_STRICT\n"
        "with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as connection:\n"
        "    with context.wrap_socket(connection, server_hostname='127.0.0.1') as secure:\n"
        "        print(secure.version())\n"
    )

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=authority.server("127.0.0.1"))
    async with listener:
        process = await asyncio.create_subprocess_exec(
            str(found.path), "-c", code, str(listener.sockets[0].getsockname()[1]),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate(authority.certificate)
    assert (out.decode(), process.returncode) == ("TLSv1.3\n", 0), err.decode()


def test_they_say_what_strict_verifiers_look_for_and_are_valid_shortly() -> None:
    authority = Authority()
    client = client_that_trusts(authority.certificate)
    der = handshake(authority.server("10.0.0.7"), client, "10.0.0.7").getpeercert(binary_form=True)
    assert der is not None
    root, host = x509.load_pem_x509_certificate(authority.certificate), x509.load_der_x509_certificate(der)
    now = dt.datetime.now(dt.UTC)
    for certificate in (root, host):
        oids = {extension.oid: extension.critical for extension in certificate.extensions}
        assert oids[ExtensionOID.BASIC_CONSTRAINTS]
        assert oids[ExtensionOID.KEY_USAGE]
        assert {ExtensionOID.SUBJECT_KEY_IDENTIFIER, ExtensionOID.AUTHORITY_KEY_IDENTIFIER} <= oids.keys()
        # a clock that is behind by some minutes is common
        assert certificate.not_valid_before_utc < now - dt.timedelta(minutes=30)
    assert host.not_valid_after_utc - now < dt.timedelta(days=3)
    names = host.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert root.serial_number != host.serial_number


def test_a_host_has_one_certificate_until_half_of_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    first = authority.server("judge.example")
    assert authority.server("judge.example") is first
    assert authority.server("other.example") is not first
    monkeypatch.setattr(module, "HOST_LIFE", dt.timedelta(0))
    fresh = Authority()
    assert fresh.server("judge.example") is not fresh.server("judge.example")


def test_nothing_but_certificates_is_shown_and_nothing_is_left_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    authority = Authority()
    authority.server("judge.example")
    assert b"PRIVATE" not in trusted(authority, {})
    assert list(tmp_path.iterdir()) == []


def test_a_worker_trusts_the_usual_authorities_the_callers_own_and_the_runs(tmp_path: Path) -> None:
    run, corporate, requests_only, kept = Authority(), Authority(), Authority(), Authority()
    (tmp_path / "corporate.pem").write_bytes(corporate.certificate)
    (tmp_path / "requests.pem").write_bytes(requests_only.certificate)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept.pem").write_bytes(kept.certificate)
    environ = {
        "SSL_CERT_FILE": str(tmp_path / "corporate.pem"),
        "REQUESTS_CA_BUNDLE": str(tmp_path / "requests.pem"),
        "CURL_CA_BUNDLE": str(tmp_path / "is-not-there.pem"),
        "SSL_CERT_DIR": str(tmp_path / "folder"),
    }
    pem = trusted(run, environ)
    client = client_that_trusts(pem)
    for authority in (run, corporate, requests_only, kept):
        handshake(authority.server("judge.example"), client, "judge.example")
    # those that everybody trusts come along
    assert client.cert_store_stats()["x509_ca"] > 50
    # a caller without any of its own
    assert len(trusted(run, {})) < len(pem)


def test_importing_it_loads_no_cryptography() -> None:
    code = "import sys, runner.gateway.authority\nprint('cryptography' in sys.modules, 'httpx' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"
