"""A certificate authority of one run, which vouches for hosts that the gateway stands for, and for nothing else.

Comes in: hosts. Goes out: what a TLS server for each needs, and what a client has to trust. Its key is in the memory of
this process and nowhere else, and is gone with it. Everything is made so that the strictest clients accept it, such as
those of Python 3.13, which insist on identifiers of keys.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.environ import TRUST_FILES

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CLOCK_SLACK: Final = dt.timedelta(hours=1)
"""How far ahead the clock of this process may be of that of whoever checks."""

AUTHORITY_LIFE: Final = dt.timedelta(days=60)
"""Longer than any run: workers are told of it when they start, and cannot be told of another one."""

HOST_LIFE: Final = dt.timedelta(days=2)
"""A certificate of one host, of which another one is made after half of that."""

NAME: Final = "benchmax run"
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----"
)

SYSTEM_ROOTS: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Where distributions keep one file with the authorities that the machine trusts."""


class Authority:
    """Makes certificates for hosts."""

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{NAME} {os.urandom(4).hex()}")])
        self._made: dict[str, tuple[ssl.SSLContext, dt.datetime]] = {}
        public = self._key.public_key()
        builder = self._builder(self._name, public, AUTHORITY_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        self._certificate = self._signed(builder, public)

    @property
    def certificate(self) -> bytes:
        """Its own certificate, as PEM: what clients have to trust."""
        return _pem(self._certificate)

    def server(self, host: str) -> ssl.SSLContext:
        """Return what a TLS server that stands for a host needs.

        Args:
            host: A name, or an address without brackets.
        """
        made = self._made.get(host)
        now = dt.datetime.now(dt.UTC)
        if made is None or made[1] <= now:
            made = self._made[host] = self._context(host), now + HOST_LIFE / 2
        return made[0]

    def _context(self, host: str) -> ssl.SSLContext:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        # OpenSSL reads files only; this one has no name, and nobody else has it
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(secret + _pem(self._host_certificate(host, key.public_key())))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        return context

    def _host_certificate(self, host: str, public: ec.EllipticCurvePublicKey) -> x509.Certificate:
        from cryptography import x509

        # too long a name would be none, and it is the other one that counts
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
        builder = self._builder(subject, public, HOST_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        server = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(server, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        return self._signed(builder, public)

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, life: dt.timedelta
    ) -> x509.CertificateBuilder:
        from cryptography import x509

        now = dt.datetime.now(dt.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - CLOCK_SLACK,
            not_valid_after=now + life,
        )

    def _signed(self, builder: x509.CertificateBuilder, public: ec.EllipticCurvePublicKey) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        own = x509.SubjectKeyIdentifier.from_public_key(public)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False).add_extension(issuer, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def trusted(authority: Authority, environ: Mapping[str, str] | None = None) -> bytes:
    """Return everything that a worker trusts, as PEM: the usual authorities, the caller's own, and this one.

    Of files nothing but certificates is taken: a key may lie beside them.


    Args:
        authority: That of the run.
        environ: The caller's environment, which may name files and a folder of authorities.
    """
    source = os.environ if environ is None else environ
    found = dict.fromkeys(_usual())
    for path in _own_roots(source):
        # what cannot be read is trusted by nobody, as without a gateway
        with contextlib.suppress(OSError):
            found |= dict.fromkeys(_CERTIFICATE.findall(path.read_bytes()))
    return b"\n".join([*found, authority.certificate])


def _usual() -> list[bytes]:
    """Those that come with an HTTP client, as this machine may have none."""
    import httpx

    ders = httpx.create_ssl_context(trust_env=False).get_ca_certs(binary_form=True)
    return [ssl.DER_cert_to_PEM_cert(der).strip().encode() for der in ders]


def _own_roots(environ: Mapping[str, str]) -> Iterable[Path]:
    """Those of the machine, which may know more than others do, and what the caller names."""
    # not `cafile` there, which follows the caller's variable
    yield Path(ssl.get_default_verify_paths().openssl_cafile)
    yield from map(Path, SYSTEM_ROOTS)
    yield from (Path(environ[name]) for name in TRUST_FILES if environ.get(name))
    folder = environ.get("SSL_CERT_DIR")
    if folder and Path(folder).is_dir():
        yield from sorted(path for path in Path(folder).iterdir() if path.is_file())


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        # the dot at the end of a whole name is no part of it in a certificate
        return x509.DNSName(host.removesuffix("."))


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)
