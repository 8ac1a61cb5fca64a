"""Bloom filters with counters, from which keys can be taken out.

Source: Fan, Cao, Almeida and Broder, Summary Cache, IEEE/ACM Transactions on Networking 2000.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np

from ccbps.arrays import Bools
from ccbps.errors import ParameterError
from ccbps.filters.bloom import AT_ONCE, Bloom
from ccbps.filters.keys import Keys, as_key_bytes

MOST_COUNT: Final = 255


class CountingBloomFilter(Bloom):
    """As `BloomFilter` with a counter of 8 bits for each bit: keys can be taken out again.

    A counter that reached 255 stays there, so a filter with more than 254 copies of a key, or keys
    that share a place, forgets nothing that it should keep.

    Attributes:
        capacity: keys, n.
        rate: of false positives when it is full, p.
        size: counters, m.
        hashes: counters of a key, k.
        count: keys that were added and not removed, copies included.

    Example:
        >>> from ccbps.filters import CountingBloomFilter
        >>> topics = CountingBloomFilter(capacity=1000)
        >>> topics.add_all(["news/sports", "news/weather"])
        >>> topics.remove("news/sports")
        >>> topics.has_all(["news/sports", "news/weather"])
        array([False,  True])
    """

    kind = b"C"
    cells = 1

    def add(self, key: str | bytes) -> None:
        """Add a key, or one more copy of it.

        Raises:
            FilterFullError: the filter holds as many keys as it is for.
        """
        self.add_all([key])

    def remove(self, key: str | bytes) -> None:
        """Take out a copy of a key.

        Raises:
            ParameterError: it is not in the filter.
        """
        self.remove_all([key])

    def __contains__(self, key: str | bytes) -> bool:
        counts = self._cells
        return all(counts[place] for place in self._places_of(key))

    def add_all(self, keys: Keys) -> None:
        """Add a column of keys.

        Raises:
            FilterFullError: they do not fit; none is added.
        """
        first, second = self.hashing.many(as_key_bytes(keys))
        self._require_room(len(first))
        places, more = np.unique(self._places(first, second), return_counts=True)
        self._cells[places] = np.minimum(MOST_COUNT, self._cells[places] + more).astype(np.uint8)
        self.count += len(first)

    def remove_all(self, keys: Keys) -> None:
        """Take out a column of keys, a copy for each.

        Raises:
            ParameterError: one is certainly not in the filter, or not as often; none is taken out.
        """
        first, second = self.hashing.many(as_key_bytes(keys))
        places, fewer = np.unique(self._places(first, second), return_counts=True)
        counts = self._cells[places].astype(np.intp)
        if (counts < np.minimum(fewer, MOST_COUNT)).any() or len(first) > self.count:
            raise ParameterError(
                "keys: one is not in the filter, or not so often; nothing was removed, since that "
                "would lose other keys"
            )
        self._cells[places] = np.where(counts == MOST_COUNT, counts, counts - fewer).clip(0)
        self.count -= len(first)

    def has_all(self, keys: Keys) -> Bools:
        """Whether each key of a column may be in, shape (keys,); False is certain."""
        first, second = self.hashing.many(as_key_bytes(keys))
        found = np.empty(len(first), dtype=np.bool_)
        for start in range(0, len(first), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            found[some] = self._cells[self._places(first[some], second[some])].all(axis=0)
        return found

    @property
    def load(self) -> float:
        """Share of counters that are not 0."""
        return float(np.count_nonzero(self._cells)) / self.size

    def __or__(self, other: Self) -> Self:
        """The sum: as if all keys had been added to one filter.

        Raises:
            ShapeError: the filters have other parameters.
            FilterFullError: they hold more keys than one is for.
        """
        self._require_alike(other)
        out = type(self)(self.capacity, self.rate, self.hashing)
        out._require_room(self.count + other.count)
        both = self._cells.astype(np.uint16) + other._cells
        out._cells = np.minimum(MOST_COUNT, both).astype(np.uint8)
        out.count = self.count + other.count
        return out
