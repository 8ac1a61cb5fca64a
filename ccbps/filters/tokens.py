"""Tokens of topics: what stands for a topic where nobody may see it.

The token of a topic is PRF_K(topic), SipHash-2-4 with 128 bits of output, under a key that follows
from one that publishers and subscribers share. Brokers compare tokens and put them into filters.

*Erratum*, [N1]: the broker there hashes the topic itself. Whoever can guess topics learns from the
filter what the encryption hides. A token shows which topics are equal, and nothing else to those
who have no key.

Source: J.-P. Aumasson and D. J. Bernstein, SipHash, INDOCRYPT 2012.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.errors import ParameterError
from ccbps.filters.hashing import SipHash
from ccbps.filters.keys import Keys, as_key_bytes, one_key
from ccbps.keys.filter_key import FilterKey
from ccbps.keys.secret import Confined

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
        if not isinstance(key, FilterKey):
            raise ParameterError(f"key must be a FilterKey, got {type(key).__name__}")
        # A key of its own, so that a filter under the same FilterKey says nothing of tokens.
        secret = blake2b(key.export_secret(), digest_size=FilterKey.length, person=b"ccbps tokens")
        self._name, self._hashing = repr(key), SipHash(FilterKey(secret.digest()))
        self._cached = lru_cache(REMEMBERED)(self._one)

    def one(self, topic: str | bytes) -> bytes:
        """The token of a topic, 16 bytes; the last ones are remembered.

        Raises:
            ParameterError: the topic is neither text in Unicode nor bytes.
        """
        return self._cached(one_key(topic))

    def many(self, topics: Keys) -> Bytes:
        """Tokens of a column, shape (topics, 16)."""
        halves = self._hashing.many(as_key_bytes(topics))
        return np.stack(halves, axis=1).astype("<u8").view(np.uint8)

    def _one(self, topic: bytes) -> bytes:
        first, second = self._hashing.one(topic)
        return first.to_bytes(8, "little") + second.to_bytes(8, "little")

    def __repr__(self) -> str:
        return f"<TopicTokens of {self._name}>"
