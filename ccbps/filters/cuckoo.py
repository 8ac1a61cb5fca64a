"""Cuckoo filters: fingerprints of keys in buckets, from which keys can be taken out again.

Key x has the fingerprint f and the bucket i = h(x), or the other one, (g(f) - i) mod m, where it
goes if the first is full; if both are, others are kicked to theirs. Since (g(f) - (g(f) - i)) = i
mod m, each bucket is the other's other one for any number m of buckets.

*Erratum*, [N1] section 2.2, and packages that follow it: i xor g(f) has that property only where m
is a power of two. With the report's 100 buckets keys are lost when they are kicked. The report also
stores a key that comes twice once; then whoever takes out one copy takes out both. This filter does
so if asked (`once`), and refuses to take out keys.

Source: Fan, Andersen, Kaminsky and Mitzenmacher, CoNEXT 2014.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np

from ccbps.arrays import Bools, Index
from ccbps.errors import DecodeError, FilterFullError, ParameterError, ShapeError
from ccbps.filters.cuckoo_table import FACTOR, MARKS, CuckooTable, Marks
from ccbps.filters.hashing import Hashing, Murmur3
from ccbps.filters.keys import Keys, as_key_bytes
from ccbps.filters.messages import from_wire, to_wire
from ccbps.filters.sizing import cuckoo_buckets, cuckoo_rate

MOST_BUCKETS: Final = (1 << 32) - 1
_HALF: Final = np.uint64(32)
_MASK: Final = (1 << 64) - 1


class CuckooFilter:
    """A multiset of keys, of each a fingerprint.

    Attributes:
        buckets: m, any number.
        slots: fingerprints in a bucket, b.
        fingerprint_bytes: 1, 2 or 4.
        once: whether a key that seems to be in is not added again.
        count: keys.

    Example:
        >>> from ccbps.filters import CuckooFilter
        >>> topics = CuckooFilter.for_capacity(1000)
        >>> topics.add_all(["news/sports", "news/weather"])
        >>> topics.remove("news/sports")
        >>> topics.has_all(["news/sports", "news/weather"])
        array([False,  True])
    """

    def __init__(
        self,
        buckets: int,
        slots: int = 4,
        fingerprint_bytes: int = 2,
        hashing: Hashing | None = None,
        *,
        once: bool = False,
    ) -> None:
        """
        Args:
            buckets: any number from 1 to 2^32 - 1.
            slots: of each bucket, 1 to 64.
            fingerprint_bytes: 1, 2 or 4.
            hashing: `Murmur3` or `SipHash`; Murmur3() if None.
            once: do not add a key that seems to be in, as the source does. Keys cannot be taken out
                then.

        Raises:
            ParameterError: a number is outside its range.
        """
        if type(buckets) is not int or not 1 <= buckets <= MOST_BUCKETS:
            raise ParameterError(f"buckets must be 1 .. 2^32 - 1, got {buckets!r}")
        if type(slots) is not int or not 1 <= slots <= 64:
            raise ParameterError(f"slots must be 1 .. 64, got {slots!r}")
        if fingerprint_bytes not in MARKS:
            raise ParameterError(f"fingerprint_bytes must be 1, 2 or 4, got {fingerprint_bytes!r}")
        if hashing is not None and not isinstance(hashing, Hashing):
            raise ParameterError(f"hashing must be a Hashing, got {type(hashing).__name__}")
        self.buckets, self.slots, self.fingerprint_bytes = buckets, slots, fingerprint_bytes
        self.hashing = Murmur3() if hashing is None else hashing
        self.once, self.count = once, 0
        self._table = CuckooTable(buckets, slots, fingerprint_bytes)

    @classmethod
    def for_capacity(
        cls,
        capacity: int,
        slots: int = 4,
        fingerprint_bytes: int = 2,
        hashing: Hashing | None = None,
        *,
        once: bool = False,
    ) -> Self:
        """A filter for so many keys, with room to spare for kicks."""
        return cls(cuckoo_buckets(capacity, slots), slots, fingerprint_bytes, hashing, once=once)

    # -- one key ---------------------------------------------------------------------------------

    def add(self, key: str | bytes) -> None:
        """Add a key, or one more copy of it. Of one key there is room for 2 * slots copies, or, if
        both its buckets are the same, for half as many.

        Raises:
            FilterFullError: there is no room; nothing was changed.
        """
        mark, place = self._one(key)
        places, cells = (place, self._other(mark, place)), self._table.cells
        rows = [cells[place].tolist() for place in places]
        if self.once and any(mark in row for row in rows):
            return
        for place, row in zip(places, rows, strict=True):
            if 0 in row:
                cells[place, row.index(0)] = mark
                self.count += 1
                return
        self.add_all([key])  # which kicks others

    def remove(self, key: str | bytes) -> None:
        """Take out a copy of a key that was added. Never take out another: that may lose one that
        looks alike.

        Raises:
            ParameterError: it is certainly not in, or the filter stores each key once.
        """
        mark, first = self._one(key)
        cells = self._table.cells
        for place in (first, self._other(mark, first)):
            row = cells[place].tolist()
            if mark in row and not self.once:
                cells[place, row.index(mark)] = 0
                self.count -= 1
                return
        self.remove_all([key])  # which refuses

    def __contains__(self, key: str | bytes) -> bool:
        mark, place = self._one(key)
        cells = self._table.cells
        return mark in cells[place].tolist() or mark in cells[self._other(mark, place)].tolist()

    # -- columns ---------------------------------------------------------------------------------

    def add_all(self, keys: Keys) -> None:
        """Add a column of keys.

        Raises:
            FilterFullError: there is no room for one of them; none is added.
        """
        marks, places = self._of(keys)
        if self.once:
            marks, places = self._new(marks, places)
        cells = self._table.cells
        before = cells.copy()
        if self.count + len(marks) > cells.size or not self._table.put(marks, places):
            cells[:] = before
            raise FilterFullError(
                f"the filter holds {self.count} keys in {cells.size} slots, and not all of "
                f"{len(marks)} more find room: make a larger one; nothing was added"
            )
        self.count += len(marks)

    def has_all(self, keys: Keys) -> Bools:
        """Whether each key of a column may be in, shape (keys,); False is certain."""
        return self._table.has(*self._of(keys))

    def remove_all(self, keys: Keys) -> None:
        """Take out a column of keys that were added, a copy for each.

        Raises:
            ParameterError: one is certainly not in, or not so often, and none is taken out; or the
                filter stores each key once.
        """
        if self.once:
            raise ParameterError(
                "keys cannot be taken out of a filter that stores each once: another key may look "
                "alike, and would be lost; make the filter with once=False"
            )
        marks, places = self._of(keys)
        before = self._table.cells.copy()
        left = self._table.take(marks, places)
        if left:
            self._table.cells[:] = before
            raise ParameterError(
                f"keys: {left} of {len(marks)} are not in the filter, or not so often; nothing was "
                "removed"
            )
        self.count -= len(marks)

    def __or__(self, other: Self) -> Self:
        """The union: as if all keys had been added to one filter.

        Raises:
            ShapeError: the filters have other parameters.
            FilterFullError: they do not fit into one.
        """
        if type(other) is not type(self) or self._identity() != other._identity():
            raise ShapeError(
                "filters can be united if they have one shape, hash and key, got "
                f"{self!r} and {other!r}"
            )
        out = type(self)(
            self.buckets, self.slots, self.fingerprint_bytes, self.hashing, once=self.once
        )
        out._table.cells[:], out.count = self._table.cells, self.count
        places, slots = (np.ascontiguousarray(axis) for axis in np.nonzero(other._table.cells))
        marks = other._table.cells[places, slots]
        if out.once:
            marks, places = out._new(marks, places)
        if not out._table.put(marks, places):
            raise FilterFullError(f"{self!r} and {other!r} do not fit into one")
        out.count += len(marks)
        return out

    @property
    def load(self) -> float:
        """Share of slots that are taken."""
        return self.count / self._table.cells.size

    def expected_false_positives(self) -> float:
        """The chance, by the formula, that an absent key is found."""
        return cuckoo_rate(self.slots, self.fingerprint_bytes, self.load)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return (
            f"<CuckooFilter of {self.count} keys, {self.buckets} buckets of {self.slots} slots of "
            f"{self.fingerprint_bytes} bytes>"
        )

    # -- bytes -----------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """As it is sent or kept."""
        numbers = self.buckets, self.slots, self.fingerprint_bytes, int(self.once), self.count
        cells = self._table.cells
        content = cells.astype(cells.dtype.newbyteorder("<"))
        return to_wire(b"K", self.hashing, numbers, content.tobytes())

    @classmethod
    def from_bytes(cls, message: bytes, hashing: Hashing | None = None) -> Self:
        """Read what `to_bytes` wrote.

        Raises:
            DecodeError: malformed, or of another hash or key.
        """
        hashing, numbers, content = from_wire(b"K", hashing, message)
        buckets, slots, width, once, count = numbers
        if type(count) is not int or once > 1 or len(content) != buckets * slots * width:
            raise DecodeError("not a cuckoo filter's parameters")
        try:
            out = cls(buckets, slots, width, hashing, once=bool(once))
        except ParameterError:
            raise DecodeError("not a cuckoo filter's parameters") from None
        kind, cells = np.dtype(MARKS[width]).newbyteorder("<"), out._table.cells
        cells[:] = np.frombuffer(content, dtype=kind).reshape(cells.shape)
        if np.count_nonzero(cells) != count:
            raise DecodeError("not a cuckoo filter's parameters")
        out.count = count
        return out

    # -- fingerprints ----------------------------------------------------------------------------

    def _identity(self) -> tuple[object, ...]:
        shape = self.buckets, self.slots, self.fingerprint_bytes, self.once
        return (*shape, self.hashing.identity())

    def _one(self, key: str | bytes) -> tuple[int, int]:
        """Fingerprint and first bucket of a key."""
        first, second = self.hashing.one(key.encode() if isinstance(key, str) else key)
        mark = 1 + ((second >> 32) * (256**self.fingerprint_bytes - 1) >> 32)
        return mark, (first >> 32) * self.buckets >> 32

    def _other(self, mark: int, place: int) -> int:
        """The other bucket of a fingerprint."""
        return ((((mark * FACTOR & _MASK) >> 32) * self.buckets >> 32) - place) % self.buckets

    def _of(self, keys: Keys) -> tuple[Marks, Index]:
        """Fingerprints and first buckets of keys."""
        first, second = self.hashing.many(as_key_bytes(keys))
        fingerprints = np.uint64(256**self.fingerprint_bytes - 1)
        marks = (second >> _HALF) * fingerprints >> _HALF
        return (marks + np.uint64(1)).astype(self._table.cells.dtype), self._table.bucket(first)

    def _new(self, marks: Marks, places: Index) -> tuple[Marks, Index]:
        """Those that do not seem to be in, each once."""
        absent = ~self._table.has(marks, places)
        marks, places = marks[absent], places[absent]
        lower = np.minimum(places, self._table.other(marks, places))
        _, kept = np.unique(np.stack([marks.astype(np.int64), lower]), axis=1, return_index=True)
        return marks[kept], places[kept]
