"""Matchers of words: KeywordFilterMatch, and the base that KeywordDictionaryMatch shares with it.

A vocabulary (`ccbps.forms.words`) writes events and conjunctions as words. Clients have a secret
key for words and the key of a permutation, for nonces; a broker has only the permutation's. Events
start with a nonce N of 16 bytes, drawn for each.

*Filter*: an event's words in a Bloom filter that only trapdoors can read. Keys k_1 .. k_t are
shared by all clients. A subscription to word w is y_i = F(k_i, w). An event is N and m bits; each
of its words sets the bits F(F(k_i, w), N) mod m, and random bits pad it to u words. The broker
tests the bits F(y_i, N) mod m. Events with the same words look unrelated. An answer may be a false
positive, never a false negative: an absent word is found with probability p = (1 - e^(-tu/m))^t, a
conjunction of w absent words with probability p^w.
Source: [RR06] as in [Survey] section 4.1, after [Goh03].

Equalities are exact; ranges are widened, see `ccbps.forms.words`.

Hazard: positions and trapdoors are deterministic, and a broker sees each word's result. A range by
partitions is the list of the cells that it touches. Ranges that overlap share cells, and so a few
hundred of them show all cells in order: with partitions both are broken, see
`WordMatcher.leakage`. Any client can read everything in a dictionary, and try words in a filter.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, exp, log, log2, prod
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Randomness, Words, slices
from ccbps.checks import number, whole
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, WordKeys, to_blocks
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError
from ccbps.forms.words import (
    EQUAL,
    KINDS,
    Clause,
    Vocabulary,
    Word,
    codes_from_json,
    spread_points,
)
from ccbps.keys.role_key import hex_bytes
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.clauses import Alternatives, gaps
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import BOXES, ReusableMatcher, bytes_of, causes, words_of
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box import Box
from ccbps.predicates.codes import pack

NONCE_BYTES: Final = 16
MAX_BITS: Final = 1 << 20
MAX_LIMBS: Final = 255
_PAIRS: Final = 1 << 14
"""Pairs of an event and an interest looked at together."""
_EVENT_WORDS: Final = 1 << 16
"""Words of events enciphered together."""

Table: TypeAlias = tuple[NDArray[Any], Words]
"""Interests: slots of alternatives, (clauses, slots, interests); keys, (..., interests, 2)."""
Clauses = tuple[Clause, ...] | None
"""Clauses of words; None if nothing matches."""


class WordMatcher(ReusableMatcher):
    """A matcher of conjunctions that a vocabulary writes as words.

    Attributes:
        vocabulary: the words of the schema.
        named: noun for a word in a subscription.
        answered: qualification of the broker's results.
        never: clause on subscriptions that never hold.
        repeated: noun phrase for the leakage of a nonce that is used twice.
        listed: names of the parameters that list values by attribute.
        look_up: class of `Alternatives`, made of hash, nonces, bits, slots and keys.
    """

    operators = BOXES
    covering = True
    shown, parts = ("permutation",), ("words", "permutation")
    vocabulary: Vocabulary
    named: ClassVar[str]
    answered: ClassVar[str] = ""
    never: ClassVar[str]
    repeated: ClassVar[str]
    listed: ClassVar[tuple[str, ...]] = ("points",)
    look_up: ClassVar[Callable[..., Alternatives]]

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        values = {name: codes_from_json(name, parameters.get(name)) for name in cls.listed}
        matcher = cls(schema, **{**parameters, **values})
        if matcher.parameters() != parameters:
            raise ParameterError(f"the parameters are not those of a {cls.__name__}")
        return matcher

    @property
    def leakage(self) -> LeakageCard:
        """Leakage card; it lists more where ranges have points or partitions."""
        learns = [
            f"every match of a predicate widened to the vocabulary{self.answered}",
            f"the result of each word of each subscription{self.answered}",
            "the number of words in a subscription, and which subscriptions share words",
            "which words belong to one attribute, and to which one, from their number and results",
            "which words stand for NULL and its opposite, where somebody asks for both",
            f"which subscriptions never hold, over many events: {self.never}",
        ]
        attacks = [
            f"equal {self.named} show which subscriptions ask for the same word",
            "frequency: the broker counts the events that have a word; known frequencies then "
            "identify it",
        ]
        if self.vocabulary.points:
            learns.append(
                "the order of points, or its reverse, and between which two of them an event lies"
            )
            attacks.append(
                "containment of answers: it shows the order of the points, or its reverse, and "
                "between which two of them each event lies"
            )
        if self.vocabulary.cells:
            learns += [
                "the number of cells of a range, and so its width to within two cells",
                "the order of all cells of a partition, or its reverse, from ranges alone; and "
                "the cell of each event",
            ]
            attacks = [
                "ranges alone: 150 give all cells of a partition in order; 200 and their "
                "results place every event within 1.3 % of the domain, or all of them reflected",
                *attacks,
                "clauses and results: they tell the attribute of each word",
            ]
        return self._card(
            hides=(
                "which value other than NULL a word of an attribute without ranges stands for, "
                "from anyone who knows no event, no subscription and no frequency",
                "words of an event that nobody has subscribed to and that no other words imply",
                "which events are equal, beyond what the results of words that are subscribed "
                "to show",
                "the number of an event's words, beyond what the schema and the results of "
                "words tell",
            ),
            learns=tuple(learns),
            security="broken" if self.vocabulary.cells else "computational",
            assumption="AES-128 as a pseudorandom function and as a random public permutation",
            hazards=(
                "a client sees the messages, or works with the broker: every client has the keys "
                "of all events and subscriptions",
                f"two events have the same nonce: they show {self.repeated}",
            ),
            attacks=tuple(attacks),
        )

    def widened(self, interest: Any) -> Box:
        """Return the box that a predicate is widened to; plaintext, for the subscriber."""
        return self.vocabulary.widened(bound_predicate(self.schema, interest))

    def meaning(self, interest: Any, events: Events) -> Bools:
        return self.widened(interest).evaluate(events)

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        return {name: randomness(KEY_BYTES).hex() for name in ("words", "permutation")}

    def check_part(self, name: str, value: Any) -> None:
        hex_bytes(value, KEY_BYTES)

    def _nonces(self, draw: Randomness, out: Bytes) -> Words:
        """Draw a nonce for each event, and write it in front of the bodies."""
        nonces = to_blocks(draw(NONCE_BYTES * len(out)))
        out[:, :NONCE_BYTES] = bytes_of(nonces)
        return nonces

    def match(self, key: Mapping[str, Any], events: Bytes, table: Table) -> Bools:
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        slots, keys = table
        interests = slots.shape[2]
        out = np.empty((len(events), interests), dtype=np.bool_)
        step = max(1, _PAIRS // interests)
        for start in range(0, len(events), step):
            rows = events[start : start + step]
            nonces = to_blocks(rows[:, :NONCE_BYTES].tobytes())
            bits = np.ascontiguousarray(rows[:, NONCE_BYTES:])
            for columns in slices(interests, _PAIRS):
                arrays = slots[..., columns], keys[..., columns, :]
                look_up = self.look_up(hashed, nonces, bits, *arrays)
                out[start : start + step, columns] = look_up.answers()
        return out

    @abstractmethod
    def clauses_of(self, table: Table) -> tuple[NDArray[Any], Bools]:
        """Return what tells the clauses of a table apart, and the clauses in use.

        Returns:
            numbers, shape (interests, clauses, n); bool, shape (interests, clauses).
        """

    def covers(self, key: Mapping[str, Any], wide: Table, narrow: Table) -> Bools:
        """Return the pairs in which the narrow interest has all clauses of the wide one.

        Never wrongly true. See `TableScheme.covers`.
        """
        (mine, used), (others, _) = self.clauses_of(wide), self.clauses_of(narrow)
        out = np.ones((len(mine), len(others)), dtype=np.bool_)
        for clause in range(mine.shape[1]):
            same = np.asarray((mine[:, None, None, clause] == others[None]).all(axis=3))
            out &= same.any(axis=2) | ~used[:, clause, None]
        return out


def _sorted(items: Bytes) -> Bytes:
    """Return the items (n, k, bytes) of each row in falling order of their bytes."""
    names = np.ascontiguousarray(~items).view(f"V{items.shape[2]}")[:, :, 0]
    return np.take_along_axis(items, np.argsort(names, axis=1)[:, :, None], axis=1)


def _modulo(hashes: Words, bits: int) -> Words:
    """Return the positions of hashes in a filter of so many bits."""
    if bits & (bits - 1) == 0:
        return hashes & np.uint64(bits - 1)
    # NumPy divides by a scalar without a division; its remainder does not.
    return hashes - (hashes // np.uint64(bits)) * np.uint64(bits)


class _LookUp(Alternatives):
    """Some events with some interests, whose alternatives are words: looked up bit after bit.

    Args:
        hashed: the function F of trapdoors and nonces.
        nonces: nonces of the events, shape (events, 2).
        filters: filters of the events, shape (events, bytes), least significant bit first.
        used: True for slots with a word, shape (clauses, slots, interests).
        trapdoors: trapdoors of the words, shape (clauses, slots, t, interests, 2).
    """

    def __init__(
        self, hashed: NonceHash, nonces: Words, filters: Bytes, used: Bools, trapdoors: Words
    ) -> None:
        super().__init__(len(nonces), used)
        self.hashed, self.nonces, self.trapdoors = hashed, nonces, trapdoors
        bits = np.unpackbits(filters, axis=1, bitorder="little").view(np.bool_)
        self.flat, self.bits = bits.reshape(-1), bits.shape[1]
        self.rows = np.arange(len(nonces), dtype=np.uint64) * np.uint64(self.bits)

    def all_pairs(self, clause: int, slot: int, interests: Index | None) -> Bools:
        keys = self.trapdoors[clause, slot]
        if interests is not None:
            keys = keys.take(interests, axis=1)
        holds = self._is_set(self.hashed.all_pairs(keys[0], self.nonces), self.rows[:, None])
        if len(keys) > 1:
            flat, pairs = holds.reshape(-1), np.flatnonzero(holds)
            event = pairs // holds.shape[1]
            flat[:] = False
            flat[pairs.take(self._left(keys[1:], event, pairs - event * holds.shape[1]))] = True
        return holds

    def pairs(self, clause: int, slot: int, event: Index, interest: Index) -> Bools:
        out = np.zeros(len(event), dtype=np.bool_)
        out[self._left(self.trapdoors[clause, slot], event, interest)] = True
        return out

    def _is_set(self, tags: Words, rows: Words) -> Bools:
        positions = _modulo(tags, self.bits)
        positions += rows
        return self.flat.take(positions.view(np.int64))

    def _left(self, keys: Words, event: Index, word: Index) -> Index:
        """Return the pairs whose bits are all set, by their places; keys (t, words, 2)."""
        left = np.arange(len(event))
        for each in keys:
            if not len(left):
                break
            tags = self.hashed.pairs(each.take(word, axis=0), self.nonces.take(event, axis=0))
            good = np.flatnonzero(self._is_set(tags, self.rows.take(event)))
            left, event, word = left.take(good), event.take(good), word.take(good)
        return left


class KeywordFilterMatch(WordMatcher):
    """Conjunctions of equalities and widened ranges, through encrypted Bloom filters.

    Args:
        schema: any attributes; ranges need points or partitions.
        points: for an attribute, ascending values that ranges are widened to.
        partitions: for an attribute, (cells, shifts): ranges are widened to whole cells.
        false_positives: desired chance that an absent word is found; determines `hashes` and
            `bits` where they are not given.
        hashes: number t of bits that each word sets.
        bits: number m of bits of a filter, a multiple of 64.

    Raises:
        ParameterError: a parameter is out of range.

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
    never = "each of them has a single word, which no other subscription has"
    answered = ", with false positives"
    repeated = "their common words"
    look_up = _LookUp

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
        chance = number("false_positives", false_positives, 2**-64, 0.5)
        for name in schema:
            if schema[name].limbs > MAX_LIMBS:
                raise ParameterError(
                    f"attribute {name!r} must have at most {64 * MAX_LIMBS} bits, "
                    f"got {schema[name].bits}"
                )
        self.vocabulary = Vocabulary(schema, points, partitions)
        self.words = self.vocabulary.columns
        self.hashes = whole("hashes", ceil(-log2(chance)) if hashes is None else hashes, 1, 64)
        if bits is None:
            bits = 64 * ceil(self.hashes * self.words / log(2) / 64)
        self.bits = whole("bits", bits, 64, MAX_BITS, hint="a multiple of 64")
        if self.bits % 64:
            raise ParameterError(f"bits must be a multiple of 64, got {self.bits}")
        self._shape = (self.vocabulary.clauses, self.vocabulary.slots, self.hashes)
        interest = KEY_BYTES * prod(self._shape)
        self._set_up(schema, Sizes(NONCE_BYTES + self.bits // 8, interest))

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, as JSON. `false_positives` is in `hashes` and `bits`."""
        return {**self.vocabulary.parameters(), "hashes": self.hashes, "bits": self.bits}

    @classmethod
    def options_for(cls, schema: Schema, box: Box) -> Iterable[Mapping[str, Any]]:
        # Points all over the domain tell nothing of the predicate's constants.
        return ({"points": spread_points(box)},)

    @property
    def false_positive_rate(self) -> float:
        """Chance that an absent word is found: (1 - e^(-tu/m))^t."""
        return float((1 - exp(-self.hashes * self.words / self.bits)) ** self.hashes)

    @property
    def costs(self) -> tuple[Cost, ...]:
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
        """Return y_1 .. y_t of words, shape (n, t, 2); families (n,), values (limbs, n)."""
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
        nonces = self._nonces(randomness, out)
        tags = NonceHash(bytes.fromhex(key["permutation"])).pairs(
            keys.reshape(count, -1, 2), nonces[:, None]
        )
        bits = np.zeros((count, self.bits), dtype=np.bool_)
        bits[np.arange(count)[:, None], _modulo(tags, self.bits)] = True
        out[:, NONCE_BYTES:] = np.packbits(bits, axis=1, bitorder="little")

    def prepare(self, interest: Any) -> Clauses:
        return self.vocabulary.of_predicate(bound_predicate(self.schema, interest))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Clauses], draw: Draw, out: Bytes
    ) -> None:
        super().encode_interests(key, interests, draw, out)
        never = np.array([prepared is None for prepared in interests.values])[interests.index]
        # A word that no event and no other message has.
        word = KEY_BYTES * self.hashes
        drawn = draw.fresh(word * int(never.sum()))
        out[never, :word] = np.frombuffer(drawn, dtype=np.uint8).reshape(-1, word)

    def _distinct(self, key: Mapping[str, Any], interests: Sequence[Clauses]) -> Bytes:
        clauses, slots, _ = self._shape
        limbs = max(self.schema[name].limbs for name in self.schema)
        words: list[Word] = []
        places: list[tuple[int, int, int]] = []
        for row, prepared in enumerate(interests):
            for clause, alternatives in enumerate(prepared or ()):
                places += [(row, clause, slot) for slot in range(len(alternatives))]
                words += alternatives
        trapdoors = np.zeros((len(interests), *self._shape, 2), dtype=np.uint64)
        for width in range(1, limbs + 1):
            chosen = [i for i, word in enumerate(words) if self._limbs(word) == width]
            if chosen:
                families = np.array([words[i][0] for i in chosen], dtype=np.uint64)
                values = pack([words[i][1] for i in chosen], width)
                slot_of = tuple(np.array([places[i] for i in chosen]).T)
                trapdoors[slot_of] = self._trapdoors(key, families, values)
        # In the order of their bytes, not of attributes and cells; unused ones last.
        ordered = _sorted(trapdoors.view(np.uint8).reshape(len(interests) * clauses, slots, -1))
        return _sorted(ordered.reshape(len(interests), clauses, -1)).reshape(len(interests), -1)

    def _limbs(self, word: Word) -> int:
        attribute, kind = divmod(word[0], KINDS)
        return self.schema[self.schema.names[attribute]].limbs if kind == EQUAL else 1

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        if side == "event":
            # An honest filter has t bits for each of u words, some twice. A fuller one finds more
            # words than an event can have; a full one matches everything.
            filters = words_of(bodies[:, NONCE_BYTES:])
            count = np.bitwise_count(filters).sum(axis=1, dtype=np.int64)
            return causes(count > self.hashes * self.words)
        keys = np.asarray(self._trapdoors_of(bodies).any(axis=4))
        used = np.asarray(keys.any(axis=3))
        return causes(gaps(used) | (used != keys.all(axis=3)).any(axis=(1, 2)))

    def _trapdoors_of(self, bodies: Bytes) -> Words:
        return words_of(bodies).reshape(len(bodies), *self._shape, 2)

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Table:
        trapdoors = np.ascontiguousarray(self._trapdoors_of(bodies).transpose(1, 2, 3, 0, 4))
        return np.asarray(trapdoors.any(axis=(2, 4)), dtype=np.bool_), trapdoors

    def clauses_of(self, table: Table) -> tuple[Words, Bools]:
        used, trapdoors = table
        names = trapdoors.transpose(3, 0, 1, 2, 4)
        return names.reshape(*names.shape[:2], -1), used[:, 0].T
