"""Tokens that stand for topics where topics must stay hidden.

The token of a topic is PRF_K(topic), SipHash-2-4 with 128 bits of output. Its key is derived from a
key that publishers and subscribers share. Brokers compare tokens and put them into filters.

*Erratum*, [N1]: the broker there hashes the topic itself. So anybody who can guess topics learns
from the filter the topics that the encryption hides. Tokens show which topics are equal, and
without the key nothing else.

Source: J.-P. Aumasson and D. J. Bernstein, SipHash, INDOCRYPT 2012.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.checks import instance
from ccbps.filters.hashing import Keys, SipHash, as_key_bytes, one_key
from ccbps.keys.plain_key import FilterKey
from ccbps.keys.secret import Confined

TOKEN_BYTES: Final = 16
CACHED: Final = 1 << 12


class TopicTokens(Confined):
    """A function from topics to tokens.

    Args:
        key: secret key of publishers and subscribers.

    Example:
        >>> from ccbps.filters import FilterKey, TopicTokens
        >>> tokens = TopicTokens(FilterKey.generate())
        >>> len(tokens.one("quotes/IBM")), tokens.many(["quotes/IBM", "quotes/AAPL"]).shape
        (16, (2, 16))
    """

    def __init__(self, key: FilterKey) -> None:
        secret = instance("key", key, FilterKey).export_secret()
        # The derived key is separate, so that a filter under the same FilterKey shows no tokens.
        derived = blake2b(secret, digest_size=FilterKey.length, person=b"ccbps tokens")
        self._name, self._hashing = repr(key), SipHash(FilterKey(derived.digest()))
        self._cached = lru_cache(CACHED)(self._one)

    def one(self, topic: str | bytes) -> bytes:
        """Return the token of a topic, 16 bytes. Recent tokens are cached.

        Raises:
            ParameterError: the topic is neither text in Unicode nor bytes.
        """
        return self._cached(one_key(topic))

    def many(self, topics: Keys) -> Bytes:
        """Return the tokens of a column of topics, shape (topics, 16)."""
        halves = self._hashing.many(as_key_bytes(topics))
        return np.stack(halves, axis=1).astype("<u8").view(np.uint8)

    def _one(self, topic: bytes) -> bytes:
        first, second = self._hashing.one(topic)
        return first.to_bytes(8, "little") + second.to_bytes(8, "little")

    def __repr__(self) -> str:
        return f"<TopicTokens of {self._name}>"
