"""KeywordDictionaryMatch: one masked bit for every word of a dictionary; exact for words.

P is a secret permutation of the D words. A subscription to word j is the position p = P(j) and its
key r_p = F(k, p). An event is a fresh nonce N and D bits: the bit at p says whether the event has
the word P^-1(p), XORed with a bit of G(r_p, N). So the broker reads the bits that it has keys for,
and no others.

Words are those of `ccbps.forms.words`, and "a = code" for every code of an attribute or for
the values given as its dictionary. Equalities are exact; ranges are widened as that module says.

Hazard: positions are deterministic and a broker sees each word's result. With partitions it is
broken: ranges alone show the order of all cells. Any client can read everything.
Source: [RR06] as in [Survey] section 4.1, after [CM05].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Numbers, Words, slices
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, WordKeys
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.forms.words import (
    EQUAL,
    KINDS,
    Column,
    Vocabulary,
    by_attribute,
    codes_of,
    codes_to_json,
    spread_points,
)
from ccbps.matching.contract.clauses import Alternatives, gaps
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import causes, words_of
from ccbps.matching.words.words import NONCE_BYTES, Table, WordMatcher
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box import Box
from ccbps.wire import Cause

SLOT_BYTES: Final = 4 + KEY_BYTES
UNUSED: Final = (1 << 32) - 1
"""Place of a word in a slot that holds none."""
MAX_WORDS: Final = 1 << 20
_BITS: Final = 1 << 16
"""Masked bits made together."""
_PLACE: Final = 1
_KEY: Final = 2

Numbered = tuple[tuple[int, ...], ...]
"""Clauses of word numbers."""


class _LookUp(Alternatives):
    """Some events with some interests, whose alternatives are words.

    Args:
        hashed: the function G.
        nonces: nonces of the events, shape (events, 2).
        bits: masked bits, shape (events, bytes), least significant first.
        places: places of words in these bits, shape (clauses, slots, interests).
        keys: keys of these places, shape (clauses, slots, interests, 2).
    """

    def __init__(
        self, hashed: NonceHash, nonces: Words, bits: Bytes, places: Numbers, keys: Words
    ) -> None:
        super().__init__(len(nonces), places != UNUSED)
        self.hashed, self.nonces, self.places, self.keys = hashed, nonces, places, keys
        self.bits, self.flat = bits, bits.reshape(-1)

    def all_pairs(self, clause: int, slot: int, interests: Index | None) -> Bools:
        places, keys = self.places[clause, slot], self.keys[clause, slot]
        if interests is not None:
            places, keys = places.take(interests), keys.take(interests, axis=0)
        return _unmasked(
            self.hashed.all_pairs(keys, self.nonces), self.bits.take(places >> 3, axis=1), places
        )

    def pairs(self, clause: int, slot: int, event: Index, interest: Index) -> Bools:
        places = self.places[clause, slot].take(interest)
        keys = self.keys[clause, slot].take(interest, axis=0)
        return _unmasked(
            self.hashed.pairs(keys, self.nonces.take(event, axis=0)),
            self.flat.take(event * self.bits.shape[1] + (places >> 3)),
            places,
        )


def _unmasked(tags: Words, masked: Bytes, places: Numbers) -> Bools:
    """Return the bits at some places, from the bytes that hold them.

    The mask is the last bit of a tag.
    """
    bits = tags.astype(np.uint8)
    bits ^= masked >> (places & 7).astype(np.uint8)
    bits &= np.uint8(1)
    return bits.view(np.bool_)


class KeywordDictionaryMatch(WordMatcher):
    """Conjunctions of equalities (exact) and widened ranges, one masked bit for each word.

    Args:
        schema: any attributes; ranges need points or partitions.
        dictionaries: for an attribute, the values that subscriptions may ask for by equality; all
            values where nothing is given. May be empty.
        points: for an attribute, ascending values that ranges are widened to.
        partitions: for an attribute, (cells, shifts): ranges are widened to whole cells.

    Raises:
        ParameterError: a parameter is out of range, or the dictionary has more than 2^20 words.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import KeywordDictionaryMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = KeywordDictionaryMatch(schema, points={"price": [100, 120]})
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["price < 120", "issue = 'AAPL' AND price > 100"])
        >>> broker.match_all(events, interests)
        array([[ True, False],
               [False,  True]])
    """

    name = "keyword dictionary"
    named = "positions"
    never = "all of them have the same single word"
    repeated = "the words they differ in"
    listed = ("dictionaries", "points")
    look_up = _LookUp

    def __init__(
        self,
        schema: Schema,
        *,
        dictionaries: Mapping[str, Sequence[Any]] | None = None,
        points: Mapping[str, Sequence[Any]] | None = None,
        partitions: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.vocabulary = Vocabulary(schema, points, partitions)
        chosen = by_attribute(schema, "dictionaries", dictionaries, "{'price': [50, 100]}")
        self._given = {
            name: sorted(set(codes_of(f"dictionary of {name!r}", schema[name], values)))
            for name, values in chosen.items()
        }
        self._codes = {
            number: [0] * schema[name].nullable + self._given[name]
            for number, name in enumerate(schema)
            if name in self._given
        }
        self._starts: dict[int, int] = {}
        size = 1  # word 0 is in no event: for predicates that no event matches
        for place, name in enumerate(schema):
            for kind, count in enumerate(self._sizes(place, name)):
                self._starts[KINDS * place + kind] = size
                size += count
        if size > MAX_WORDS:
            raise ParameterError(
                f"the dictionary must have at most {MAX_WORDS} words, got {size}: give "
                "`dictionaries` for attributes with many values"
            )
        self.size = size
        self._shape = (self.vocabulary.clauses, self.vocabulary.slots)
        slots = self._shape[0] * self._shape[1]
        self._set_up(schema, Sizes(NONCE_BYTES + -(-size // 8), SLOT_BYTES * slots))

    def parameters(self) -> dict[str, Any]:
        return {**self.vocabulary.parameters(), "dictionaries": codes_to_json(self._given)}

    @classmethod
    def options_for(cls, schema: Schema, box: Box) -> Iterable[Mapping[str, Any]]:
        # Points all over the domain tell nothing of the predicate's constants.
        ranges = {name: () for name, (low, high) in box.ranges.items() if low != high}
        return ({"points": spread_points(box), "dictionaries": ranges},)

    def _sizes(self, number: int, name: str) -> tuple[int, int, int, int]:
        """Return the number of words of each kind of an attribute."""
        kind = self.vocabulary.schema[name]
        equal = len(self._codes[number]) if number in self._codes else kind.size
        cells, shifts, _ = self.vocabulary.cells.get(name, (-1, 0, 0))
        points = len(self.vocabulary.points.get(name, ()))
        return equal, int(kind.nullable), 2 * points, shifts * (cells + 1)

    @property
    def costs(self) -> tuple[Cost, ...]:
        words = self._shape[0] * self._shape[1]
        return (
            Cost("publisher", "event", Operation.AES_BLOCK, self.size),
            Cost("subscriber", "interest", Operation.AES_BLOCK, words, note="at most"),
            Cost("broker", "pair", Operation.AES_BLOCK, words, note="at most"),
        )

    def _secrets(self, key: Mapping[str, Any]) -> tuple[Numbers, Words]:
        """Return the place of each word, and the key of each place, shape (D, 2)."""
        words = WordKeys(bytes.fromhex(key["words"]))
        blocks = np.zeros((2, self.size, 2), dtype=np.uint64)
        blocks[:, :, 0] = np.arange(self.size)
        blocks[0, :, 1], blocks[1, :, 1] = _PLACE, _KEY
        drawn, keys = words.extend(np.zeros(2, dtype=np.uint64), blocks)
        # The order of pseudorandom 128-bit numbers is a pseudorandom permutation.
        places = np.empty(self.size, dtype=np.int64)
        places[np.lexsort((drawn[:, 0], drawn[:, 1]))] = np.arange(self.size)
        return places, keys

    def _numbers(self, column: Column) -> tuple[Numbers, Bools]:
        """Return the word numbers of a column, and the events that have such a word."""
        attribute, kind = divmod(column.family, KINDS)
        count = column.values.shape[1]
        holds = np.ones(count, dtype=np.bool_) if column.holds is None else column.holds.copy()
        if kind == EQUAL and attribute in self._codes:
            codes = self._codes[attribute]
            if not codes:
                return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
            # Byte strings of one length compare as numbers do.
            width = 8 * len(column.values)
            given = np.ascontiguousarray(column.values.T.astype(">u8")).view(f"S{width}")[:, 0]
            listed = np.array([code.to_bytes(width, "big") for code in codes], dtype=f"S{width}")
            number = np.minimum(np.searchsorted(listed, given), len(codes) - 1)
            holds &= listed[number] == given
        else:
            number = np.where(holds, column.values[-1], 0).astype(np.int64)
        return self._starts[column.family] + number, holds

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        places, keys = self._secrets(key)
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        columns = [self._numbers(column) for column in self.vocabulary.of_events(events)]
        numbers, holds = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
        numbers = places[numbers]
        nonces = self._nonces(draw.fresh, out)
        step = max(1, _BITS // self.size)
        for rows in slices(events.count, step):
            bits = (hashed.all_pairs(keys, nonces[rows]) & np.uint64(1)).astype(np.bool_)
            row, column = np.nonzero(holds[rows])
            bits[row, numbers[rows][row, column]] ^= True
            out[rows, NONCE_BYTES:] = np.packbits(bits, axis=1, bitorder="little")

    def prepare(self, interest: Any) -> Numbered:
        predicate = bound_predicate(self.schema, interest)
        clauses = self.vocabulary.of_predicate(predicate)
        if clauses is None:
            return ((0,),)
        return tuple(
            tuple(self._number(family, value, predicate.text) for family, value in clause)
            for clause in clauses
        )

    def _number(self, family: int, value: int, text: str) -> int:
        attribute, kind = divmod(family, KINDS)
        codes = self._codes.get(attribute)
        if kind == EQUAL and codes is not None:
            if value not in codes:
                raise UnsupportedPredicateError(
                    f"the dictionary of {self.schema.names[attribute]!r} does not have the value "
                    "asked for",
                    text=text,
                )
            value = codes.index(value)
        return self._starts[family] + value

    def _distinct(self, key: Mapping[str, Any], interests: Sequence[Numbered]) -> Bytes:
        places, keys = self._secrets(key)
        bodies = np.zeros((len(interests), *self._shape, SLOT_BYTES), dtype=np.uint8)
        bodies[..., :4] = 255
        for body, clauses in zip(bodies, interests, strict=True):
            # In the order of places, not of attributes.
            chosen = sorted(sorted(places[list(clause)].tolist()) for clause in clauses)
            for row, clause in enumerate(chosen):
                slots = body[row, : len(clause)]
                slots[:, :4] = np.array(clause, dtype="<u4").view(np.uint8).reshape(-1, 4)
                slots[:, 4:] = keys[clause].view(np.uint8)
        return bodies.reshape(len(bodies), -1)

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        if side == "event":
            wrong = bodies[:, -1] >> np.uint8((self.size - 1) % 8) > 1
            return np.where(wrong, Cause.PADDING, Cause.NONE).astype(np.uint8)
        places, keys = self._slots_of(bodies)
        bad = (places >= self.size) & (places != UNUSED)
        bad |= (places == UNUSED) & keys.any(axis=3)
        return causes(bad.any(axis=(1, 2)) | gaps(places != UNUSED))

    def _slots_of(self, bodies: Bytes) -> tuple[Numbers, Words]:
        parts = bodies.reshape(len(bodies), *self._shape, SLOT_BYTES)
        places = np.ascontiguousarray(parts[..., :4]).view("<u4")[..., 0].astype(np.int64)
        return places, words_of(parts[..., 4:])

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Table:
        places, keys = self._slots_of(bodies)
        return (
            np.ascontiguousarray(places.transpose(1, 2, 0)),
            np.ascontiguousarray(keys.transpose(1, 2, 0, 3)),
        )

    def clauses_of(self, table: Table) -> tuple[Numbers, Bools]:
        places = table[0].transpose(2, 0, 1)
        return places, np.asarray(places[:, :, 0] != UNUSED)
