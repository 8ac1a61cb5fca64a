"""Filters over the tokens of topics: of subscriptions, and of publications that are kept.

A publication whose token is not in the filter of subscriptions matches nothing. A new subscription
whose token is not in the filter of kept publications matches none of them. In both cases nothing
is tested ([N1], Algorithms 2 and 1).

Clients choose tokens. If they knew the hash, they could choose tokens that fall into one bucket. So
the broker draws a seed for the hash and keeps it secret. A filter that is full all the same is
built again, larger and with another seed. The exact tokens are kept, too, so nothing is lost.

Source: [N1] section 3.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final, Literal, TypeAlias

from ccbps.checks import choice
from ccbps.errors import FilterFullError, ParameterError
from ccbps.filters.bloom import CountingBloomFilter
from ccbps.filters.cuckoo import CuckooFilter
from ccbps.filters.hashing import Murmur3

FilterKind: TypeAlias = Literal["cuckoo", "bloom"]
FIRST: Final = 1024
"""Capacity of a new filter, tokens."""
TRIES: Final = 8
"""Number of seeds that are tried before a filter counts as full."""
_Filter: TypeAlias = CuckooFilter | CountingBloomFilter


class TokenFilter:
    """A multiset of tokens behind a filter.

    Attributes:
        filter: the filter; None if there is none, so that every token may be in the set.
    """

    def __init__(self, kind: FilterKind | None) -> None:
        """Make an empty multiset.

        Args:
            kind: "cuckoo", "bloom", or None for no filter.

        Raises:
            ParameterError: it is another kind.
        """
        self._kind = choice("prefilter", kind, ("cuckoo", "bloom", None))
        self._counts: Counter[bytes] = Counter()
        self.filter = None if kind is None else self._built()

    def __contains__(self, token: bytes) -> bool:
        return self.filter is None or token in self.filter

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, token: bytes) -> None:
        """Add a token, or one more copy of it."""
        self._counts[token] += 1
        if self._counts[token] > 1 or self.filter is None:
            return
        try:
            self.filter.add(token)
        except FilterFullError:
            try:
                self.filter = self._built()
            except FilterFullError:
                self.filter = None

    def remove(self, token: bytes) -> None:
        """Remove one copy of a token."""
        self._counts[token] -= 1
        if not self._counts[token]:
            del self._counts[token]
            if self.filter is not None:
                self.filter.remove(token)

    def to_bytes(self) -> bytes:
        """Return a filter of the tokens for publishers, under a hash of its own that all know.

        Raises:
            ParameterError: there is no filter.
            FilterFullError: a client has chosen tokens that do not fit.
        """
        if self._kind is None:
            raise ParameterError("this broker has no filter: prefilter=None")
        return self._built().to_bytes()

    def _built(self) -> _Filter:
        """Return a filter of all tokens under a random hash, with room for as many more."""
        capacity = max(FIRST, 2 * len(self._counts))
        for _ in range(TRIES):
            hashing = Murmur3(int.from_bytes(os.urandom(4)))
            tokens: _Filter = (
                CuckooFilter.for_capacity(capacity, hashing=hashing)
                if self._kind == "cuckoo"
                else CountingBloomFilter(capacity, hashing=hashing)
            )
            try:
                tokens.add_all([*self._counts])
            except FilterFullError:
                continue
            return tokens
        raise FilterFullError(f"{len(self._counts)} tokens do not fit into a filter")
