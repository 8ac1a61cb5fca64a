"""Two filters over the tokens of topics: of subscriptions, and of publications that are kept.

A publication whose token is not in the filter of subscriptions matches nothing, and a new
subscription whose token is not in the filter of publications matches none that was kept: so nothing
is tested ([N1], Algorithms 2 and 1).

Clients choose tokens, and could choose some that fall into one bucket under a hash that they know.
So the hash has a random seed that the broker keeps to itself, and a filter that is full all the
same is made anew, larger and with another seed. The exact tokens are there, too, so nothing is
lost.

Source: [N1] section 3.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from ccbps.errors import FilterFullError, ParameterError
from ccbps.filters.bloom import CountingBloomFilter
from ccbps.filters.cuckoo import CuckooFilter
from ccbps.filters.hashing import Murmur3

FilterKind: TypeAlias = Literal["cuckoo", "bloom"]
FIRST: Final = 1024
"""Tokens that a new filter is for."""
TRIES: Final = 8
_Filter: TypeAlias = CuckooFilter | CountingBloomFilter


class TokenFilter:
    """A multiset of tokens behind a filter."""

    def __init__(self, kind: FilterKind | None) -> None:
        """
        Args:
            kind: "cuckoo", "bloom", or None for no filter: then every token may be in.

        Raises:
            ParameterError: another kind.
        """
        if kind not in ("cuckoo", "bloom", None):
            raise ParameterError(f"prefilter must be 'cuckoo', 'bloom' or None, got {kind!r}")
        self._kind = kind
        self._counts: Counter[bytes] = Counter()
        self._filter = self._made(FIRST)

    @property
    def filters(self) -> bool:
        """Whether there is a filter."""
        return self._filter is not None

    def __contains__(self, token: bytes) -> bool:
        return self._filter is None or token in self._filter

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, token: bytes) -> None:
        """Add a token, or one more copy."""
        self._counts[token] += 1
        if self._counts[token] > 1 or self._filter is None:
            return
        try:
            self._filter.add(token)
        except FilterFullError:
            self._filter = self._made(2 * len(self._counts))

    def remove(self, token: bytes) -> None:
        """Take out a copy."""
        self._counts[token] -= 1
        if not self._counts[token]:
            del self._counts[token]
            if self._filter is not None:
                self._filter.remove(token)

    def to_bytes(self, seed: int) -> bytes:
        """A filter of the tokens under a hash that all know, for those who are to ask it before
        they send.

        Raises:
            ParameterError: there is none.
            FilterFullError: somebody has chosen tokens so that they do not fit; take another seed.
        """
        if self._kind is None:
            raise ParameterError("this broker has no filter: prefilter=None")
        made = self._empty(max(FIRST, 2 * len(self._counts)), seed)
        made.add_all([*self._counts])
        return made.to_bytes()

    def _empty(self, capacity: int, seed: int) -> _Filter:
        if self._kind == "cuckoo":
            return CuckooFilter.for_capacity(capacity, hashing=Murmur3(seed))
        return CountingBloomFilter(capacity, hashing=Murmur3(seed))

    def _made(self, capacity: int) -> _Filter | None:
        """A filter of all tokens; None if there is to be none."""
        tokens: Sequence[bytes] = [*self._counts]
        for _ in range(TRIES if self._kind is not None else 0):
            made = self._empty(max(FIRST, capacity), int.from_bytes(os.urandom(4)))
            try:
                made.add_all(tokens)
            except FilterFullError:
                continue
            return made
        return None
