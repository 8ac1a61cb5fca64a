"""TagTable: interests whose keys are looked up among events' tags, each distinct key once an event.

Interests share much: whole interests are equal, their keys of one attribute are, or single keys.
Each of these is kept once, with an index from the next: interests are rows of sets (one set of keys
per attribute), sets are rows of keys. A key that fits is expanded to the sets that have it, and few
keys fit.

Sets are the clauses of an interest (`ccbps.matching.contract.clauses`): a pair ends at the first
set in which no key fits, and the time shows this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import numpy as np

from ccbps.arrays import Bools, Index, Numbers, Words, slices
from ccbps.ciphers.word_prf import NonceHash
from ccbps.matching.contract.clauses import all_of

_SLOT_BITS: Final = (9, 13, 16)
"""Bits of a tag that are looked up first, for few, many and very many keys; the whole tag is
compared where they are found."""
_MANY: Final = (1 << 9, 1 << 15)
_PAIRS: Final = 1 << 14
"""Keys looked up at a time, with all events together."""
_EVENTS: Final = (8, 256)
"""Events looked up at a time, at least and at most."""


def _distinct(rows: Words) -> tuple[Index, Index]:
    """Return the first place of each distinct row, and every row's number among the distinct ones.

    Rows (n, w) are compared as a whole where their hashes agree. Whoever sends interests can make
    different rows of equal hashes. Then equal rows may be kept apart, and answers stay right.
    """
    factors = np.random.default_rng(1).integers(0, 1 << 64, rows.shape[1], np.uint64) | np.uint64(1)
    hashes = rows @ factors
    order = np.argsort(hashes, kind="stable")
    new = np.ones(len(rows), dtype=np.bool_)
    new[1:] = np.diff(hashes[order]) != 0
    for like in np.array_split(np.flatnonzero(~new), 1 + rows.size // (1 << 22)):
        new[like] = (rows[order[like]] != rows[order[like - 1]]).any(axis=1)
    numbers = np.empty(len(rows), dtype=np.intp)
    numbers[order] = np.cumsum(new) - 1
    return order[new], numbers


@dataclass(frozen=True, slots=True)
class _Sets:
    """The distinct sets of keys of one attribute.

    Attributes:
        keys: distinct keys, (keys, 2).
        slots: numbers of the keys of each set, (sets, size).
        holders: numbers of sets, by key: holders[starts[k]:starts[k + 1]] have key k.
        starts: places in `holders`, one for each key and the end of the last.
    """

    keys: Words
    slots: Index
    holders: Index
    starts: Index

    @classmethod
    def of(cls, sets: Words) -> Self:
        """Index the distinct keys of sets, (sets, size, 2)."""
        count, size, _ = sets.shape
        flat = sets.reshape(-1, 2)
        firsts, slots = _distinct(flat)
        holders = np.argsort(slots, kind="stable") // size
        starts = np.concatenate([[0], np.cumsum(np.bincount(slots, minlength=len(firsts)))])
        return cls(flat[firsts], slots.reshape(count, size), holders, starts)


@dataclass(frozen=True, slots=True)
class TagTable:
    """Interests as a broker keeps them.

    Attributes:
        groups: sets of keys, one group per attribute.
        rows: number of each distinct interest's set, one array per group.
        interests: number of each interest among the distinct ones; None if all are distinct.
    """

    groups: tuple[_Sets, ...]
    rows: tuple[Index, ...]
    interests: Index | None

    @classmethod
    def of(cls, groups: Sequence[Words]) -> Self:
        """Index the keys of interests, each group of shape (interests, size, 2)."""
        kept, numbers = [], []
        for keys in groups:
            firsts, number = _distinct(keys.reshape(len(keys), -1))
            kept.append(_Sets.of(keys[firsts]))
            numbers.append(number)
        firsts, interests = _distinct(np.stack(numbers, axis=1).astype(np.uint64))
        if len(firsts) == len(interests):
            return cls(tuple(kept), tuple(numbers), None)
        return cls(tuple(kept), tuple(number[firsts] for number in numbers), interests)

    def match(self, hashed: NonceHash, nonces: Words, tags: Words) -> Bools:
        """Return the pairs in which every set of the interest has a key that fits a tag.

        Args:
            hashed: the function F of keys and nonces.
            nonces: nonces of events, shape (events, 2).
            tags: tags of events, shape (events, tags).

        Returns:
            bool, shape (events, interests).
        """
        first = self.groups[0]
        count = len(self.rows[0]) if self.interests is None else len(self.interests)
        out = np.empty((len(nonces), count), dtype=np.bool_)
        step = max(_EVENTS[0], min(_EVENTS[1], _PAIRS // len(first.keys)))
        bits = _SLOT_BITS[bisect_right(_MANY, len(first.keys))]
        for events in slices(len(nonces), step):
            look_up = _LookUp(hashed, nonces[events], tags[events], bits)
            held = all_of(
                look_up.all_sets(first).take(self.rows[0], axis=1),
                (
                    (partial(look_up.some_sets, sets, row), None)
                    for sets, row in zip(self.groups[1:], self.rows[1:], strict=True)
                ),
            )
            out[events] = held if self.interests is None else held.take(self.interests, axis=1)
        return out


class _LookUp:
    """Tags of some events, found by a table of their low bits."""

    def __init__(self, hashed: NonceHash, nonces: Words, tags: Words, bits: int) -> None:
        self.hashed, self.nonces, self.tags = hashed, nonces, tags
        self.mask = np.uint64((1 << bits) - 1)
        self.rows = np.arange(len(tags), dtype=np.uint64)[:, None] << np.uint64(bits)
        self.table = np.zeros((len(tags), 1 << bits), dtype=np.bool_)
        self.table.reshape(-1)[self._slots(tags, self.rows)] = True

    def all_sets(self, sets: _Sets) -> Bools:
        """Return the sets that have a key that fits, bool (events, sets)."""
        out = np.zeros((len(self.tags), len(sets.slots)), dtype=np.bool_)
        event, key = self._fitting(sets.keys)
        counts = sets.starts[key + 1] - sets.starts[key]
        # The holders of all keys that fit, one after another.
        shift = np.repeat(sets.starts[key] - np.cumsum(counts) + counts, counts)
        holders = sets.holders[shift + np.arange(len(shift))]
        out[np.repeat(event, counts), holders] = True
        return out

    def some_sets(self, sets: _Sets, rows: Index, event: Index, interest: Index) -> Bools:
        """Return the pairs in which the set of interest[i], rows[interest[i]], fits event[i]."""
        numbers = rows.take(interest)
        count, size = sets.slots.shape
        asked = np.zeros((len(self.tags), count), dtype=np.bool_)
        asked[event, numbers] = True
        pairs = np.flatnonzero(asked)
        # Keys taken one by one cost twice what they do in rows.
        if 2 * len(pairs) * size >= len(self.tags) * len(sets.keys):
            return self.all_sets(sets)[event, numbers]
        step = max(1, _PAIRS // size)
        flat = asked.reshape(-1)
        for start in range(0, len(pairs), step):
            batch = pairs[start : start + step]
            row, number = np.divmod(batch, count)
            keys = sets.keys.take(sets.slots.take(number, axis=0), axis=0)
            tags = self.hashed.pairs(keys, self.nonces.take(row, axis=0)[:, None])
            flat[batch] = self._among(tags, row).any(axis=1)
        return asked[event, numbers]

    def _fitting(self, keys: Words) -> tuple[Index, Index]:
        """Return all pairs of an event and a key that fits one of its tags."""
        event, key, values = self.hashed.likely(keys, self.nonces, self.table)
        fits = (self.tags.take(event, axis=0) == values[:, None]).any(axis=1)
        return event[fits], key[fits]

    def _slots(self, tags: Words, rows: Words) -> Numbers:
        low = tags & self.mask
        low |= rows
        return low.view(np.int64)

    def _among(self, tags: Words, event: Index) -> Bools:
        """Return the tags (n, k) that event[n] has."""
        out = self.table.reshape(-1).take(self._slots(tags, self.rows.take(event, axis=0)))
        likely = np.flatnonzero(out)
        mine = self.tags.take(event.take(likely // tags.shape[1]), axis=0)
        out.reshape(-1)[likely] = (mine == tags.reshape(-1).take(likely)[:, None]).any(axis=1)
        return out
