"""The key under which topics have tokens, and filters are asked."""

from __future__ import annotations

import os
from typing import Self

from ccbps.keys.confine import confined
from ccbps.keys.secret import SecretBytes
from ccbps.keys.text_form import KINDS, damaged, other_kind, read_key, write_key

__all__ = ["FilterKey"]


class FilterKey(SecretBytes):
    """What publishers and subscribers share, and brokers do not have: 16 bytes.

    Example:
        >>> from ccbps.filters import FilterKey
        >>> key = FilterKey.generate()
        >>> FilterKey.from_text(key.to_text()) == key
        True
    """

    kind = "filter key"
    length = 16
    __slots__ = ()

    @classmethod
    def generate(cls) -> Self:
        """A fresh key from the operating system."""
        return cls(os.urandom(cls.length))

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
        return write_key("filter-key", self._secret)

    @classmethod
    @confined
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is another text (which is not shown).
        """
        kind, secret = read_key(text)
        if kind != "filter-key":
            raise other_kind(kind, KINDS["filter-key"])
        if len(secret) != cls.length:
            raise damaged("filter-key")
        return cls(secret)
