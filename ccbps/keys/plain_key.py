"""Keys that are so many random bytes, and one line of text."""

from __future__ import annotations

from typing import Self

from ccbps.keys.secret import SecretBytes
from ccbps.keys.text_form import TextKey


class PlainKey(SecretBytes, TextKey):
    """Base of such keys. Subclasses say what stands in front of the text, one of `KINDS`."""

    __slots__ = ()

    def _to_bytes(self) -> bytes:
        return self.export_secret()

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        return cls(secret)
