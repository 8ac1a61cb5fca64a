"""The keys that a key server gives out: each names its matcher, master key, role and epoch.

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
from typing import Any, Final, Literal, Self

from ccbps.errors import KeyMismatchError
from ccbps.keys.secret import SecretBytes

__all__ = ["KEY_ID_BYTES", "Role", "RoleKey"]

Role = Literal["server", "publisher", "subscriber", "broker"]

KEY_ID_BYTES: Final = 6


def _check_of(fields: Mapping[str, Any]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


class RoleKey(SecretBytes):
    """What a key server gives one party: key material of one matcher, role and epoch.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
        >>> server = matcher.key_server()
        >>> key = server.subscriber_key("alice")
        >>> key.role, key.epoch
        ('subscriber', 0)
        >>> from ccbps.matching import RoleKey
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
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            fields = json.loads(self._secret)
            if fields.pop("check") != _check_of(fields):
                raise ValueError
            self.matcher = bytes.fromhex(fields["matcher"])
            self.role: Role = fields["role"]
            self.key_id = bytes.fromhex(fields["key"])
            self.epoch: int = fields["epoch"]
            if type(self.epoch) is not int or not 0 <= self.epoch < 1 << 16:
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

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
        return f"ccbps-role-key-1:{self.export_secret().hex()}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is not a role key (the text is not shown).
        """
        kind, _, body = text.strip().partition(":")
        text = ""
        if kind != "ccbps-role-key-1" or len(body) % 2 or set(body) - set("0123456789abcdef"):
            body = ""
            raise KeyMismatchError("not a role key: expected 'ccbps-role-key-1:' and hex digits")
        digits, body = [body], ""
        return cls(bytes.fromhex(digits.pop()))
