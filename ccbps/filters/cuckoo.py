"""Cuckoo filters: fingerprints of keys in buckets, from which keys can be removed again.

Key x has the fingerprint f and two buckets, i = h(x) and (g(f) - i) mod m. If both are full, f
replaces another fingerprint, which moves to its other bucket. The map from one bucket to the other
is an involution for any number m of buckets, as g(f) - (g(f) - i) = i mod m.

*Erratum*, [N1] section 2.2, and packages that follow it: i xor g(f) has that property only if m is
a power of two. With the report's 100 buckets keys are lost when they move. The report also stores a
repeated key once, so removing one copy removes both. This filter does so on request (`once`), and
then refuses to remove keys.

Source: Fan, Andersen, Kaminsky and Mitzenmacher, CoNEXT 2014.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Index, Words, slices
from ccbps.checks import choice, flag, whole
from ccbps.errors import FilterFullError, ParameterError
from ccbps.filters.filter import Filter, Numbers
from ccbps.filters.hashing import Hashing, Keys, as_key_bytes, kernels, one_key

MOST_BUCKETS: Final = (1 << 32) - 1
MOST_SLOTS: Final = 64
MOST_KICKS: Final = 500
AT_ONCE: Final = 1 << 13
FACTOR: Final = 0x9E3779B97F4A7C15
MARKS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32}
"""Types of fingerprints by their bytes."""
Marks: TypeAlias = NDArray[np.unsignedinteger[Any]]
SPARE_BUCKETS: Final = 8
"""Buckets of `for_capacity` beyond those that a large filter needs. Without them, 7 % of all sets
of 30 keys find no room in a filter of 4 slots; with them, all of 6,000 sets did."""
_HALF: Final = np.uint64(32)
_MASK: Final = (1 << 64) - 1


def cuckoo_rate(slots: int, fingerprint_bytes: int, load: float) -> float:
    """Return the rate of false positives: 1 - (1 - 1 / F)^(2 b a), F fingerprints, load a."""
    fingerprints = 256**fingerprint_bytes - 1
    return float(1 - (1 - 1 / fingerprints) ** (2 * slots * load))


def cuckoo_buckets(capacity: int, slots: int) -> int:
    """Return the number of buckets for `capacity` keys, at a load that large filters reach.

    Example:
        >>> from ccbps.filters import cuckoo_buckets
        >>> cuckoo_buckets(380_000, 4)
        100000
    """
    load = {1: 0.45, 2: 0.84, 3: 0.91}.get(whole("slots", slots, 1), 0.95)
    return max(1, ceil(capacity / slots / load - 1e-9))


class CuckooFilter(Filter):
    """A multiset of keys, each stored as a fingerprint.

    Args:
        buckets: number of buckets m, any from 1 to 2^32 - 1.
        slots: number of fingerprints in a bucket b, 1 to 64.
        fingerprint_bytes: bytes of a fingerprint, 1, 2 or 4.
        hashing: `Murmur3` or `SipHash`; None for Murmur3().
        once: True to add no key that seems to be present, as in the source. Then keys cannot be
            removed.

    Attributes:
        count: number of keys.

    Example:
        >>> from ccbps.filters import CuckooFilter
        >>> topics = CuckooFilter.for_capacity(1000)
        >>> topics.add_all(["news/sports", "news/weather"])
        >>> topics.remove("news/sports")
        >>> topics.has_all(["news/sports", "news/weather"])
        array([False,  True])

    Raises:
        ParameterError: a number is outside its range.
    """

    kind = b"K"

    def __init__(
        self,
        buckets: int,
        slots: int = 4,
        fingerprint_bytes: int = 2,
        hashing: Hashing | None = None,
        *,
        once: bool = False,
    ) -> None:
        super().__init__(hashing)
        self.buckets = whole("buckets", buckets, 1, MOST_BUCKETS)
        self.slots = whole("slots", slots, 1, MOST_SLOTS)
        width = whole("fingerprint_bytes", fingerprint_bytes)
        self.fingerprint_bytes = choice("fingerprint_bytes", width, MARKS)
        self.once = flag("once", once)
        # Fingerprints, shape (buckets, slots); 0 is an empty slot.
        self._cells: Marks = np.zeros((self.buckets, self.slots), dtype=MARKS[width])
        # This seed, which need not be secret, determines which fingerprints move.
        self._draws = np.array([1], dtype=np.uint64)

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
        """Make a filter for `capacity` different keys, with spare room so that moves succeed.

        Hazard: with 1 or 2 slots, some sets of keys do not fit by chance, up to 5 in a hundred.
        """
        needed = cuckoo_buckets(capacity, slots)
        buckets = max(needed, min(needed + SPARE_BUCKETS, MOST_BUCKETS))
        return cls(buckets, slots, fingerprint_bytes, hashing, once=once)

    # -- one key ---------------------------------------------------------------------------------

    def add(self, key: str | bytes) -> None:
        """Add a key, or another copy of it.

        There is room for 2 * slots copies of a key, or for half as many if its buckets are equal.

        Raises:
            FilterFullError: there is no room. Nothing was changed.
        """
        mark, first = self._one(key)
        if self.once and self._holds(mark, first):
            return
        if self._exchange(mark, first, 0, mark):
            self.count += 1
        else:
            self.add_all([key])  # which moves others

    def remove(self, key: str | bytes) -> None:
        """Remove a copy of a key that was added.

        Hazard: removing a key that was not added may lose another one with the same fingerprint.

        Raises:
            ParameterError: the key is certainly absent, or the filter stores each key once.
        """
        mark, first = self._one(key)
        if not self.once and self._exchange(mark, first, mark, 0):
            self.count -= 1
        else:
            self.remove_all([key])  # which refuses

    def __contains__(self, key: str | bytes) -> bool:
        return self._holds(*self._one(key))

    def _holds(self, mark: int, first: int) -> bool:
        cells = self._cells
        return mark in cells[first].tolist() or mark in cells[self._other(mark, first)].tolist()

    def _exchange(self, mark: int, first: int, old: int, new: int) -> bool:
        """Put `new` in place of `old` in a bucket of a fingerprint, if one has it; tell whether."""
        for place in (first, self._other(mark, first)):
            row = self._cells[place].tolist()
            if old in row:
                self._cells[place, row.index(old)] = new
                return True
        return False

    # -- columns ---------------------------------------------------------------------------------

    def add_all(self, keys: Keys) -> None:
        """Add a column of keys.

        Raises:
            FilterFullError: a key has no room. None of them is added.
        """
        marks, places = self._of(keys)
        if self.once:
            marks, places = self._new(marks, places)
        before = self._cells.copy()
        if self.count + len(marks) > self._cells.size or not self._put(marks, places):
            self._cells[:] = before
            raise FilterFullError(
                f"the filter holds {self.count} keys in {self._cells.size} slots, and not all of "
                f"{len(marks)} more have room: make a larger one; nothing was added"
            )
        self.count += len(marks)

    def has_all(self, keys: Keys) -> Bools:
        return self._has(*self._of(keys))

    def remove_all(self, keys: Keys) -> None:
        """Remove a column of keys that were added, a copy for each.

        Hazard: removing a key that was not added may lose another one with the same fingerprint.

        Raises:
            ParameterError: a key is certainly absent, or not present as often (no key is removed
                then), or the filter stores each key once.
        """
        if self.once:
            raise ParameterError(
                "keys cannot be removed from a filter that stores each once, since another key may "
                "have the same fingerprint; make the filter with once=False"
            )
        marks, places = self._of(keys)
        before = self._cells.copy()
        left = self._take(marks, places)
        if left:
            self._cells[:] = before
            raise ParameterError(
                f"keys: {left} of {len(marks)} are not in the filter, or not so often; nothing was "
                "removed"
            )
        self.count -= len(marks)

    def __or__(self, other: Self) -> Self:
        """Return the union, as if all keys had been added to one filter.

        Raises:
            ShapeError: the filters have different parameters.
            FilterFullError: their keys do not fit into one.
        """
        self._require_alike(other)
        out = type(self)(
            self.buckets, self.slots, self.fingerprint_bytes, self.hashing, once=self.once
        )
        out._cells[:], out.count = self._cells, self.count
        places, slots = (np.ascontiguousarray(axis) for axis in np.nonzero(other._cells))
        marks = other._cells[places, slots]
        if out.once:
            marks, places = out._new(marks, places)
        if not out._put(marks, places):
            raise FilterFullError(f"{self!r} and {other!r} do not fit into one")
        out.count += len(marks)
        return out

    @property
    def load(self) -> float:
        """Share of slots that are taken."""
        return self.count / self._cells.size

    def expected_false_positives(self) -> float:
        """Estimate, by the formula, the probability that an absent key seems to be present."""
        return cuckoo_rate(self.slots, self.fingerprint_bytes, self.load)

    def _parameters(self) -> tuple[object, ...]:
        return self.buckets, self.slots, self.fingerprint_bytes, self.once

    def _state(self) -> tuple[Numbers, bytes]:
        content = self._cells.astype(self._cells.dtype.newbyteorder("<"))
        numbers = self.buckets, self.slots, self.fingerprint_bytes, int(self.once), self.count
        return numbers, content.tobytes()

    @classmethod
    def _restored(cls, numbers: Numbers, content: bytes, hashing: Hashing) -> Self | None:
        buckets, slots, width, once, count = numbers
        if type(count) is not int or once > 1 or len(content) != buckets * slots * width:
            return None
        out = cls(buckets, slots, width, hashing, once=bool(once))
        cells = np.frombuffer(content, dtype=np.dtype(MARKS[width]).newbyteorder("<"))
        out._cells[:], out.count = cells.reshape(out._cells.shape), count
        return out if np.count_nonzero(cells) == count else None

    def __repr__(self) -> str:
        return (
            f"<CuckooFilter of {self.count} keys, {self.buckets} buckets of {self.slots} slots of "
            f"{self.fingerprint_bytes} bytes>"
        )

    # -- fingerprints ----------------------------------------------------------------------------

    def _one(self, key: str | bytes) -> tuple[int, int]:
        """Return the fingerprint and the first bucket of a key."""
        first, second = self.hashing.one(one_key(key))
        mark = 1 + ((second >> 32) * (256**self.fingerprint_bytes - 1) >> 32)
        return mark, (first >> 32) * self.buckets >> 32

    def _other(self, mark: int, place: int) -> int:
        """Return the other bucket of a fingerprint."""
        return ((((mark * FACTOR & _MASK) >> 32) * self.buckets >> 32) - place) % self.buckets

    def _of(self, keys: Keys) -> tuple[Marks, Index]:
        """Return the fingerprints and the first buckets of keys."""
        first, second = self.hashing.many(as_key_bytes(keys))
        fingerprints = np.uint64(256**self.fingerprint_bytes - 1)
        marks = (second >> _HALF) * fingerprints >> _HALF
        return (marks + np.uint64(1)).astype(self._cells.dtype), self._bucket(first)

    def _bucket(self, words: Words) -> Index:
        """Return a bucket from the upper half of each word."""
        return ((words >> _HALF) * np.uint64(self.buckets) >> _HALF).astype(np.int64)

    def _others(self, marks: Marks, places: Index) -> Index:
        """Return the other bucket of each fingerprint."""
        return (self._bucket(marks.astype(np.uint64) * np.uint64(FACTOR)) - places) % self.buckets

    def _new(self, marks: Marks, places: Index) -> tuple[Marks, Index]:
        """Select the fingerprints that do not seem to be present, each once."""
        absent = ~self._has(marks, places)
        marks, places = marks[absent], places[absent]
        lower = np.minimum(places, self._others(marks, places))
        _, kept = np.unique(np.stack([marks.astype(np.int64), lower]), axis=1, return_index=True)
        return marks[kept], places[kept]

    def _has(self, marks: Marks, places: Index) -> Bools:
        """Return whether each fingerprint is in one of its buckets."""
        present = np.empty(len(marks), dtype=np.bool_)
        if compiled := kernels(len(marks), self.slots):
            compiled.cuckoo_has(self._cells, marks, places, present)
            return present
        for part in slices(len(marks), AT_ONCE):
            mark, place = marks[part, None], places[part]
            present[part] = (self._cells[place] == mark).any(axis=1)
            present[part] |= (self._cells[self._others(marks[part], place)] == mark).any(axis=1)
        return present

    def _put(self, marks: Marks, places: Index) -> bool:
        """Return whether all fingerprints have room. If not, the cells are spoiled."""
        if compiled := kernels(len(marks), self.slots):
            done = np.zeros(1, dtype=np.int64)
            compiled.cuckoo_add(self._cells, marks, places, self._draws, MOST_KICKS, done)
            return int(done[0]) == len(marks)
        marks, places = self._settle(marks, places)
        marks, places = self._settle(marks, self._others(marks, places))
        draws = np.random.default_rng(int(self._draws[0]))
        self._draws += np.uint64(1)
        for _ in range(MOST_KICKS):
            if not len(marks):
                return True
            # In each bucket a fingerprint takes a slot, and the one that was there moves on.
            targets, kicks = np.unique(places, return_index=True)
            slots = draws.integers(0, self.slots, len(kicks))
            out = self._cells[targets, slots]
            self._cells[targets, slots] = marks[kicks]
            marks = marks.copy()
            marks[kicks] = out
            places[kicks] = self._others(out, targets)
            marks, places = self._settle(marks, places)
        return not len(marks)

    def _settle(self, marks: Marks, places: Index) -> tuple[Marks, Index]:
        """Put fingerprints into buckets with room. Return those without room."""
        order = np.argsort(places, kind="stable")
        marks, places = marks[order], places[order]
        rank = np.arange(len(places)) - np.searchsorted(places, places)
        empty = self._cells[places] == 0
        target = empty & (np.cumsum(empty, axis=1) == rank[:, None] + 1)
        fits = target.any(axis=1)
        self._cells[places[fits], target[fits].argmax(axis=1)] = marks[fits]
        return marks[~fits], places[~fits]

    def _take(self, marks: Marks, places: Index) -> int:
        """Remove a copy of each fingerprint. Return the number of absent ones."""
        if compiled := kernels(len(marks), self.slots):
            done = np.zeros(1, dtype=np.int64)
            compiled.cuckoo_remove(self._cells, marks, places, done)
            return len(marks) - int(done[0])
        while len(marks):
            others = self._others(marks, places)
            both = np.concatenate([self._cells[places], self._cells[others]], axis=1)
            there = both == marks[:, None]
            present, slot = there.any(axis=1), there.argmax(axis=1)
            if not present.all():
                return len(marks)
            bucket = np.where(slot < self.slots, places, others)
            cells = bucket * self.slots + slot % self.slots
            # If several keys would take the same copy, the first does. The others look again.
            targets, taken = np.unique(cells, return_index=True)
            self._cells.reshape(-1)[targets] = 0
            marks, places = np.delete(marks, taken), np.delete(places, taken)
        return 0
