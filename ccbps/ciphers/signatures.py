"""Signatures under keys handed over beforehand: proof of a message's writer and its wholeness.

The writer has a `SigningKey`. The reader holds its `identity`, 32 public bytes, and ignores a
message's own claims about its writer. The scheme is Ed25519, about 128 bits; the same
message has the same signature, so nothing has to be drawn for one.

Hazards: an identity is only as trustworthy as the way it came. Signatures convince third
parties, too. Sign bytes that name their purpose; a signature does not know it.
Source: [RFC8032].
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from ccbps.checks import octets
from ccbps.keys.secret import SecretBytes

IDENTITY_BYTES: Final = 32
NAME_BYTES: Final = 8
SIGNATURE_BYTES: Final = 64


class SigningKey(SecretBytes):
    """The secret half of an identity.

    Attributes:
        identity: public half, 32 bytes, for the readers of signed messages.
    """

    kind = "signing key"
    length = 32
    __slots__ = ("_key", "identity")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._key = Ed25519PrivateKey.from_private_bytes(self._secret)
        self.identity = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, randomness: Callable[[int], bytes] = os.urandom) -> Self:
        """Draw a signing key."""
        return cls(randomness(IDENTITY_BYTES))

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)


def signed_by(identity: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of `identity` signed this message."""
    with contextlib.suppress(InvalidSignature):
        _public(identity).verify(signature, message)
        return True
    return False


@lru_cache(maxsize=1024)
def _public(identity: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(identity)


def check_identity(identity: Any) -> bytes:
    """Return the identity; a ParameterError if it has not 32 bytes."""
    return octets("identity", identity, IDENTITY_BYTES, hint="the other role's .identity is one")


def name_of(identity: bytes) -> bytes:
    """Return 8 bytes that find an identity among others that are known. They prove nothing."""
    return sha256(b"ccbps identity\0" + identity).digest()[:NAME_BYTES]
