"""Keys that consist of random bytes and have one line of text."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, Self

from ccbps import primitives
from ccbps.arrays import Randomness
from ccbps.checks import octets
from ccbps.errors import DecodeError, ParameterError
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


class DrawnKey(PlainKey):
    """Base of keys that are random bytes, as many as their `length`."""

    __slots__ = ()

    @classmethod
    def generate(cls, randomness: Randomness = os.urandom) -> Self:
        """Draw a key from the operating system, or from another source of uniform bytes."""
        assert cls.length is not None
        return cls(randomness(cls.length))


class FilterKey(DrawnKey):
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


class LedgerKey(PlainKey):
    """A key of 32 bytes that a publisher's workers and a `LedgerServer` share.

    It is derived from the publisher's seed (`SharedSeed.ledger_key`). Its owner can allot rounds to
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


class SigningKey(DrawnKey):
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

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)


class ExchangeKey(DrawnKey):
    """The secret half of a key by which a machine gets keys from others (X25519).

    Attributes:
        public: public half, 32 bytes, for the others.

    Example:
        >>> from ccbps.keys import ExchangeKey
        >>> own, other = ExchangeKey.generate(), ExchangeKey.generate()
        >>> own.agree(other.public) == other.agree(own.public)
        True
    """

    kind = "exchange key"
    length = 32
    text_kind = "exchange-key"
    __slots__ = ("_key", "public")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._key = primitives.X25519PrivateKey.from_private_bytes(self._secret)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """Return the secret shared with the owner of another key's public half, 32 bytes.

        Raises:
            DecodeError: the bytes are no public half, or one of low order.
        """
        try:
            return self._key.exchange(primitives.X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise DecodeError("not the public half of an exchange key") from None


PARTIES: Final = 3
"""Number of brokers that hold shares."""
PUBLIC_BYTES: Final = 32


def public_keys(brokers: Sequence[bytes]) -> list[bytes]:
    """Return the public keys of three brokers.

    Raises:
        ParameterError: `brokers` are not three different public keys.
    """
    if isinstance(brokers, bytes | str) or not isinstance(brokers, Sequence):
        raise ParameterError(
            f"brokers must be the public keys of brokers 0, 1 and 2, got a "
            f"{type(brokers).__name__}; clients of three brokers share no seed"
        )
    if len(brokers) != PARTIES or len(set(brokers)) != PARTIES:
        raise ParameterError(
            f"brokers must be the public keys of three different brokers, got {len(brokers)} "
            f"keys, {len(set(brokers))} of them different"
        )
    return [octets("brokers", broker, PUBLIC_BYTES) for broker in brokers]


class OperatorKey(DrawnKey):
    """A key of 32 bytes of the operator of one of three brokers.

    The key that opens clients' hellos is derived from it, and so is the identity by which the other
    two brokers authenticate this one (`ccbps.shares.operators`). Two such keys open every message.

    Example:
        >>> from ccbps.keys import OperatorKey
        >>> key = OperatorKey.generate()
        >>> OperatorKey.from_text(key.to_text()) == key
        True
    """

    kind = "operator's key"
    length = 32
    text_kind = "operator-key"
    __slots__ = ()


class ClientKey(PlainKey):
    """The key of a client of three brokers, with their public keys: 128 bytes.

    All secrets that a client agrees on with the brokers are derived from it. So several processes
    can encode messages of one client, and its hellos are sent once.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.keys import ClientKey
        >>> from ccbps.matching import ThreeBrokerMatch
        >>> matcher = ThreeBrokerMatch.box(Schema(price=UInt(16)))
        >>> key = ClientKey.generate(matcher.local().public)
        >>> matcher.publisher(key).hellos == matcher.publisher(key).hellos
        True

    Attributes:
        brokers: public keys of brokers 0, 1 and 2.
    """

    kind = "client's key"
    length = 32 + PARTIES * PUBLIC_BYTES
    text_kind = "client-key"
    __slots__ = ("brokers",)

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        starts = range(32, self.length, PUBLIC_BYTES)
        self.brokers = tuple(self._secret[start:][:PUBLIC_BYTES] for start in starts)

    @classmethod
    def generate(cls, brokers: Sequence[bytes]) -> Self:
        """Draw a key from the operating system.

        Args:
            brokers: public keys of brokers 0, 1 and 2.

        Raises:
            ParameterError: `brokers` are not three different public keys.
        """
        return cls(os.urandom(32) + b"".join(public_keys(brokers)))

    def source(self, context: bytes) -> Callable[[int], bytes]:
        """Return a source of bytes that gives the same ones in each process.

        Args:
            context: public parameters and epoch; other contexts give unrelated bytes.
        """
        calls = count()

        def draw(size: int) -> bytes:
            info = b"ccbps client" + next(calls).to_bytes(4, "big") + context
            expand = primitives.HKDF(primitives.SHA256(), size, salt=None, info=info)
            return expand.derive(self._secret)

        return draw
