"""The key under which topics have tokens, and filters are asked."""

from __future__ import annotations

import os
from typing import Self

from ccbps.keys.plain_key import PlainKey


class FilterKey(PlainKey):
    """What publishers and subscribers share, and brokers do not have: 16 bytes.

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
        """A fresh key from the operating system."""
        return cls(os.urandom(cls.length))
