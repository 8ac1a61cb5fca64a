"""The key of one role. It names its matcher (by fingerprint), its master key, role and epoch.

Key material is a record with a check, so a damaged key is refused. Without the check it would be a
key under which nothing matches. The check uses no secret: it guards against accidents only.

Secrets leave by `RoleKey.export_secret`, `export_secret_data` and `to_text`, and in no other way:
all attributes of a key may be logged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, get_args

from msgspec import Meta

from ccbps.checks import instance
from ccbps.errors import KeyMismatchError
from ccbps.keys.plain_key import PlainKey
from ccbps.keys.secret import confined
from ccbps.records import SecretRecord, read, write

Role = Literal["server", "publisher", "subscriber", "broker"]

KEY_ID_BYTES: Final = 6
CHECK_BYTES: Final = 8
LAST_EPOCH: Final = 0xFFFF


def hex_bytes(text: Any, size: int | None = None) -> bytes:
    """Return the bytes that key data holds as hex digits.

    Args:
        text: the digits, in lower case.
        size: number of bytes; None for any.

    Raises:
        TypeError: `text` is no string.
        ValueError: the text is no hex, or has another length. The message shows nothing of it.
    """
    content = bytes.fromhex(text)
    if content.hex() != text or (size is not None and len(content) != size):
        raise ValueError("other hex digits")
    return content


def hex_number(text: Any, low: int, high: int) -> int:
    """Return the number that key data holds as hex digits without leading zeros.

    Args:
        text: the digits, in lower case.
        low: the smallest number allowed.
        high: the largest number allowed.

    Raises:
        TypeError: `text` is no string.
        ValueError: the text is no such number. The message shows nothing of it.
    """
    if not re.fullmatch("0|[1-9a-f][0-9a-f]*", text) or len(text) > len(f"{high:x}"):
        raise ValueError("other hex digits")
    number = int(text, 16)
    if not low <= number <= high:
        raise ValueError("a number out of bounds")
    return number


class _Fields(SecretRecord, frozen=True):
    """The fields of a `RoleKey`."""

    matcher: bytes
    role: Role
    key_id: Annotated[bytes, Meta(min_length=KEY_ID_BYTES, max_length=KEY_ID_BYTES)]
    epoch: Annotated[int, Meta(ge=0, le=LAST_EPOCH)]
    data: dict[str, Any]


class RoleKey(PlainKey):
    """The key of one party: key material of one matcher, role and epoch, from a key server.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
        >>> server = matcher.key_server()
        >>> key = server.subscriber_key("alice")
        >>> key.role, key.epoch
        ('subscriber', 0)
        >>> from ccbps.keys import RoleKey
        >>> RoleKey.from_text(key.to_text()) == key       # to_text() is the secret: for a key file
        True

    Attributes:
        matcher: digest of the matcher, 32 bytes; in hexadecimal, its fingerprint.
        role: "publisher", "subscriber", "broker"; "server" for the master key.
        key_id: name of the master key, 6 bytes; each epoch's master key has another name.
        epoch: number of the key's version.
    """

    kind = "role key"
    text_kind = "{}-key"
    __slots__ = ("epoch", "key_id", "matcher", "role")

    @confined
    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        fields = self._fields()
        self.matcher, self.role, self.key_id = fields.matcher, fields.role, fields.key_id
        self.epoch: int = fields.epoch
        if self.role not in self._roles():
            raise KeyMismatchError(f"a {self.kind} of another role")

    @classmethod
    @confined
    def make(
        cls, matcher: bytes, role: Role, key_id: bytes, epoch: int, data: Mapping[str, Any]
    ) -> Self:
        """Return a key from its parts.

        Args:
            matcher: digest of the matcher, 32 bytes.
            role: role of the key's owner.
            key_id: name of the master key, 6 bytes.
            epoch: number of the key's version, below 2^16.
            data: key material: text, bytes, numbers below 2^64, lists and mappings of these.

        Raises:
            ParameterError: a part has another type or is out of bounds.
        """
        return cls(
            write(
                _Fields(matcher, role, key_id, epoch, dict(instance("data", data, Mapping))),
                check=CHECK_BYTES,
            )
        )

    def export_secret_data(self) -> dict[str, Any]:
        """Return the key material that `make` was given. Changing it changes no key.

        Hazard: it is plain numbers and text, which print and pickle. Give roles the key itself.
        """
        return self._fields().data

    def _fields(self) -> _Fields:
        refusal = KeyMismatchError("not a role key, or a damaged one (RoleKey.to_text() writes it)")
        return read(_Fields, self._secret, refusal=refusal, check=CHECK_BYTES)

    @classmethod
    def _roles(cls) -> tuple[str, ...]:
        """Return the roles that may own such a key."""
        return get_args(Role)

    @classmethod
    def text_kinds(cls) -> tuple[str, ...]:
        return tuple(map(cls.text_kind.format, cls._roles()))

    def _kind_of_text(self) -> str:
        return self.text_kind.format(self.role)


class KeyUpdate(RoleKey):
    """A key that brings a broker's stored interests to the next epoch of a master key.

    Nobody but the broker may have it.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching.broken import AspeMatch
        >>> server = AspeMatch(Schema(price=UInt(8))).key_server()
        >>> update = server.rotate()
        >>> update.role, update.epoch
        ('broker', 1)
        >>> update.to_text()[:22]
        'ccbps-broker-update-3:'
    """

    kind = "key update"
    text_kind = "{}-update"
    __slots__ = ()

    @classmethod
    def _roles(cls) -> tuple[str, ...]:
        return ("broker",)
