"""Bloom filters: sets of keys in bits or counters, with false positives but no false negatives.

Key x has the bits at places (h1 + i h2 + (i^3 - i)/6 u mod 2^64) / 2^64 of m, i = 0 .. k - 1, with
the two halves of its hash, and u = (2^64 - 1) / m rounded down. Only the upper 32 bits of such a
number count. This is the enhanced double hashing of Dillinger and Manolios (FMCAD 2004). Without
its last term, the places of a key with a small h2 lie side by side, and a filter of 128 bits has
six times the false positives that it should have.

*Erratum*, [N1] Table 1: a Bloom filter for 400,000 keys at a rate of 0.1 is printed as 0.47 MiB. By
the report's own formula it has 1,917,012 bits, 0.23 MiB.

Sources: B. H. Bloom, CACM 1970; [N1] section 2.1; for counters Fan, Cao, Almeida and Broder,
Summary Cache, IEEE/ACM Transactions on Networking 2000.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from math import ceil, log
from typing import ClassVar, Final, Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words, slices
from ccbps.checks import number, whole
from ccbps.errors import FilterFullError, ParameterError
from ccbps.filters.filter import Filter, Numbers
from ccbps.filters.hashing import Hashing, Keys, as_key_bytes, kernels, one_key

MOST_BITS: Final = (1 << 32) - 1
MOST_COUNT: Final = 255
AT_ONCE: Final = 1 << 12
_HALF: Final = np.uint64(32)
_MASK: Final = (1 << 64) - 1


def bloom_size(capacity: int, rate: float) -> int:
    """Return the bits of a Bloom filter: m = -n ln p / (ln 2)^2, rounded up.

    Example:
        >>> from ccbps.filters import bloom_size
        >>> bloom_size(400_000, 0.1)
        1917012
    """
    return max(1, ceil(-capacity * log(rate) / log(2) ** 2))


def _size(capacity: int, rate: float) -> int:
    """Return the bits of a filter that can be made.

    Raises:
        ParameterError: it would have too many, or the rate is no rate.
    """
    if not 0 < rate < 1:
        raise ParameterError(f"rate must be above 0 and below 1, got {rate!r}")
    size = bloom_size(capacity, rate)
    if size > MOST_BITS:
        raise ParameterError(
            f"capacity={capacity} at rate={rate} takes {size} bits, more than 2^32 - 1; use "
            "several filters"
        )
    return size


def _offsets(size: int, hashes: int) -> list[int]:
    """Return the numbers that are added to the places of all keys, as parts of 2^64."""
    unit = _MASK // size
    return [(i**3 - i) // 6 * unit & _MASK for i in range(hashes)]


def places_of(first: Words, second: Words, size: int, hashes: int) -> Index:
    """Return places below `size`, shape (hashes, keys), from both halves of the keys' hashes."""
    words = np.arange(hashes, dtype=np.uint64)[:, None] * second
    words += first
    words += np.array(_offsets(size, hashes), dtype=np.uint64)[:, None]
    words >>= _HALF
    words *= np.uint64(size)
    words >>= _HALF
    return words.astype(np.intp)


class Bloom(Filter):
    """The common part of Bloom filters with and without counters: the places of keys.

    Args:
        capacity: number of keys n that the filter is for.
        rate: rate of false positives p of a full filter, between 0 and 1.
        hashing: `Murmur3` or `SipHash`; None for Murmur3().

    Raises:
        ParameterError: capacity is not a whole number, at least 1, rate is not between 0 and 1, or
            the filter would have 2^32 bits or more.
    """

    cells: ClassVar[int]
    """Number of bits or counters in a byte."""

    def __init__(self, capacity: int, rate: float = 0.01, hashing: Hashing | None = None) -> None:
        super().__init__(hashing)
        self.capacity, self.rate = whole("capacity", capacity, 1), number("rate", rate)
        self.size = _size(self.capacity, self.rate)
        # The number with the least rate of false positives: k = m / n ln 2, rounded.
        self.hashes = max(1, round(self.size / self.capacity * log(2)))
        self._offsets = _offsets(self.size, self.hashes)
        self._cells: Bytes = np.zeros(-(-self.size // self.cells), dtype=np.uint8)

    def _places_of(self, key: str | bytes) -> list[int]:
        word, step = self.hashing.one(one_key(key))
        size = self.size
        numbers = (word + i * step + offset for i, offset in enumerate(self._offsets))
        return [((number & _MASK) >> 32) * size >> 32 for number in numbers]

    def _places(self, first: Words, second: Words) -> Index:
        """Return the places of keys, shape (hashes, keys)."""
        return places_of(first, second, self.size, self.hashes)

    def _parts(self, first: Words, second: Words) -> Iterator[tuple[slice, Index]]:
        """Yield parts of a column that fit the cache, each with its places."""
        for part in slices(len(first), AT_ONCE):
            yield part, self._places(first[part], second[part])

    def _require_room(self, new: int) -> None:
        if self.count + new > self.capacity:
            raise FilterFullError(
                f"the filter holds {self.count} of {self.capacity} keys, and {new} more do not "
                "fit: make a larger one; nothing was added"
            )

    @property
    @abstractmethod
    def load(self) -> float:
        """Share of bits or counters that are not 0."""

    def false_positives(self) -> float:
        """Return the present probability that an absent key seems to be present."""
        return self.load**self.hashes

    def expected_false_positives(self) -> float:
        """Estimate `false_positives` from the number of keys n: (1 - (1 - 1/m)^(k n))^k."""
        return float((1 - (1 - 1 / self.size) ** (self.hashes * self.count)) ** self.hashes)

    def _parameters(self) -> tuple[object, ...]:
        return self.capacity, self.rate

    def _state(self) -> tuple[Numbers, bytes]:
        numbers = self.capacity, self.size, self.hashes, self.count, self.rate
        return numbers, self._cells.tobytes()

    @classmethod
    def _restored(cls, numbers: Numbers, content: bytes, hashing: Hashing) -> Self | None:
        capacity, size, hashes, count, rate = numbers
        # The received bytes, not the numbers in them, determine how much memory is taken.
        has_size = -(-size // cls.cells) == len(content) and size == _size(capacity, rate)
        if not has_size or count > capacity:
            return None
        out = cls(capacity, rate, hashing)
        out._cells, out.count = np.frombuffer(content, dtype=np.uint8).copy(), count
        return out if out.hashes == hashes else None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.count} of {self.capacity} keys, {self.size} bits, "
            f"{self.hashes} hashes>"
        )


class BloomFilter(Bloom):
    """A set of keys in m bits, k of them for each key. Keys cannot be removed.

    Attributes:
        capacity: number of keys n that the filter is for.
        rate: rate of false positives p of a full filter.
        size: number m of bits.
        hashes: number k of bits of a key.
        count: number of added keys that did not seem to be present before.

    Example:
        >>> from ccbps.filters import BloomFilter
        >>> topics = BloomFilter(capacity=1000, rate=0.001)
        >>> topics.add_all(["news/sports", "news/weather"])
        >>> "news/sports" in topics
        True
        >>> topics.has_all(["news/weather", "quotes/IBM"])
        array([ True, False])
    """

    kind = b"B"
    cells = 8

    def add(self, key: str | bytes) -> None:
        """Add a key.

        Raises:
            FilterFullError: the filter has reached its capacity.
        """
        places = self._places_of(key)
        bits = memoryview(self._cells.data)
        if all(bits[place >> 3] >> (place & 7) & 1 for place in places):
            return
        self._require_room(1)
        for place in places:
            bits[place >> 3] |= 1 << (place & 7)
        self.count += 1

    def __contains__(self, key: str | bytes) -> bool:
        bits = memoryview(self._cells.data)
        return all(bits[place >> 3] >> (place & 7) & 1 for place in self._places_of(key))

    def add_all(self, keys: Keys) -> None:
        """Add a column of keys.

        Raises:
            FilterFullError: the keys do not fit. None of them is added.
        """
        first, second = self.hashing.many(as_key_bytes(keys))
        absent = ~self._has(first, second)
        new = int(absent.sum())
        if self.count + new > self.capacity:  # repeated keys count once
            new = len(np.unique(np.stack([first, second])[:, absent], axis=1).T)
            self._require_room(new)
        if compiled := kernels(len(first), self.hashes):
            compiled.bloom_add(self._cells, self.size, self.hashes, first, second)
        else:
            for _, places in self._parts(first, second):
                bits = np.left_shift(1, places & 7).astype(np.uint8)
                np.bitwise_or.at(self._cells, (places >> 3).reshape(-1), bits.reshape(-1))
        self.count += new

    def has_all(self, keys: Keys) -> Bools:
        return self._has(*self.hashing.many(as_key_bytes(keys)))

    def _has(self, first: Words, second: Words) -> Bools:
        present = np.empty(len(first), dtype=np.bool_)
        if compiled := kernels(len(first), self.hashes):
            compiled.bloom_has(self._cells, self.size, self.hashes, first, second, present)
            return present
        for part, places in self._parts(first, second):
            bits = self._cells[places >> 3] >> (places & 7).astype(np.uint8) & 1
            present[part] = bits.all(axis=0)
        return present

    @property
    def load(self) -> float:
        return float(np.bitwise_count(self._cells).sum()) / self.size

    def __or__(self, other: Self) -> Self:
        """Return the union, as if all keys had been added to one filter.

        Raises:
            ShapeError: the filters have different parameters.
        """
        self._require_alike(other)
        out = type(self)(self.capacity, self.rate, self.hashing)
        out._cells = self._cells | other._cells
        out.count = min(out.capacity, self.count + other.count)
        return out


class CountingBloomFilter(Bloom):
    """A Bloom filter with a counter of 8 bits in place of each bit, so that keys can be removed.

    A counter that reaches 255 stays there. So removals lose no other key, even after more than 254
    copies of a key or of keys that share a place.

    Attributes:
        capacity: number of keys n that the filter is for.
        rate: rate of false positives p of a full filter.
        size: number m of counters.
        hashes: number k of counters of a key.
        count: number of keys that were added and not removed, copies included.

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
        """Add a key, or another copy of it.

        Raises:
            FilterFullError: the filter has reached its capacity.
        """
        self.add_all([one_key(key)])

    def remove(self, key: str | bytes) -> None:
        """Remove a copy of a key.

        Raises:
            ParameterError: the key is not in the filter.
        """
        self.remove_all([one_key(key)])

    def __contains__(self, key: str | bytes) -> bool:
        return all(self._cells[place] for place in self._places_of(key))

    def add_all(self, keys: Keys) -> None:
        """Add a column of keys.

        Raises:
            FilterFullError: the keys do not fit. None of them is added.
        """
        first, second = self.hashing.many(as_key_bytes(keys))
        self._require_room(len(first))
        places, more = np.unique(self._places(first, second), return_counts=True)
        self._cells[places] = np.minimum(MOST_COUNT, self._cells[places] + more).astype(np.uint8)
        self.count += len(first)

    def remove_all(self, keys: Keys) -> None:
        """Remove a column of keys, a copy for each.

        Raises:
            ParameterError: a key is certainly not in the filter, or not as often. No key is
                removed.
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
        first, second = self.hashing.many(as_key_bytes(keys))
        present = np.empty(len(first), dtype=np.bool_)
        for part, places in self._parts(first, second):
            present[part] = self._cells[places].all(axis=0)
        return present

    @property
    def load(self) -> float:
        return float(np.count_nonzero(self._cells)) / self.size

    def __or__(self, other: Self) -> Self:
        """Return the sum, as if all keys had been added to one filter.

        Raises:
            ShapeError: the filters have different parameters.
            FilterFullError: they hold more keys than the capacity of one.
        """
        self._require_alike(other)
        out = type(self)(self.capacity, self.rate, self.hashing)
        out._require_room(self.count + other.count)
        both = self._cells.astype(np.uint16) + other._cells
        out._cells = np.minimum(MOST_COUNT, both).astype(np.uint8)
        out.count = self.count + other.count
        return out
