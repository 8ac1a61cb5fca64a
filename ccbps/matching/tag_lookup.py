"""match_tags: which keys fit which events' tags, for all pairs and group after group.

The time shows the answers: a pair ends at the first group of keys of which none fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.ciphers.word_prf import NonceHash

__all__ = ["match_tags"]

Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

_SLOT_BITS: Final = (9, 13)
"""Bits of a tag that are looked up first, for few and for many interests; the whole tag is compared
where they are found."""
_MANY: Final = 32
_PAIRS: Final = 1 << 14
"""Keys looked up at a time, with all events together."""


def match_tags(hashed: NonceHash, nonces: Words, tags: Words, groups: Sequence[Words]) -> Bools:
    """Whether of every group of an interest's keys one fits a tag of the event.

    Args:
        hashed: F of keys and nonces.
        nonces: of events, shape (events, 2).
        tags: of events, shape (events, tags).
        groups: keys, each of shape (interests, size, 2).

    Returns:
        bool, shape (events, interests).
    """
    interests, size, _ = groups[0].shape
    out = np.zeros((len(nonces), interests), dtype=np.bool_)
    step = max(1, min(256, _PAIRS // (interests * size)))
    for start in range(0, len(nonces), step):
        at = slice(start, start + step)
        found, rows = _Found(tags[at], _SLOT_BITS[interests >= _MANY]), nonces[at]
        width = max(1, _PAIRS // (len(rows) * size))
        for low in range(0, interests, width):
            keys = groups[0][low : low + width]
            hits = found.among(hashed.all_pairs(keys.reshape(-1, 2), rows))
            out[at, low : low + width] = hits.reshape(len(rows), len(keys), -1).any(axis=2)
        good = _rest(hashed, rows, found, groups, np.flatnonzero(out[at]))
        some = np.zeros(len(rows) * interests, dtype=np.bool_)
        some[good] = True
        out[at] = some.reshape(len(rows), interests)
    return out


def _rest(
    hashed: NonceHash,
    nonces: Words,
    found: _Found,
    groups: Sequence[Words],
    pairs: NDArray[np.intp],
) -> NDArray[np.intp]:
    """The pairs, numbers event * interests + interest, for which all other groups hold."""
    for keys in groups[1:]:
        good = []
        step = max(1, _PAIRS // keys.shape[1])
        for start in range(0, len(pairs), step):
            some = pairs[start : start + step]
            event, interest = np.divmod(some, len(keys))
            tags = hashed.pairs(keys.take(interest, axis=0), nonces.take(event, axis=0)[:, None])
            good.append(some[found.among(tags, event).any(axis=1)])
        pairs = np.concatenate(good) if good else pairs
    return pairs


class _Found:
    """Which tags are in which events: a table of their low bits first, then the tags themselves."""

    def __init__(self, tags: Words, bits: int) -> None:
        self.tags = tags
        self.mask = np.uint64((1 << bits) - 1)
        self.rows = np.arange(len(tags), dtype=np.uint64)[:, None] << np.uint64(bits)
        self.table = np.zeros(len(tags) << bits, dtype=np.bool_)
        self.table[self._slots(tags, self.rows)] = True

    def _slots(self, tags: Words, rows: Words) -> NDArray[np.int64]:
        low = tags & self.mask
        low |= rows
        return low.view(np.int64)

    def among(self, tags: Words, event: NDArray[np.intp] | None = None) -> Bools:
        """For tags (n, k): whether they are in event n, or in event[n]."""
        rows = self.rows if event is None else self.rows.take(event, axis=0)
        out = self.table.take(self._slots(tags, rows))
        likely = np.flatnonzero(out)
        row = likely // tags.shape[1]
        mine = self.tags.take(row if event is None else event.take(row), axis=0)
        out.reshape(-1)[likely] = (mine == tags.reshape(-1).take(likely)[:, None]).any(axis=1)
        return out
