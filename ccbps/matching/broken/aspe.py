"""AspeMatch: conjunctions of intervals by scalar products that encryption preserves.

An event of d attributes is a query q of ASPE (`ccbps.ciphers.aspe`), of dimension d for all
attributes together. A bound p on attribute j stands for two points p1, p2 that are mirror images
in q_j = p; q_j > p iff (P2 - P1) . Q > 0, and swapping the points reverses that. A subscription
has a lower and an upper bound for every attribute, so operators need not be sent, and all bounds
and all attributes are one matrix product. A message holds P2 - P1 alone, as matching uses nothing
else: it says less than the two points, in half the bytes.

Bounds lie half-way between codes: products are never 0, and equality is two bounds. Open ends are
drawn outside the domain and bounds are shuffled, so that no bound is known beforehand. Both corners
of a subscription's box are sent as well, as events: a box that contains both covers it.

Who encrypts: in [CGB10] a trusted security manager encrypts subscriptions, not their subscribers.
"Subscriber" here means that manager; publishers hold the key too.

Example::

    manager = matcher.subscriber(server.subscriber_key("security manager"))

A new key needs no new subscriptions. The token of `KeyServer.rotate` holds U = M_new^T M_old^-T of
[OFMR15] (its transpose, as ciphertexts are rows here). U turns ciphertexts of points under M_old
into ciphertexts under M_new; queries take its inverse transpose.

Hazard: the broker reads all differences from ciphertexts alone, as codes are whole numbers; d + 2
known events give it the key. See the leakage card.
Hazard: updates and the key of one epoch give the keys of all epochs, so a new key does not lock out
a broker that found the old one. [OFMR15]'s protection against known plaintext is not part of this.
Hazard: real numbers lose a little with every update; a stored interest is good for 64 at least.
Sources: [CGB10], [OFMR15] for key updates, [WCKM09] for the cipher, [Survey] section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ccbps.arrays import Bools, Bytes, Randomness, Reals, Words
from ccbps.checks import flag
from ccbps.dictionary import DictionaryColumn
from ccbps.leakage import LeakageCard
from ccbps.matching.broken.aspe_numbers import FARTHEST, AspeNumbers, Moduli, RealNumbers
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import BOXES, ReusableMatcher, causes, check_widths
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box import Box

Ranges = tuple[tuple[int, int], ...]

MAX_BITS: Final = 64
CORNERS: Final = 64
"""Interests whose corners are tried with their own bounds together."""


@dataclass(frozen=True, slots=True, repr=False)
class Stored:
    """Interests as the broker keeps them.

    Attributes:
        differences: differences of points, one for each bound; the interests are the last axis.
        corners: query ciphertexts, two for each interest; they are the last axis but one.
    """

    differences: Reals
    corners: Reals


class AspeMatch(ReusableMatcher):
    """Sign of scalar products; conjunctions of intervals. Broken by ciphertexts alone.

    Args:
        schema: attributes of at most 64 bits; for real numbers fewer, about 32.
        exact: True to compute with integers modulo a product of primes, not with float64: any
            64-bit attribute, about 10 times the broker's work.

    Raises:
        ParameterError: an attribute is too wide, or there are too many.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching.broken import AspeMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = AspeMatch(schema)
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

    name = "ASPE"
    parts = ("matrix", "inverse")
    operators = BOXES
    covering = True

    def __init__(self, schema: Schema, *, exact: bool = False) -> None:
        self.exact = flag("exact", exact)
        check_widths(schema, MAX_BITS)
        sizes = [schema[name].size for name in schema]
        self._numbers: AspeNumbers = Moduli(sizes) if exact else RealNumbers(schema.names, sizes)
        # Bounds as 64-bit integers where FARTHEST times their size is one.
        self._wide = FARTHEST * max(sizes) >= 1 << 62
        self._sizes = np.array(sizes, dtype=object if self._wide else np.int64)
        width = self._numbers.width
        self._set_up(schema, Sizes(width, (2 * len(schema) + 2) * width))

    def parameters(self) -> dict[str, Any]:
        return {"exact": self.exact}

    def layout(self) -> Any:
        return [list(self._numbers.shape), list(self._numbers.primes)]

    @classmethod
    def options_for(cls, schema: Schema, box: Box) -> Iterable[Mapping[str, Any]]:
        return [{"exact": exact} for exact in (False, True)]

    @property
    def leakage(self) -> LeakageCard:
        numbers = (
            "greatest common divisors of products give the factors"
            if self.exact
            else "codes are whole numbers, and only one reading of the cross-ratios makes all "
            "of them whole"
        )
        return self._card(
            scheme=f"AspeMatch, {'exact' if self.exact else 'real numbers'}",
            hides=(
                "exactly where in its domain an attribute's values lie, as long as they fill a "
                "small part of it, none is NULL, no subscription is open at an end, and neither "
                "a value nor a bound nor their distribution is known",
            ),
            learns=(
                "every match, and for pairs that do not match, which bounds fail",
                "which bounds are of the same attribute (linear dependence)",
                "all differences between values and bounds of an attribute, and with them their "
                "order, covering, and which ends of a subscription are open",
                "the values and bounds themselves, where the events fill an attribute's domain",
            ),
            security="broken",
            assumption="two subscriptions and a few hundred events break it, with nothing known "
            "beforehand",
            hazards=(
                "the key is given to subscribers: it is for a trusted security manager, who "
                "encrypts their subscriptions",
                "a key update reaches anyone but the broker, or the key of one epoch is found: "
                "the updates give the keys of all others",
            ),
            attacks=(
                f"ciphertext only: {numbers}; all differences are read, and where the events fill "
                "a domain, all values and bounds",
                "known plaintext: d + 2 known events give the key up to a factor, and with it "
                "all messages",
                "with a publisher, or anyone else who holds the key: all messages",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        d, product = len(self.schema), Operation.MULTIPLICATION
        n, primes = self._numbers.shape[-1], max(1, len(self._numbers.primes))
        return (
            Cost("publisher", "event", product, n * n * primes, of="float64"),
            Cost("subscriber", "interest", product, (2 * d + 2) * n * n * primes, of="float64"),
            Cost("broker", "pair", product, 2 * d * n * primes, of="float64"),
        )

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        # Queries need the inverse, points the matrix: either gives the other.
        return self._numbers.generate(randomness)

    def check_part(self, name: str, value: Any) -> None:
        self._numbers.check_matrix(value)

    def check_change(self, change: Any) -> None:
        self._numbers.check_matrix(change)

    def rotate(
        self, master: Mapping[str, Any], randomness: Randomness
    ) -> tuple[dict[str, Any], str]:
        """Return a fresh matrix, and U as text."""
        fresh = self.generate(randomness)
        return fresh, self._numbers.update(master, fresh)

    def update(self, change: str, interests: Bytes) -> Bytes:
        return self._numbers.moved(change, interests)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        codes = [events.codes[name][0] for name in self.schema]
        each = self._numbers.words
        words = _words(draw.fresh, len(out) * each).reshape(-1, each)
        out[:] = self._numbers.encrypt_events(key, codes, words)

    def prepare(self, interest: Any) -> Ranges:
        return tuple(bound_predicate(self.schema, interest).box().ranges.values())

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Ranges], draw: Draw, out: Bytes
    ) -> None:
        count, d, each = len(interests), len(self.schema), self._numbers.words
        ranges = np.array(interests.values, dtype=self._sizes.dtype)
        ranges = ranges[interests.index].transpose(0, 2, 1)
        low, high = ranges[:, 0], ranges[:, 1]  # (count, d)
        words = _words(draw.fresh, count * (6 * d + (2 * d + 2) * each))
        drawn = words[: 4 * d * count].reshape(4, count, d)
        near = [(word >> np.uint64(1)).astype(self._sizes.dtype) % self._sizes for word in drawn]
        # Open ends: corners up to one domain outside of it, bounds further out, up to two. So an
        # open corner is inside an open bound and outside of every other, as the domain's end is.
        first, last = low == 0, high == self._sizes - 1
        bounds = np.stack(
            [
                np.where(first, -2 * (self._sizes + near[0]), 2 * low) - 1,
                np.where(last, 2 * (2 * self._sizes - 1 + near[1]), 2 * high) + 1,
            ],
            axis=1,
        )
        corners = np.stack(
            [
                np.where(first, -2 * near[2], 2 * low),
                np.where(last, 2 * (self._sizes - 1 + near[3]), 2 * high),
            ],
            axis=1,
        )
        order_words, rest = np.split(words[4 * d * count :], [2 * d * count])
        order = np.argsort(order_words.reshape(count, 2 * d), axis=1)
        bound_words, corner_words = np.split(rest, [2 * d * count * each])
        split = 2 * d * self._numbers.width
        out[:, :split] = self._numbers.encrypt_bounds(
            key, bounds, order, bound_words.reshape(count, 2 * d, each)
        )
        out[:, split:] = self._numbers.encrypt_corners(
            key, corners, corner_words.reshape(count, 2, each)
        )

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        return causes(~self._numbers.valid(bodies))

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Stored:
        numbers = self._numbers.numbers_of(bodies)
        corners = numbers[:, -2:].reshape(-1, *self._numbers.shape)
        return Stored(self._numbers.differences(numbers[:, :-2]), self._numbers.queries(corners))

    def match(self, key: Mapping[str, Any], events: Bytes, table: Stored) -> Bools:
        queries = self._numbers.queries(self._numbers.numbers_of(events)[:, 0])
        return self._numbers.inside(queries, table.differences)

    def covers(self, key: Mapping[str, Any], wide: Stored, narrow: Stored) -> Bools:
        contained = self._contained(narrow, wide)
        empty = np.empty(len(contained), dtype=np.bool_)
        for start in range(0, len(empty), CORNERS):
            stop = start + CORNERS
            boxes = Stored(
                np.ascontiguousarray(narrow.differences[..., start:stop]),
                narrow.corners[..., 2 * start : 2 * stop, :],
            )
            # Only a box without events does not contain its own corners.
            empty[start:stop] = ~self._contained(boxes, boxes).diagonal()
        return np.asarray((contained | empty[:, None]).T)

    def _contained(self, boxes: Stored, others: Stored) -> Bools:
        """Return the pairs in which both corners of a box are in another."""
        inside = self._numbers.inside(boxes.corners, others.differences)
        return np.asarray(inside[0::2] & inside[1::2])


def _words(randomness: Randomness, count: int) -> Words:
    """Return random words: 32 random bytes, stretched by AES-256 in counter mode."""
    stream = Cipher(algorithms.AES(randomness(32)), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)
