"""Keys that consist of random bytes and have one line of text."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Self

from ccbps import primitives
from ccbps.keys.secret import SecretBytes
from ccbps.keys.text_form import TextKey


class PlainKey(SecretBytes, TextKey):
    """Base of keys whose text holds their bytes."""

    __slots__ = ()

    def _to_bytes(self) -> bytes:
        return self.export_secret()

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        return cls(secret)


class FilterKey(PlainKey):
    """A key of 16 bytes for the tokens of topics, shared by publishers and subscribers.

    Brokers do not have it.

    Example:
        >>> from ccbps.filters import FilterKey
        >>> key = FilterKey.generate()
        >>> FilterKey.from_text(key.to_text()) == key
        True
    """

    kind = "filter key"
    length = 16
    text_kind = "filter-key"
    __slots__ = ()

    @classmethod
    def generate(cls) -> Self:
        """Draw a key from the operating system."""
        return cls(os.urandom(cls.length))


class LedgerKey(PlainKey):
    """A key of 32 bytes by which a publisher's workers and a `LedgerServer` know each other.

    It follows from the publisher's seed (`SharedSeed.ledger_key`). Its owner can allot rounds to
    that publisher's events, and so make the publisher use a round twice. It opens no message and
    shows no event.

    Example:
        >>> from ccbps import SharedSeed
        >>> from ccbps.keys import LedgerKey
        >>> key = SharedSeed.generate().ledger_key()
        >>> LedgerKey.from_text(key.to_text()) == key
        True
    """

    kind = "ledger key"
    length = 32
    text_kind = "ledger-key"
    __slots__ = ()


class SigningKey(PlainKey):
    """The secret half of an identity, by which a writer signs messages (Ed25519).

    Attributes:
        identity: public half, 32 bytes, for the readers of signed messages.

    Example:
        >>> from ccbps.keys import SigningKey
        >>> key = SigningKey.generate()
        >>> SigningKey.from_text(key.to_text()).identity == key.identity
        True
    """

    kind = "signing key"
    length = 32
    text_kind = "signing-key"
    __slots__ = ("_key", "identity")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._key = primitives.Ed25519PrivateKey.from_private_bytes(self._secret)
        self.identity = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, randomness: Callable[[int], bytes] = os.urandom) -> Self:
        """Draw a signing key."""
        return cls(randomness(cls.length))

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)
