"""Cells: the ranges that a value is in, for values that can be ordered, by one bisection.

The ends of a group's ranges cut the ordered values into cells; within a cell all values are in the
same ranges. Each cell has a bitmap of the group's interests. An event is looked up once for each
attribute, and the bitmaps are joined by AND: for a group of 512 interests that is a bisection and
64 bytes of memory, in place of 512 pairs of comparisons.

For brokers whose ciphertexts can be ordered: `AdditiveMaskMatch` (masked values), `PrefixMatch`
(encrypted prefixes). Values are keys of any dtype that NumPy sorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes

Keys = NDArray[Any]

GROUP: Final = 512
"""Interests that share bitmaps, of 64 bytes each; a range adds two cells, so 128 bytes, at most."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The ranges of one attribute of a group of interests.

    Attributes:
        bounds: keys at which a range starts, or is over, ascending, each once.
        bitmaps: rows for keys below all bounds, and for keys from each bound on; bit i of a row
            (least significant first) is set if they are in a range of interest i.
        limits: False if every key is in all interests.
    """

    bounds: Keys
    bitmaps: Bytes
    limits: bool

    @classmethod
    def of(cls, firsts: Keys, lasts: Keys, rows: NDArray[np.intp], count: int) -> Self:
        """Build the cells of the ranges firsts[j] <= key < lasts[j] of interest rows[j].

        Args:
            firsts: keys at which ranges start; the ranges of one interest are disjoint.
            lasts: keys at which they are over, lasts[j] > firsts[j].
            rows: numbers of interests, 0 to count - 1.
            count: number of interests in the group.
        """
        words = -(-count // 64)
        bits = np.uint64(1) << (rows % 64).astype(np.uint64)
        bounds, cells = np.unique(np.concatenate([firsts, lasts]), return_inverse=True)
        changes = np.zeros((len(bounds) + 1, words), dtype=np.uint64)
        for ends in np.split(cells.reshape(-1), 2):
            np.bitwise_xor.at(changes, (ends + 1, rows // 64), bits)
        inside = np.bitwise_xor.accumulate(changes, axis=0).astype("<u8", copy=False)
        return cls(bounds, inside.view(np.uint8), limits=True)

    @classmethod
    def everything(cls, like: Keys, count: int) -> Self:
        """Build the cells of interests that every key is in, for keys of the dtype of `like`."""
        bitmaps = np.full((1, 8 * -(-count // 64)), 0xFF, dtype=np.uint8)
        return cls(like[:0], bitmaps, limits=False)

    def look_up(self, keys: Keys) -> Bytes:
        """Return the bitmaps of keys, shape (keys, bytes)."""
        return self.bitmaps[np.searchsorted(self.bounds, keys, side="right")]


def groups_of(bodies: Bytes) -> Iterator[Bytes]:
    """Yield interests in groups of at most `GROUP`."""
    for low in range(0, len(bodies), GROUP):
        yield bodies[low : low + GROUP]


@dataclass(frozen=True, slots=True)
class CellGroup:
    """A group of interests.

    Attributes:
        cells: cells of each attribute.
        count: number of interests.
    """

    cells: tuple[Cells, ...]
    count: int

    def holding(self, keys: Sequence[Keys]) -> Bools:
        """Return the interests that have the keys of all attributes, shape (events, count)."""
        bitmaps: Bytes | None = None
        for column, points in zip(self.cells, keys, strict=True):
            if column.limits:
                looked_up = column.look_up(points)
                bitmaps = (
                    looked_up if bitmaps is None else np.bitwise_and(bitmaps, looked_up, bitmaps)
                )
        if bitmaps is None:
            return np.ones((len(keys[0]), self.count), dtype=np.bool_)
        return unpacked(bitmaps, self.count)


def match_groups(table: Sequence[CellGroup], keys: Sequence[Keys]) -> Bools:
    """Return the answers of all groups, shape (events, interests).

    Args:
        table: groups of interests.
        keys: keys of each attribute, shape (events,).
    """
    return np.concatenate([group.holding(keys) for group in table], axis=1)


def unpacked(bitmaps: Bytes, count: int) -> Bools:
    """Return bitmaps as booleans, shape (rows, count)."""
    return np.unpackbits(bitmaps, axis=1, count=count, bitorder="little").view(np.bool_)
