"""FilterLookup: which words are in which Bloom filters, word after word and bit after bit."""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bools, Index, Words
from ccbps.ciphers.word_prf import NonceHash
from ccbps.matching.contract.clauses import Alternatives


def modulo(hashes: Words, bits: int) -> Words:
    """Positions of hashes in a filter of so many bits."""
    if bits & (bits - 1) == 0:
        return hashes & np.uint64(bits - 1)
    # NumPy divides by a scalar without a division; its remainder does not.
    return hashes - (hashes // np.uint64(bits)) * np.uint64(bits)


class FilterLookup(Alternatives):
    """Some events with some interests, whose alternatives are words.

    Shapes: nonces (events, 2); bits (events, m); table, of trapdoors, (clauses, slots, t,
    interests, 2); used, which of them there are, (clauses, slots, interests).
    """

    def __init__(
        self, hashed: NonceHash, nonces: Words, bits: Bools, table: Words, used: Bools
    ) -> None:
        super().__init__(len(nonces), used)
        self.hashed, self.nonces, self.table = hashed, nonces, table
        self.flat, self.bits = bits.reshape(-1), bits.shape[1]
        self.rows = np.arange(len(nonces), dtype=np.uint64) * np.uint64(self.bits)

    def all_pairs(self, clause: int, slot: int, interests: Index | None) -> Bools:
        """See `Alternatives.all_pairs`."""
        keys = self.table[clause, slot]
        if interests is not None:
            keys = keys.take(interests, axis=1)
        found = self._is_set(self.hashed.all_pairs(keys[0], self.nonces), self.rows[:, None])
        if len(keys) > 1:
            flat, pairs = found.reshape(-1), np.flatnonzero(found)
            event = pairs // found.shape[1]
            flat[:] = False
            flat[pairs.take(self._left(keys[1:], event, pairs - event * found.shape[1]))] = True
        return found

    def pairs(self, clause: int, slot: int, event: Index, interest: Index) -> Bools:
        """See `Alternatives.pairs`."""
        out = np.zeros(len(event), dtype=np.bool_)
        out[self._left(self.table[clause, slot], event, interest)] = True
        return out

    def _is_set(self, tags: Words, rows: Words) -> Bools:
        positions = modulo(tags, self.bits)
        positions += rows
        return self.flat.take(positions.view(np.int64))

    def _left(self, keys: Words, event: Index, word: Index) -> Index:
        """Which pairs are left when all bits were looked at; keys (t, words, 2)."""
        left = np.arange(len(event))
        for each in keys:
            if not len(left):
                break
            tags = self.hashed.pairs(each.take(word, axis=0), self.nonces.take(event, axis=0))
            good = np.flatnonzero(self._is_set(tags, self.rows.take(event)))
            left, event, word = left.take(good), event.take(good), word.take(good)
        return left
