"""DictionaryLookup: the masked bits of some events that some interests have keys for."""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Numbers, Words
from ccbps.ciphers.word_prf import NonceHash
from ccbps.matching.contract.clauses import Alternatives

UNUSED: Final = (1 << 32) - 1
"""The place of a word that there is none of."""


class DictionaryLookup(Alternatives):
    """Some events with some interests, whose alternatives are words.

    Shapes: nonces (events, 2); bits (events, bytes), masked, least significant first; places, of
    words in them, (clauses, slots, interests); keys (clauses, slots, interests, 2).
    """

    def __init__(
        self, hashed: NonceHash, nonces: Words, bits: Bytes, places: Numbers, keys: Words
    ) -> None:
        super().__init__(len(nonces), places != UNUSED)
        self.hashed, self.nonces, self.places, self.keys = hashed, nonces, places, keys
        self.bits, self.flat = bits, bits.reshape(-1)

    def all_pairs(self, clause: int, slot: int, interests: Index | None) -> Bools:
        """See `Alternatives.all_pairs`."""
        places, keys = self.places[clause, slot], self.keys[clause, slot]
        if interests is not None:
            places, keys = places.take(interests), keys.take(interests, axis=0)
        return _unmasked(
            self.hashed.all_pairs(keys, self.nonces), self.bits.take(places >> 3, axis=1), places
        )

    def pairs(self, clause: int, slot: int, event: Index, interest: Index) -> Bools:
        """See `Alternatives.pairs`."""
        places = self.places[clause, slot].take(interest)
        keys = self.keys[clause, slot].take(interest, axis=0)
        return _unmasked(
            self.hashed.pairs(keys, self.nonces.take(event, axis=0)),
            self.flat.take(event * self.bits.shape[1] + (places >> 3)),
            places,
        )


def _unmasked(tags: Words, found: Bytes, places: Numbers) -> Bools:
    """Bits at places, of the bytes that hold them; the mask is the last bit of a tag."""
    bits = tags.astype(np.uint8)
    bits ^= found >> (places & 7).astype(np.uint8)
    bits &= np.uint8(1)
    return bits.view(np.bool_)
