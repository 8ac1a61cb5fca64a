"""The table of a cuckoo filter: fingerprints find room, are looked up and are taken out.

Fingerprint f of bucket i has another one, (g(f) - i) mod m. Since (g(f) - (g(f) - i)) = i mod m,
each is the other's other one for any number m of buckets.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Index, Words
from ccbps.compiled import rows_compiled

MOST_KICKS: Final = 500
AT_ONCE: Final = 1 << 13
FACTOR: Final = 0x9E3779B97F4A7C15
MARKS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32}
"""Types of fingerprints by their bytes."""
Marks: TypeAlias = NDArray[np.unsignedinteger[Any]]
_HALF: Final = np.uint64(32)


class CuckooTable:
    """Fingerprints in buckets.

    Attributes:
        cells: fingerprints, shape (buckets, slots); 0 is an empty slot.
    """

    def __init__(self, buckets: int, slots: int, fingerprint_bytes: int) -> None:
        self.buckets, self.slots = buckets, slots
        self.cells: Marks = np.zeros((buckets, slots), dtype=MARKS[fingerprint_bytes])
        # Which fingerprint is kicked out is drawn from this; it need not be secret.
        self._draws = np.array([1], dtype=np.uint64)

    def bucket(self, words: Words) -> Index:
        """A bucket from the upper half of each word."""
        return ((words >> _HALF) * np.uint64(self.buckets) >> _HALF).astype(np.int64)

    def other(self, marks: Marks, places: Index) -> Index:
        """The other bucket of fingerprints."""
        return (self.bucket(marks.astype(np.uint64) * np.uint64(FACTOR)) - places) % self.buckets

    def has(self, marks: Marks, places: Index) -> Bools:
        """Whether fingerprints are in one of their buckets."""
        found = np.empty(len(marks), dtype=np.bool_)
        if self._compiled(len(marks)):
            from ccbps.filters import compiled_filters

            compiled_filters.cuckoo_has(self.cells, marks, places, found)
            return found
        for start in range(0, len(marks), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            mark, place = marks[some, None], places[some]
            found[some] = (self.cells[place] == mark).any(axis=1)
            found[some] |= (self.cells[self.other(marks[some], place)] == mark).any(axis=1)
        return found

    def put(self, marks: Marks, places: Index) -> bool:
        """Whether all found room; if not, the table is to be thrown away."""
        if self._compiled(len(marks)):
            from ccbps.filters import compiled_filters

            done = np.zeros(1, dtype=np.int64)
            compiled_filters.cuckoo_add(self.cells, marks, places, self._draws, MOST_KICKS, done)
            return int(done[0]) == len(marks)
        marks, places = self._settle(marks, places)
        marks, places = self._settle(marks, self.other(marks, places))
        draws = np.random.default_rng(int(self._draws[0]))
        self._draws += np.uint64(1)
        for _ in range(MOST_KICKS):
            if not len(marks):
                return True
            # One fingerprint for each bucket takes a slot there; who was in it goes on.
            targets, kicks = np.unique(places, return_index=True)
            slots = draws.integers(0, self.slots, len(kicks))
            out = self.cells[targets, slots]
            self.cells[targets, slots] = marks[kicks]
            marks = marks.copy()
            marks[kicks] = out
            places[kicks] = self.other(out, targets)
            marks, places = self._settle(marks, places)
        return not len(marks)

    def _settle(self, marks: Marks, places: Index) -> tuple[Marks, Index]:
        """Put fingerprints into buckets with room; returns those that found none."""
        order = np.argsort(places, kind="stable")
        marks, places = marks[order], places[order]
        firsts = np.searchsorted(places, places)
        rank = np.arange(len(places)) - firsts
        empty = self.cells[places] == 0
        wanted = empty & (np.cumsum(empty, axis=1) == rank[:, None] + 1)
        fits = wanted.any(axis=1)
        self.cells[places[fits], wanted[fits].argmax(axis=1)] = marks[fits]
        return marks[~fits], places[~fits]

    def take(self, marks: Marks, places: Index) -> int:
        """Take out a copy of each; returns how many were not there."""
        if self._compiled(len(marks)):
            from ccbps.filters import compiled_filters

            done = np.zeros(1, dtype=np.int64)
            compiled_filters.cuckoo_remove(self.cells, marks, places, done)
            return len(marks) - int(done[0])
        while len(marks):
            others = self.other(marks, places)
            both = np.concatenate([self.cells[places], self.cells[others]], axis=1)
            there = both == marks[:, None]
            found, slot = there.any(axis=1), there.argmax(axis=1)
            if not found.all():
                return len(marks)
            bucket = np.where(slot < self.slots, places, others)
            cells = bucket * self.slots + slot % self.slots
            # Of keys that would take the same copy one does; the others look again.
            targets, taken = np.unique(cells, return_index=True)
            self.cells.reshape(-1)[targets] = 0
            marks, places = np.delete(marks, taken), np.delete(places, taken)
        return 0

    def _compiled(self, rows: int) -> bool:
        return rows_compiled(rows, self.slots, "filters.compiled_filters")
