"""Tokens of topics: what stands for a topic where nobody may see it.

The token of a topic is PRF_K(topic), SipHash-2-4 with 128 bits of output, under a key that
publishers and subscribers share. Brokers compare tokens and put them into filters.

*Erratum*, [N1]: the broker there hashes the topic itself. Whoever can guess topics learns from the
filter what the encryption hides. A token shows which topics are equal, and nothing else to those
who have no key.

Source: J.-P. Aumasson and D. J. Bernstein, SipHash, INDOCRYPT 2012.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.filters.hashing import SipHash
from ccbps.filters.keys import Keys, as_key_bytes
from ccbps.keys.filter_key import FilterKey
from ccbps.keys.secret import Confined

__all__ = ["TOKEN_BYTES", "TopicTokens"]

TOKEN_BYTES: Final = 16
REMEMBERED: Final = 1 << 12


class TopicTokens(Confined):
    """Makes tokens.

    Example:
        >>> from ccbps.filters import FilterKey, TopicTokens
        >>> tokens = TopicTokens(FilterKey.generate())
        >>> len(tokens.one("quotes/IBM")), tokens.many(["quotes/IBM", "quotes/AAPL"]).shape
        (16, (2, 16))
    """

    def __init__(self, key: FilterKey) -> None:
        """
        Raises:
            ParameterError: not a FilterKey.
        """
        self._hashing = SipHash(key)
        self._cached = lru_cache(REMEMBERED)(self._one)

    def one(self, topic: str | bytes) -> bytes:
        """The token of a topic, 16 bytes; the last ones are remembered."""
        return self._cached(topic.encode() if isinstance(topic, str) else topic)

    def many(self, topics: Keys) -> Bytes:
        """Tokens of a column, shape (topics, 16)."""
        halves = self._hashing.many(as_key_bytes(topics))
        return np.stack(halves, axis=1).astype("<u8").view(np.uint8)

    def _one(self, topic: bytes) -> bytes:
        first, second = self._hashing.one(topic)
        return first.to_bytes(8, "little") + second.to_bytes(8, "little")

    def __repr__(self) -> str:
        return f"<TopicTokens of {self._hashing!r}>"
