"""Bloom filters: sets of bits that know for sure which keys are absent.

Key x has the bits at places (h1 + i h2 mod 2^64) / 2^64 of m, i = 0 .. k - 1, with the two halves
of its hash (Kirsch and Mitzenmacher, 2006); of a place the upper 32 bits count.

Sources: B. H. Bloom, CACM 1970; [N1] section 2.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final, Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.compiled import rows_compiled
from ccbps.errors import DecodeError, FilterFullError, ParameterError, ShapeError
from ccbps.filters.hashing import Hashing, Murmur3
from ccbps.filters.keys import Keys, as_key_bytes
from ccbps.filters.messages import from_wire, to_wire
from ccbps.filters.sizing import bloom_hashes, bloom_rate, bloom_size

MOST_BITS: Final = (1 << 32) - 1
AT_ONCE: Final = 1 << 12
_HALF: Final = np.uint64(32)
_MASK: Final = (1 << 64) - 1


class Bloom(ABC):
    """What Bloom filters with and without counters share: where a key's bits are."""

    kind: ClassVar[bytes]
    cells: ClassVar[int]
    """In a byte."""

    def __init__(self, capacity: int, rate: float = 0.01, hashing: Hashing | None = None) -> None:
        """
        Args:
            capacity: keys, n.
            rate: of false positives when it is full, p.
            hashing: `Murmur3` or `SipHash`; Murmur3() if None.

        Raises:
            ParameterError: capacity is not a whole number, at least 1, rate not between 0 and 1,
                or the filter would have 2^32 bits or more.
        """
        if type(capacity) is not int or capacity < 1:
            raise ParameterError(f"capacity must be a whole number, at least 1, got {capacity!r}")
        if not isinstance(rate, float) or not 0 < rate < 1:
            raise ParameterError(f"rate must be a float between 0 and 1, got {rate!r}")
        if hashing is not None and not isinstance(hashing, Hashing):
            raise ParameterError(f"hashing must be a Hashing, got {type(hashing).__name__}")
        self.capacity, self.rate = capacity, rate
        self.hashing = Murmur3() if hashing is None else hashing
        self.size = bloom_size(capacity, rate)
        if self.size > MOST_BITS:
            raise ParameterError(
                f"capacity={capacity} at rate={rate} takes {self.size} bits, more than 2^32 - 1"
            )
        self.hashes = bloom_hashes(capacity, self.size)
        self.count = 0
        self._cells: Bytes = np.zeros(-(-self.size // self.cells), dtype=np.uint8)

    def _places_of(self, key: str | bytes) -> list[int]:
        word, step = self.hashing.one(key.encode() if isinstance(key, str) else key)
        size = self.size
        return [((word + i * step & _MASK) >> 32) * size >> 32 for i in range(self.hashes)]

    def _places(self, first: Words, second: Words) -> Index:
        """Shape (hashes, keys)."""
        steps = np.arange(self.hashes, dtype=np.uint64)[:, None]
        return ((first + steps * second >> _HALF) * np.uint64(self.size) >> _HALF).astype(np.intp)

    def _require_room(self, new: int) -> None:
        if self.count + new > self.capacity:
            raise FilterFullError(
                f"the filter holds {self.count} of {self.capacity} keys, and {new} more do not "
                "fit: make a larger one; nothing was added"
            )

    def _require_alike(self, other: Self) -> None:
        if type(other) is not type(self) or any(
            one != two
            for one, two in (
                (self.capacity, other.capacity),
                (self.rate, other.rate),
                (self.hashing.identity(), other.hashing.identity()),
            )
        ):
            raise ShapeError(
                "filters can be united if they have one kind, capacity and rate, and one hash and "
                f"key, got {self!r} and {other!r}"
            )

    @property
    @abstractmethod
    def load(self) -> float:
        """Share of places that are taken."""

    def false_positives(self) -> float:
        """The chance, now, that an absent key is found."""
        return self.load**self.hashes

    def expected_false_positives(self) -> float:
        """The same by the formula, for as many keys as are in."""
        return bloom_rate(self.size, self.hashes, self.count)

    def to_bytes(self) -> bytes:
        """As it is sent or kept."""
        numbers = self.capacity, self.size, self.hashes, self.count, self.rate
        return to_wire(self.kind, self.hashing, numbers, self._cells.tobytes())

    @classmethod
    def from_bytes(cls, message: bytes, hashing: Hashing | None = None) -> Self:
        """Read what `to_bytes` wrote.

        Raises:
            DecodeError: malformed, or of another hash or key.
        """
        hashing, numbers, content = from_wire(cls.kind, hashing, message)
        try:
            out = cls(numbers[0], numbers[4], hashing)
        except ParameterError:
            raise DecodeError("not a Bloom filter's parameters") from None
        if (out.size, out.hashes) != numbers[1:3] or len(content) != len(out._cells):
            raise DecodeError("not a Bloom filter's parameters")
        out._cells, out.count = np.frombuffer(content, dtype=np.uint8).copy(), numbers[3]
        return out

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.count} of {self.capacity} keys, {self.size} bits, "
            f"{self.hashes} hashes>"
        )


class BloomFilter(Bloom):
    """A set of keys in m bits, k of them for each key; keys cannot be taken out.

    Attributes:
        capacity: keys, n.
        rate: of false positives when it is full, p.
        size: bits, m.
        hashes: bits of a key, k.
        count: keys that were added, and were not found before.

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
            FilterFullError: the filter holds as many keys as it is for.
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
            FilterFullError: they do not fit; none is added.
        """
        first, second = self.hashing.many(as_key_bytes(keys))
        absent = ~self._has(first, second)
        new = int(absent.sum())
        if self.count + new > self.capacity:  # keys that come twice count once
            new = len(np.unique(np.stack([first, second])[:, absent], axis=1).T)
            self._require_room(new)
        if rows_compiled(len(first), self.hashes, "filters.compiled_filters"):
            from ccbps.filters import compiled_filters

            compiled_filters.bloom_add(self._cells, self.size, self.hashes, first, second)
        else:
            for start in range(0, len(first), AT_ONCE):
                some = slice(start, start + AT_ONCE)
                places = self._places(first[some], second[some]).reshape(-1)
                np.bitwise_or.at(
                    self._cells, places >> 3, np.left_shift(1, places & 7).astype(np.uint8)
                )
        self.count += new

    def has_all(self, keys: Keys) -> Bools:
        """Whether each key of a column may be in, shape (keys,); False is certain."""
        return self._has(*self.hashing.many(as_key_bytes(keys)))

    def _has(self, first: Words, second: Words) -> Bools:
        found = np.empty(len(first), dtype=np.bool_)
        if rows_compiled(len(first), self.hashes, "filters.compiled_filters"):
            from ccbps.filters import compiled_filters

            compiled_filters.bloom_has(self._cells, self.size, self.hashes, first, second, found)
            return found
        for start in range(0, len(first), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            places = self._places(first[some], second[some])
            bits = self._cells[places >> 3] >> (places & 7).astype(np.uint8) & np.uint8(1)
            found[some] = bits.all(axis=0)
        return found

    @property
    def load(self) -> float:
        """Share of bits that are set."""
        return float(np.bitwise_count(self._cells).sum()) / self.size

    def __or__(self, other: Self) -> Self:
        """The union: as if all keys had been added to one filter.

        Raises:
            ShapeError: the filters have other parameters.
        """
        self._require_alike(other)
        out = type(self)(self.capacity, self.rate, self.hashing)
        out._cells = self._cells | other._cells
        out.count = min(out.capacity, self.count + other.count)
        return out
