"""Operators of three brokers, and the public sides that they give to clients and one another.

From an `OperatorKey` follow the key that opens clients' hellos, and the identity of the broker's
processes. So an operator keeps one secret, however many machines it has.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Self

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.keys.plain_key import PUBLIC_BYTES, OperatorKey
from ccbps.keys.secret import confined
from ccbps.network.channel import split_address
from ccbps.network.identity import Certificate, Identity
from ccbps.records import Message, read, write
from ccbps.shares.clients import BrokerKey

_CHECK_BYTES: Final = 8


class PublicSide(Message, frozen=True):
    """Base of public records, each one line of text for a file.

    Attributes:
        text: beginning of the line.
    """

    text: ClassVar[str]

    def to_text(self) -> str:
        """Return one line of text, for a file that the others get."""
        return self.text + write(self, self.front, check=_CHECK_BYTES).hex()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` gave, with any white space around it.

        Raises:
            DecodeError: it is another text, or damaged.
        """
        digits = text.strip().removeprefix(cls.text)
        content = bytes.fromhex(digits) if re.fullmatch("(?:[0-9a-f]{2})*", digits) else b""
        return read(cls, content, cls.front, check=_CHECK_BYTES, refusal=f"not {cls.what}")


class Operator(PublicSide, frozen=True):
    """The public side of the operator of a broker.

    Example:
        >>> from ccbps.keys import OperatorKey
        >>> from ccbps.shares.operators import Operator
        >>> key = OperatorKey.generate()
        >>> operator = Operator.of(key, "10.0.0.5:7400")
        >>> Operator.from_bytes(operator.to_bytes()) == operator
        True

    Attributes:
        address: ``host:port`` at which its worker 0 listens; worker i listens at port + i. If the
            name stands for several machines, each is asked.
        public: public key, by which clients seal hellos for it; 32 bytes.
        certificate: certificate of its workers in DER form.
    """

    front = b"\x01OP"
    what = "an operator's public side"
    text = "ccbps-operator:"

    address: str
    public: Annotated[bytes, msgspec.Meta(min_length=PUBLIC_BYTES, max_length=PUBLIC_BYTES)]
    certificate: bytes

    @classmethod
    @confined
    def of(cls, key: OperatorKey, address: str) -> Self:
        """Return the public side of a key.

        Args:
            key: key of the operator.
            address: ``host:port``, as the other two operators reach it.

        Raises:
            ParameterError: the text is no address.
        """
        split_address(address)
        return cls(address, broker_key(key).public, identity(key).certificate().der)

    @property
    def pin(self) -> Certificate:
        """Certificate that the other two accept.

        Raises:
            DecodeError: it is none.
        """
        return Certificate(self.certificate)


@confined
def broker_key(key: OperatorKey) -> BrokerKey:
    """Derive the key that opens clients' hellos."""
    derived = HKDF(SHA256(), BrokerKey.length, salt=None, info=b"ccbps operator\0hellos")
    return BrokerKey(derived.derive(key.export_secret()))


@confined
def identity(key: OperatorKey) -> Identity:
    """Derive the identity of the operator's processes."""
    return Identity.derive(key.export_secret(), b"operator of a broker")
