"""Two filters over the tokens of topics: of subscriptions, and of publications that are kept.

A publication whose token is not in the filter of subscriptions matches nothing, and a new
subscription whose token is not in the filter of publications matches none that was kept: so nothing
is tested ([N1], Algorithms 2 and 1). Filters grow when they are full, from the exact tokens.

Source: [N1] section 3.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal, TypeAlias

from ccbps.errors import FilterFullError, ParameterError
from ccbps.filters.counting import CountingBloomFilter
from ccbps.filters.cuckoo import CuckooFilter

__all__ = ["FilterKind", "TokenFilter"]

FilterKind: TypeAlias = Literal["cuckoo", "bloom"]
FIRST: Final = 1024
"""Tokens that a new filter is for."""


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
        self._kind, self._capacity = kind, FIRST
        self._counts: Counter[bytes] = Counter()
        self._filter = self._made([])

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
            self._capacity *= 2
            self._filter = self._made([*self._counts])

    def remove(self, token: bytes) -> None:
        """Take out a copy."""
        self._counts[token] -= 1
        if not self._counts[token]:
            del self._counts[token]
            if self._filter is not None:
                self._filter.remove(token)

    def to_bytes(self) -> bytes:
        """The filter, for those who are to ask it before they send.

        Raises:
            ParameterError: there is none.
        """
        if self._filter is None:
            raise ParameterError("this broker has no filter: prefilter=None")
        return self._filter.to_bytes()

    def _made(self, tokens: list[bytes]) -> CuckooFilter | CountingBloomFilter | None:
        made: CuckooFilter | CountingBloomFilter
        if self._kind == "cuckoo":
            made = CuckooFilter.for_capacity(self._capacity)
        elif self._kind == "bloom":
            made = CountingBloomFilter(self._capacity)
        else:
            return None
        made.add_all(tokens)
        return made
