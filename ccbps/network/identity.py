"""Identities of machines: an Ed25519 key, and the self-signed certificate that its peers pin.

There is no authority. A machine accepts exactly the certificates that it was given before, and
ignores names of hosts and dates: a certificate is good for as long as it is pinned. It follows from
its key byte for byte, since Ed25519 signatures have no randomness (RFC 8032) and all other fields
are fixed. So a secret that two machines share gives both of them both certificates.

A private key signs handshakes only. TLS 1.3 draws the keys of each connection afresh (RFC 8446,
section 1.2), and session tickets, which would outlive a connection, are switched off. So a private
key that is stolen later does not open recorded connections.

Python's ``ssl`` takes private keys from files only. On Linux that is a file in memory without a
name; elsewhere it is a temporary file that its owner alone may read and that is removed at once.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from ccbps.checks import Printable
from ccbps.errors import DecodeError
from ccbps.keys.secret import SecretBytes, confined

_BEGIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
_END: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""A certificate without an end (RFC 5280, section 4.1.2.5)."""


@dataclass(frozen=True, slots=True)
class Certificate(Printable):
    """The public half of an identity, which its peers pin.

    Example:
        >>> from ccbps.network import Certificate, Identity
        >>> certificate = Identity.generate().certificate()
        >>> Certificate(certificate.der) == certificate
        True

    Attributes:
        der: bytes of one X.509 certificate in DER form, as they travel.

    Raises:
        DecodeError: the bytes are not one certificate.
    """

    der: bytes

    def __post_init__(self) -> None:
        try:
            x509.load_der_x509_certificate(self.der)
        except (TypeError, ValueError):
            raise DecodeError(
                "der must be one X.509 certificate in DER form, got other bytes: take the der "
                "attribute of Identity.certificate()"
            ) from None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, 64 hexadecimal digits."""
        return sha256(self.der).hexdigest()

    def __repr__(self) -> str:
        return f"<Certificate {self.fingerprint[:16]}>"


class Identity(SecretBytes):
    """A private key of 32 bytes, by which a machine proves its identity.

    Example:
        >>> from ccbps.network import Identity
        >>> identity = Identity.generate()
        >>> Identity(identity.export_secret()).certificate() == identity.certificate()
        True
    """

    kind = "network identity"
    length = 32
    __slots__ = ()

    @classmethod
    @confined
    def generate(cls) -> Self:
        """Draw an identity at random."""
        return cls(os.urandom(32))

    @classmethod
    @confined
    def derive(cls, secret: bytes, purpose: bytes) -> Self:
        """Derive an identity from a shared secret by HKDF-SHA256.

        Args:
            secret: at least 32 bytes that nobody can guess.
            purpose: purpose of the identity; another one gives an unrelated identity.
        """
        info = b"ccbps 1 identity\0" + purpose
        return cls(HKDF(SHA256(), 32, salt=None, info=info).derive(secret))

    @confined
    def certificate(self) -> Certificate:
        """Return the certificate to pin, the same bytes at each call."""
        return Certificate(self._certificate().public_bytes(Encoding.DER))

    @confined
    def context(self, peers: Iterable[Certificate], *, server: bool) -> ssl.SSLContext:
        """Make a TLS context that presents this identity and accepts the given peers.

        Args:
            peers: pinned certificates, at least one.
            server: True for the side that accepts connections.

        Raises:
            OSError: no temporary file can be made for the private key.
        """
        context = tls_context(server=server)
        for peer in peers:
            context.load_verify_locations(cadata=peer.der)
        pem = self._key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pem += self._certificate().public_bytes(Encoding.PEM)
        if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
            file = os.memfd_create("identity")
            path = f"/proc/self/fd/{file}"
        else:
            file, path = tempfile.mkstemp(prefix="ccbps-")
        try:
            with os.fdopen(file, "wb") as writer:
                writer.write(pem)
                writer.flush()
                context.load_cert_chain(path)
        finally:
            if not path.startswith("/proc/"):
                Path(path).unlink()
        return context

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._secret)

    def _certificate(self) -> x509.Certificate:
        key = self._key()
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        # OpenSSL looks pinned certificates up by their names, so each key has its own.
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, sha256(raw).hexdigest()[:32])])
        return (
            x509.CertificateBuilder()
            .issuer_name(name)
            .subject_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(_BEGIN)
            .not_valid_after(_END)
            # A pinned peer cannot vouch for others.
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(key, None)
        )


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity that one side of a connection presents, and the certificates that it accepts.

    Example:
        >>> from ccbps.network import Credentials, Identity
        >>> own, peer = Identity.generate(), Identity.generate()
        >>> Credentials(own, (peer.certificate(),))
        Credentials(identity=<Identity ...>, peers=(<Certificate ...>,))

    Attributes:
        identity: private key of this side.
        peers: certificates that it accepts.
    """

    identity: Identity
    peers: tuple[Certificate, ...]


def tls_context(*, server: bool) -> ssl.SSLContext:
    """Make a context that speaks TLS 1.3 only and requires a certificate of the other side."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the pin says more than a name
    context.verify_mode = ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0
    return context
