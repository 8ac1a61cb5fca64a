"""Secrets that do not print, do not pickle and leave by one door.

`SecretBytes` is the base of every secret in the package. Its repr shows the class and a
fingerprint; pickling and copying raise `SerializationError`; the bytes leave only through
`SecretBytes.export_secret`, a name that shows up in a search.

Hazard: Python cannot wipe memory. Secret bytes stay in the process until they are collected.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import NoReturn

from ccbps.errors import KeyMismatchError, SerializationError


class Confined:
    """Base of whatever holds a secret or must not exist twice: cannot be pickled or copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            f"a {type(self).__name__} must not be pickled or copied, since it holds a secret: hand "
            "out a KeySource (FileKey, EnvKey) and make it where it is needed"
        )


class SecretBytes:
    """Secret bytes of one kind. Subclasses say which, and what length is right."""

    kind = "secret"
    length: int | None = None

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        """
        Args:
            secret: the raw bytes.

        Raises:
            KeyMismatchError: not bytes, or not of the length this kind has.
        """
        self._secret = b""  # tracebacks may show `self`
        if not isinstance(secret, (bytes, bytearray, memoryview)):
            raise KeyMismatchError(f"a {self.kind} is made of bytes, got {type(secret).__name__}")
        if self.length is not None and len(secret) != self.length:
            raise KeyMismatchError(f"a {self.kind} has {self.length} bytes, got {len(secret)}")
        self._secret = bytes(secret)

    def export_secret(self) -> bytes:
        """The raw secret. Whoever reads it can do everything its owner can."""
        return self._secret

    def fingerprint(self) -> str:
        """16 hex digits that name this secret in logs and say nothing else about it."""
        digest = sha256(f"ccbps fingerprint of {self.kind}\0".encode() + self._secret)
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.fingerprint()}>"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, SecretBytes)
        return hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash((self.kind, self.fingerprint()))

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            f"a {type(self).__name__} must not be pickled or copied: hand out "
            "a KeySource (FileKey, EnvKey) instead, or call export_secret() on purpose"
        )
