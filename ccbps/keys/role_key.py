"""The key of one role: names what it is for (a scheme's fingerprint), master key, role and epoch.

Key material is JSON, with a check of all fields, so that a damaged key is refused and is not just a
key under which nothing matches. The check uses no secret: it guards against accidents only.

Secrets leave by `RoleKey.export_secret`, `export_secret_data` and `to_text`, and in no other way: a
key has no attributes other than what may be logged.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Literal, Self, get_args

from ccbps.errors import KeyMismatchError
from ccbps.keys.confine import confined
from ccbps.keys.secret import SecretBytes
from ccbps.keys.text_form import damaged, other_kind, read_key, write_key

Role = Literal["server", "publisher", "subscriber", "broker"]

KEY_ID_BYTES: Final = 6


def _check_of(fields: Mapping[str, Any]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


class RoleKey(SecretBytes):
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
        role: "publisher", "subscriber", "broker"; "server" for the master key.
        key_id: 6 bytes that name the master key; a changed one has another name.
        epoch: number of the key's version.
    """

    kind = "role key"
    __slots__ = ("epoch", "key_id", "matcher", "role")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        problem, fields = True, None
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            fields = json.loads(self._secret)
            if fields.pop("check") != _check_of(fields):
                raise ValueError
            self.matcher = bytes.fromhex(fields["matcher"])
            self.role: Role = fields["role"]
            self.key_id = bytes.fromhex(fields["key"])
            self.epoch: int = fields["epoch"]
            if len(self.key_id) != KEY_ID_BYTES:
                raise ValueError
            if type(self.epoch) is not int or not 0 <= self.epoch < 1 << 16:
                raise ValueError
            if self.role not in self._roles():
                raise ValueError
            problem = type(fields["data"]) is not dict
        fields, secret = None, b""  # Tracebacks may show local variables.
        if problem:
            raise KeyMismatchError("not a role key, or a damaged one (RoleKey.to_text() writes it)")

    @classmethod
    def make(
        cls, matcher: bytes, role: Role, key_id: bytes, epoch: int, data: Mapping[str, Any]
    ) -> Self:
        """A key from its parts; `data` is JSON (large integers as hexadecimal text)."""
        fields = {
            "matcher": matcher.hex(),
            "role": role,
            "key": key_id.hex(),
            "epoch": epoch,
            "data": dict(data),
        }
        fields["check"] = _check_of(fields)
        return cls(json.dumps(fields, sort_keys=True).encode())

    def export_secret_data(self) -> dict[str, Any]:
        """The key material that `make` was given, read anew: changing it changes no key.

        Hazard: plain numbers and text, which print and pickle. Roles take the key itself.
        """
        data: dict[str, Any] = json.loads(self._secret)["data"]
        return data

    @classmethod
    def _roles(cls) -> tuple[str, ...]:
        """Whose such a key may be."""
        return get_args(Role)

    @classmethod
    def _text_kind(cls, role: str) -> str:
        return f"{role}-key"

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable.

        The role stands in front in clear: ``ccbps-publisher-key-2:``.
        """
        return write_key(self._text_kind(self.role), self.export_secret())

    @classmethod
    @confined
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is not the text of such a key, or a damaged one (the text is not
                shown).
        """
        kind, secret = read_key(text)
        if kind not in map(cls._text_kind, cls._roles()):
            raise other_kind(kind, f"a {cls.kind}")
        key = cls(secret)
        if kind != cls._text_kind(key.role):
            raise damaged(kind)
        return key


class KeyUpdate(RoleKey):
    """What brings a broker's stored interests to the next epoch of a master key. For the broker,
    nobody else.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching.broken import AspeMatch
        >>> server = AspeMatch(Schema(price=UInt(8))).key_server()
        >>> update = server.rotate()
        >>> update.role, update.epoch
        ('broker', 1)
        >>> update.to_text()[:22]
        'ccbps-broker-update-2:'
    """

    kind = "key update"
    __slots__ = ()

    @classmethod
    def _roles(cls) -> tuple[str, ...]:
        return ("broker",)

    @classmethod
    def _text_kind(cls, role: str) -> str:
        return f"{role}-update"
