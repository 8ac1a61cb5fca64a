"""FilterLookup: which words are in which Bloom filters, word after word and bit after bit.

Only what is still undecided is looked at further: a pair of an event and an interest ends at the
first bit that is not set. The time shows the answers, as the broker knows them anyway.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Words
from ccbps.ciphers.word_prf import NonceHash

__all__ = ["FilterLookup", "gaps", "modulo"]


def modulo(hashes: Words, bits: int) -> Words:
    """Positions of hashes in a filter of so many bits."""
    if bits & (bits - 1) == 0:
        return hashes & np.uint64(bits - 1)
    # NumPy divides by a scalar without a division; its remainder does not.
    return hashes - (hashes // np.uint64(bits)) * np.uint64(bits)


def gaps(used: Bools) -> Bools:
    """Which interests have something after something unused; used (interests, clauses, slots).

    Matching stops at the first clause that no interest of a table uses. Past a gap the answer to
    one interest would depend on the others.
    """
    first = used[:, :, 0]
    inside = (used[:, :, 1:] & ~used[:, :, :-1]).any(axis=(1, 2))
    return np.asarray(inside | (first[:, 1:] & ~first[:, :-1]).any(axis=1), dtype=np.bool_)


class FilterLookup:
    """Some events with some interests.

    Shapes: nonces (events, 2); bits (events, m); table, of trapdoors, (clauses, slots, t,
    interests, 2); used, which of them there are, (clauses, slots, interests).
    """

    def __init__(
        self, hashed: NonceHash, nonces: Words, bits: Bools, table: Words, used: Bools
    ) -> None:
        self.hashed, self.nonces, self.table, self.used = hashed, nonces, table, used
        self.flat, self.bits = bits.reshape(-1), bits.shape[1]
        self.rows = np.arange(len(nonces), dtype=np.uint64) * np.uint64(self.bits)

    def answers(self) -> Bools:
        """Whether all clauses hold, shape (events, interests)."""
        # Most pairs are decided by their first word: all pairs, without indices.
        out = np.empty((len(self.nonces), self.table.shape[3]), dtype=np.bool_)
        out[:] = ~self.used[0].any(axis=0)
        for slot, used in enumerate(self.used[0]):
            if used.all():
                out |= self._all_pairs(self.table[0, slot])
            elif used.any():
                columns = np.flatnonzero(used)
                out[:, columns] |= self._all_pairs(self.table[0, slot].take(columns, axis=1))
        if len(self.table) == 1 or not self.used[1].any():
            return out  # clauses in use come first: `gaps` refuses others
        flat = out.reshape(-1)
        pairs = np.flatnonzero(out & self.used[1].any(axis=0))
        for clause in range(1, len(self.table)):
            interest = pairs % out.shape[1]
            holds = ~self.used[clause].any(axis=0).take(interest)
            for slot, used in enumerate(self.used[clause]):
                tested = np.flatnonzero(used.take(interest) & ~holds)
                if len(tested):
                    left = self._pairs(self.table[clause, slot], pairs.take(tested), out.shape[1])
                    holds[tested.take(left)] = True
            flat[pairs[~holds]] = False
            pairs = pairs[holds]
        return out

    def _is_set(self, tags: Words, rows: Words) -> Bools:
        positions = modulo(tags, self.bits)
        positions += rows
        return self.flat.take(positions.view(np.int64))

    def _all_pairs(self, keys: Words) -> Bools:
        """Whether words, keys (t, words, 2), are in all events: (events, words)."""
        found = self._is_set(self.hashed.all_pairs(keys[0], self.nonces), self.rows[:, None])
        if len(keys) > 1:
            flat, pairs = found.reshape(-1), np.flatnonzero(found)
            flat[:] = False
            flat[pairs.take(self._pairs(keys[1:], pairs, found.shape[1]))] = True
        return found

    def _pairs(self, keys: Words, pairs: NDArray[np.intp], words: int) -> NDArray[np.intp]:
        """Which of some pairs, numbers event * words + word, have the word in the event."""
        event = pairs // words
        word = pairs - event * words
        left = np.arange(len(pairs))
        for each in keys:
            tags = self.hashed.pairs(each.take(word, axis=0), self.nonces.take(event, axis=0))
            good = np.flatnonzero(self._is_set(tags, self.rows.take(event)))
            left, event, word = left.take(good), event.take(good), word.take(good)
        return left
