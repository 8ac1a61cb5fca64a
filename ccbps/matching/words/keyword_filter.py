"""KeywordFilterMatch: an event's words in a Bloom filter that only trapdoors can read.

Keys k_1 .. k_t are shared by all clients. A subscription to word w is y_i = F(k_i, w). An event is
a fresh nonce N and m bits; each of its words sets the bits F(F(k_i, w), N) mod m, and random bits
pad it to u words. The broker tests the bits F(y_i, N) mod m. Events with the same words look
unrelated.

An answer may be a false positive, never a false negative: a word that is absent is found with
probability (1 - e^(-tu/m))^t, a conjunction of w absent words with that to the power w. Ranges are
also widened: see `ccbps.forms.words`.

Hazard: trapdoors are deterministic and a broker sees each word's result. With partitions it is
broken: ranges alone show the order of all cells. Any client can try words.
Source: [RR06] by way of [Survey] section 4.1, after [Goh03].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, exp, log, log2, prod
from typing import Any, Final, Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.checks import whole
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, WordKeys, to_blocks
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError
from ccbps.forms.words import EQUAL, KINDS, Clause, Vocabulary, Word, spread_points
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.clauses import gaps
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.kinds import Side
from ccbps.matching.words.filter_lookup import FilterLookup, modulo
from ccbps.matching.words.word_matcher import NONCE_BYTES, WordMatcher
from ccbps.predicates import Events, Schema
from ccbps.predicates.box import Box
from ccbps.wire import Cause

MAX_BITS: Final = 1 << 20
MAX_LIMBS: Final = 255
_PAIRS: Final = 1 << 14
"""Pairs of an event and an interest looked at together."""
_EVENT_WORDS: Final = 1 << 16
"""Words of events enciphered together."""

Prepared = tuple[Clause, ...] | None
"""None if nothing matches."""


def _sorted(items: Bytes) -> Bytes:
    """Items (n, k, bytes) of each row in falling order of their bytes."""
    names = np.ascontiguousarray(~items).view(f"V{items.shape[2]}")[:, :, 0]
    return np.take_along_axis(items, np.argsort(names, axis=1)[:, :, None], axis=1)


class KeywordFilterMatch(WordMatcher):
    """Conjunctions of equalities and widened ranges, through encrypted Bloom filters.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import KeywordFilterMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = KeywordFilterMatch(
        ...     schema, points={"price": [100, 120]}, false_positives=1e-9
        ... )
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

    name = "keyword filter"
    named = "trapdoors"
    never = "each has one word that nobody else has"
    answered = ", with false positives"
    repeated = "their common words"

    def __init__(
        self,
        schema: Schema,
        *,
        points: Mapping[str, Sequence[Any]] | None = None,
        partitions: Mapping[str, tuple[int, int]] | None = None,
        false_positives: float = 0.001,
        hashes: int | None = None,
        bits: int | None = None,
    ) -> None:
        """
        Args:
            schema: any attributes; ranges need points or partitions.
            points: for an attribute, ascending values that ranges are widened to.
            partitions: for an attribute, (cells, shifts): ranges are widened to whole cells.
            false_positives: desired chance that an absent word is found; determines those of the
                next two that are not given.
            hashes: t, how many bits each word sets.
            bits: m, bits of a filter, a multiple of 64.

        Raises:
            ParameterError: a parameter is out of range.
        """
        number = isinstance(false_positives, int | float | np.floating)
        if not number or not 2**-64 <= false_positives <= 0.5:
            raise ParameterError(
                f"false_positives must be a number from 2**-64 to 0.5, got {false_positives!r}"
            )
        false_positives = float(false_positives)
        for name in schema:
            if schema[name].limbs > MAX_LIMBS:
                raise ParameterError(
                    f"attribute {name!r} must have at most {64 * MAX_LIMBS} bits, "
                    f"got {schema[name].bits}"
                )
        self.vocabulary = Vocabulary(schema, points, partitions)
        self.words = self.vocabulary.columns
        chosen = ceil(-log2(false_positives)) if hashes is None else hashes
        self.hashes = whole("hashes", chosen, 1, 64)
        least = self.hashes * self.words / log(2)
        width = 64 * ceil(least / 64) if bits is None else bits
        self.bits = whole("bits", width, 64, MAX_BITS, hint="a multiple of 64")
        if self.bits % 64:
            raise ParameterError(f"bits must be a multiple of 64 up to {MAX_BITS}, got {self.bits}")
        self._shape = (self.vocabulary.clauses, self.vocabulary.slots, self.hashes)
        interest = KEY_BYTES * prod(self._shape)
        self._set_up(schema, Sizes(NONCE_BYTES + self.bits // 8, interest))

    def parameters(self) -> dict[str, Any]:
        """See `Scheme.parameters`; what `false_positives` chose."""
        return {**self.vocabulary.parameters(), "hashes": self.hashes, "bits": self.bits}

    @classmethod
    def suited(cls, schema: Schema, box: Box) -> Self:
        """See `WordMatcher.suited`."""
        return cls(schema, points=spread_points(box))

    @property
    def false_positive_rate(self) -> float:
        """Chance that an absent word is found: (1 - e^(-tu/m))^t."""
        return float((1 - exp(-self.hashes * self.words / self.bits)) ** self.hashes)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        used, most = self.hashes * self.words, prod(self._shape)
        # A wide value takes a block for each of its limbs.
        longer = self.hashes * sum(self.schema[name].limbs - 1 for name in self.schema)
        full = 1 - exp(-used / self.bits)
        absent = round((1 - full**self.hashes) / (1 - full), 1)
        note = f"for a word that is absent; at most {most:,}"
        return (
            Cost("publisher", "event", Operation.AES_BLOCK, 2 * used + longer),
            Cost("subscriber", "interest", Operation.AES_BLOCK, most + longer, note="at most"),
            Cost("broker", "pair", Operation.AES_BLOCK, absent, note=note),
        )

    def _trapdoors(self, key: Mapping[str, Any], families: Words, values: Words) -> Words:
        """y_1 .. y_t of words: families (n,), values (limbs, n); shape (n, t, 2)."""
        words = WordKeys(bytes.fromhex(key["words"]))
        limbs = len(values)
        states = np.zeros((len(families), self.hashes, 2), dtype=np.uint64)
        blocks = np.empty_like(states)
        for place, limb in enumerate(values):
            # Kind, attribute, number of limbs and i are in each block: no word begins another.
            # A byte each for limbs and place: the constructor refuses more than MAX_LIMBS.
            head = families << np.uint64(24) | np.uint64(limbs << 16 | place << 8)
            blocks[:, :, 0] = limb[:, None]
            blocks[:, :, 1] = head[:, None] | np.arange(self.hashes, dtype=np.uint64)
            states = words.extend(states, blocks)
        return states

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        step = max(1, _EVENT_WORDS // (self.words * self.hashes))
        for start in range(0, events.count, step):
            rows = np.arange(start, min(start + step, events.count))
            self._encode_some(key, events.take(rows), draw.fresh, out[start : start + step])

    def _encode_some(
        self, key: Mapping[str, Any], events: Events, randomness: Randomness, out: Bytes
    ) -> None:
        count = events.count
        keys = np.empty((count, self.words, self.hashes, 2), dtype=np.uint64)
        for place, column in enumerate(self.vocabulary.of_events(events)):
            families = np.full(count, column.family, dtype=np.uint64)
            keys[:, place] = self._trapdoors(key, families, column.values)
            if column.holds is not None:
                absent = ~column.holds
                padding = randomness(16 * self.hashes * int(absent.sum()))
                keys[absent, place] = to_blocks(padding).reshape(-1, self.hashes, 2)
        nonces = to_blocks(randomness(NONCE_BYTES * count))
        tags = NonceHash(bytes.fromhex(key["permutation"])).pairs(
            keys.reshape(count, -1, 2), nonces[:, None]
        )
        bits = np.zeros((count, self.bits), dtype=np.bool_)
        bits[np.arange(count)[:, None], modulo(tags, self.bits)] = True
        out[:, :NONCE_BYTES] = nonces.view(np.uint8).reshape(count, -1)
        out[:, NONCE_BYTES:] = np.packbits(bits, axis=1, bitorder="little")

    def prepare(self, interest: Any) -> Prepared:
        """Clauses of words."""
        return self.vocabulary.of_predicate(bound_predicate(self.schema, interest))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Prepared], draw: Draw, out: Bytes
    ) -> None:
        """See `Scheme.encode_interests`."""
        out[:] = self._encode_distinct(key, interests.values)[interests.index]
        never = np.array([found is None for found in interests.values])[interests.index]
        # A word that no event has, and no other message.
        word = KEY_BYTES * self.hashes
        drawn = draw.fresh(word * int(never.sum()))
        out[never, :word] = np.frombuffer(drawn, dtype=np.uint8).reshape(-1, word)

    def _encode_distinct(self, key: Mapping[str, Any], interests: Sequence[Prepared]) -> Bytes:
        """A body for each, empty where nothing matches."""
        clauses, slots, _ = self._shape
        limbs = max(self.schema[name].limbs for name in self.schema)
        words: list[Word] = []
        places: list[tuple[int, int, int]] = []
        for row, found in enumerate(interests):
            for clause, alternatives in enumerate(found or ()):
                places += [(row, clause, slot) for slot in range(len(alternatives))]
                words += alternatives
        trapdoors = np.zeros((len(interests), *self._shape, 2), dtype=np.uint64)
        for width in range(1, limbs + 1):
            chosen = [at for at, word in enumerate(words) if self._limbs(word) == width]
            if chosen:
                families = np.array([words[at][0] for at in chosen], dtype=np.uint64)
                shifted = [[words[at][1] >> 64 * i for at in chosen] for i in range(width)]
                values = np.array(
                    [[v & (1 << 64) - 1 for v in limb] for limb in shifted[::-1]], dtype=np.uint64
                )
                at = tuple(np.array([places[i] for i in chosen]).T)
                trapdoors[at] = self._trapdoors(key, families, values)
        # In the order of their bytes, not of attributes and cells; unused ones last.
        ordered = _sorted(trapdoors.view(np.uint8).reshape(len(interests) * clauses, slots, -1))
        return _sorted(ordered.reshape(len(interests), clauses, -1)).reshape(len(interests), -1)

    def _limbs(self, word: Word) -> int:
        attribute, kind = divmod(word[0], KINDS)
        return self.schema[self.schema.names[attribute]].limbs if kind == EQUAL else 1

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """See `Scheme.check`."""
        if side == "event":
            # An honest filter has t bits for each of u words, some twice. A fuller one finds more
            # words than an event can have; a full one matches everything.
            filters = np.ascontiguousarray(bodies[:, NONCE_BYTES:]).view("<u8")
            count = np.bitwise_count(filters).sum(axis=1, dtype=np.int64)
            bad = np.asarray(count > self.hashes * self.words)
        else:
            keys = np.asarray(self._trapdoors_of(bodies).any(axis=4))
            used = np.asarray(keys.any(axis=3))
            bad = gaps(used) | np.asarray(used != keys.all(axis=3)).any(axis=(1, 2))
        return np.where(bad, Cause.VALUE, Cause.NONE).astype(np.uint8)

    def _trapdoors_of(self, bodies: Bytes) -> Words:
        words = np.ascontiguousarray(bodies).view("<u8")
        return words.reshape(len(bodies), *self._shape, 2)

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> tuple[Words, Bools]:
        """Trapdoors (clauses, slots, hashes, interests, 2), and which there are."""
        trapdoors = np.ascontiguousarray(self._trapdoors_of(bodies).transpose(1, 2, 3, 0, 4))
        return trapdoors, np.asarray(trapdoors.any(axis=(2, 4)), dtype=np.bool_)

    def match(self, key: Mapping[str, Any], events: Bytes, table: tuple[Words, Bools]) -> Bools:
        """See `TableScheme.match`."""
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        trapdoors, used = table
        interests = used.shape[2]
        out = np.empty((len(events), interests), dtype=np.bool_)
        step = max(1, _PAIRS // interests)
        for start in range(0, len(events), step):
            rows = events[start : start + step]
            nonces = to_blocks(rows[:, :NONCE_BYTES].tobytes())
            bits = np.unpackbits(rows[:, NONCE_BYTES:], axis=1, bitorder="little").view(np.bool_)
            for low in range(0, interests, _PAIRS):
                at = slice(low, low + _PAIRS)
                some = FilterLookup(hashed, nonces, bits, trapdoors[:, :, :, at], used[:, :, at])
                out[start : start + step, at] = some.answers()
        return out

    def clauses_of(self, table: tuple[Words, Bools]) -> tuple[Words, Bools]:
        """See `WordMatcher.clauses_of`."""
        trapdoors, used = table
        names = trapdoors.transpose(3, 0, 1, 2, 4)
        return names.reshape(*names.shape[:2], -1), used[:, 0].T
