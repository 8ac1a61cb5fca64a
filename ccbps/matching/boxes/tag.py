"""TagMatch: boxes over prefixes, every prefix of an event a fresh pseudorandom tag.

An event is a nonce N and, for each attribute and each length, the tag F(F(k, prefix), N) of the
prefix of that length: 64 bits each, sorted. An interval is the disjoint union of at most
2 (bits - 1) prefixes; a subscription is F(k, prefix) for each, among decoys that are shared as
prefixes are (`ccbps.matching.boxes.tag_covers`), filled up to that number. The broker computes
F(y, N) for the keys y of a subscription and looks for them among the event's tags; an event matches
if every attribute has one.

*Topic* attributes are compared as a whole (= or anything) and are joined into every prefix:
"issue = IBM and price begins with 0110" is one word. Where the topic differs, nothing can be
learned about the other attributes.

*Groups* of subscribers, and epochs, have a k each (`ccbps.matching.boxes.tag_keys`): an event has
tags for every group that it reaches, and keys of different groups are not seen to belong together.

What a broker sees can be computed from what it learns (`leakage`) and nothing else: tags that no
key fits are random numbers, new in every event. Equal events look unrelated; an event that no
interval of any subscription touches shows nothing.

Hazard: keys of subscriptions are deterministic in a group and epoch, so subscriptions are seen to
be equal and bounds to begin alike, which gives constants away where their distribution is known or
intervals have two bounds; with some events at hand, hits give them away whatever is known. Any
client has its group's key. Tags may agree by chance: see `TagMatch.false_positive_rate`, 2^-52 for
36 bits.
Source: the nonces of [RR06] and [Goh03]; intervals as prefixes and their tokens: see [DPPDG16]. The
combination and the decoys are this project's own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import shake_256
from itertools import compress, product
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, WordKeys, to_blocks
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.keys.role_key import Role, RoleKey
from ccbps.leakage import LeakageCard
from ccbps.matching.boxes.tag_covers import PREFIX, Node, nodes_of, nodes_of_events, nodes_within
from ccbps.matching.boxes.tag_keys import (
    ROOT_BYTES,
    TagKeyServer,
    broker_data,
    group_of,
    publisher_data,
    subscriber_data,
)
from ccbps.matching.boxes.tag_lookup import TagTable
from ccbps.matching.parameters import Cost
from ccbps.matching.reusable import ReusableMatcher
from ccbps.predicates import Schema
from ccbps.predicates.codes import pack
from ccbps.predicates.schema import Events
from ccbps.predicates.types import EMPTY
from ccbps.wire import Cause

__all__ = ["TagMatch"]


NONCE_BYTES: Final = 16
TAG_BYTES: Final = 8
MAX_TAGS: Final = 1 << 14
_PAIRS: Final = 1 << 14
_TOPIC: Final = np.uint64(1 << 63)

Prepared = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]] | None
"""(topics in use as bits, their codes, the range of each other attribute); None never holds."""


def _random(shape: tuple[int, ...], randomness: Randomness) -> Words:
    return np.frombuffer(randomness(8 * math.prod(shape)), dtype="<u8").reshape(shape)


def _sorted(keys: Words) -> Words:
    """Keys in the order of their values, which is random."""
    return keys[np.argsort(keys[:, 0], kind="stable")]


class TagMatch(ReusableMatcher):
    """Conjunctions of intervals; the broker learns which hold, in matching topics only.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
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

    scheme = "tags"
    operators = ("=", "<", "interval", "prefix", "and")
    covering = False
    version = 2

    def __init__(self, schema: Schema, *, topic: Sequence[str] = (), groups: int = 1) -> None:
        """
        Args:
            schema: any attributes. Every bit of an attribute costs a tag in each event.
            topic: attributes that subscriptions compare with = or leave open. Each doubles the
                tags of an event.
            groups: how many groups of subscribers, each with its own keys. Subscriptions of
                different groups show nothing of one another by themselves, until many events have
                hit them; an event has tags for each group.

        Raises:
            ParameterError: an attribute is unknown, `groups` is not a positive whole number, or
                events would have more than 2^14 tags.
        """
        wanted = "topic must name attributes of the schema, each once"
        if not isinstance(topic, Iterable):
            raise ParameterError(f"{wanted}, such as topic=['issue']; got {topic!r}")
        names = (topic,) if isinstance(topic, str) else tuple(topic)
        for name in names:
            if not isinstance(name, str) or name not in schema or names.count(name) > 1:
                raise ParameterError(f"{wanted}; got {name!r}")
        self.topic = tuple(name for name in schema if name in names)
        self._others = tuple(name for name in schema if name not in names)
        if type(groups) is not int or groups < 1:
            raise ParameterError(f"groups must be a whole number, at least 1; got {groups!r}")
        self.groups = groups
        levels = [schema[n].bits + 1 + schema[n].nullable for n in self._others] or [1]
        self.tags = groups * 2 ** min(len(self.topic), 20) * sum(levels)
        if self.tags > MAX_TAGS:
            raise ParameterError(
                f"an event must have at most {MAX_TAGS} tags, got {self.tags}: narrow the "
                "attributes, name fewer topics or take fewer groups"
            )
        # Groups of keys, one per attribute; the narrow ones first, as most pairs end there.
        sizes = [nodes_within(schema[name]) for name in self._others] or [1]
        self._order = sorted(range(len(sizes)), key=lambda at: (sizes[at], at))
        self._sizes = [sizes[at] for at in self._order]
        self.keys = sum(sizes)
        self._set_up(
            schema,
            NONCE_BYTES + TAG_BYTES * self.tags,
            KEY_BYTES * self.keys,
            {"topic": list(self.topic), "groups": groups},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TagMatch, topic=self.topic, groups=self.groups), (self.schema,)

    def key_server(self, key: RoleKey | None = None) -> TagKeyServer:
        """Holds the keys of all groups, and steps from epoch to epoch."""
        return TagKeyServer(self, key)

    @property
    def false_positive_rate(self) -> float:
        """Upper bound on the chance that a pair seems to match and does not: keys * tags / 2^64."""
        return float(self.keys * self.tags) / 2**64

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="TagMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "those parts of an event that no key fits: two events that no key fits look "
                "alike, whether they are equal, close or far apart",
                "for an interval with two bounds that does not hold: on which side of it a "
                "value lies, and how far away, unless other intervals show it",
                "the results of single intervals, where an event's topic is not the one asked for",
                "before there are events: everything about one subscription, taken by itself; "
                "and whether two of different groups, taken by themselves, are alike",
            ),
            learns=(
                "for each pair, which of the subscription's intervals hold, within its topic",
                "for an interval that holds, which of its prefixes does: that is, which events "
                "lie in the same part of a subscription's interval",
                "over many events, how often each key fits; hence, where the distribution of "
                "values is known, the constants",
                "from many subscriptions and some events, with nothing known beforehand, the "
                "constants, up to one reflection: a key that ever fits is not a decoy",
                "within a group and epoch, from subscriptions alone: which ask for the same topic",
                "within a group, epoch and topic, from subscriptions alone: which bounds of an "
                "attribute begin with the same bits, and with how many; which intervals are "
                "equal; which are equalities, are open, or never hold; for an interval with two "
                "bounds, the bit at which they part",
                "public parameters: the schema, the topics' names, the number of groups",
            ),
            security="computational",
            assumption="AES-128 as a pseudorandom function and as a random public permutation; "
            "SHAKE256 and HMAC-SHA-256 with a key as pseudorandom functions",
            reuse="reusable",
            hazards=(
                "anyone who has a group's key, that is, any client of it, can, together with "
                "the broker, read the events that reach the group and the group's "
                "subscriptions, and can make both",
                "two events with the same nonce show their common prefixes",
            ),
            attacks=(
                "frequency: one in 2^n uniform values has a given prefix of n bits, so counting "
                "hits gives the lengths of an interval's prefixes, and these give its width: "
                "100 events give the c of x < c to about 2 % of the domain, 1,000 to 0.2 %",
                "hits, nothing known: a key that fits even once shows the last bit of its "
                "prefix; 30 events and 300 subscriptions x < c of one group and epoch give c to "
                "about 1 % of the domain, 100 events to 0.5 %, or all of them reflected",
                "frequency: how often a prefix is found is how often it occurs; subscriptions "
                "to all values of an attribute, taken together, sort events by its value",
                "subscriptions only: the most frequent topic, or equality, is the most popular one",
                "subscriptions only: bounds with a known uneven distribution are recognized by "
                "how many begin alike; if its density falls by a factor of e over 40 % of the "
                "domain, 30 of one group and epoch give c to about 5 % of the domain, 300 to 3 "
                "%, 3,000 to 1 %",
                "subscriptions only, nothing known: a domain whose size is not a power of two "
                "shows first bits, and bounds that fill a domain show their highest bit",
                "subscriptions only: at the first bit in which the two bounds of an interval "
                "differ, the upper one has the 1; 30 such intervals of one group and epoch, "
                "with random bounds, give the upper bounds of all subscriptions to about 4 % of "
                "the domain, 300 to 1 %, or all of them reflected",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        blocks = sum(
            2 ** len(self.topic) * (self._bits(at) + 1) * self._limbs(at) for at in self._order
        )
        blocks *= self.groups
        return (
            Cost("publisher", "event", "AES block (about)", float(blocks + self.tags)),
            Cost("subscriber", "interest", "AES block (about)", float(self.keys)),
            Cost("broker", "pair", "AES block (at most)", float(self.keys)),
            Cost("broker", "pair", "AES block (if the first interval fails)", self._sizes[0]),
        )

    def _bits(self, at: int) -> int:
        return self.schema[self._others[at]].bits if self._others else 0

    def _limbs(self, at: int) -> int:
        return self.schema[self._others[at]].limbs if self._others else 1

    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        return {"root": randomness(ROOT_BYTES).hex()}

    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        if role == "publisher":
            return publisher_data(master["root"], range(self.groups))
        if role == "subscriber":
            return subscriber_data(master["root"], group_of(name, self.groups))
        return broker_data(master["root"])

    # -- words ------------------------------------------------------------------------------

    # A word's blocks are (number, head): the topics in use, their codes, then the prefix. A head
    # says what the block is and what is still to come, so no word is the beginning of another.

    def _topics(self, words: WordKeys, used: int, codes: Sequence[Words]) -> Words:
        """States after the topic: `used` has a bit for each topic, `codes` of those; (n, 2)."""
        count = codes[0].shape[1] if codes else 1
        states = np.zeros((count, 2), dtype=np.uint64)
        if not self.topic:
            return states
        states = words.extend(states, np.array([used, _TOPIC], dtype=np.uint64))
        for number, limbs in enumerate(codes):
            for place, limb in enumerate(limbs):
                head = _TOPIC | np.uint64((number + 1) << 16 | place)
                states = words.extend(states, np.stack([limb, np.full_like(limb, head)], axis=1))
        return states

    def _nodes(
        self, words: WordKeys, states: Words, at: int, what: Words, lengths: Words, codes: Words
    ) -> Words:
        """Keys of nodes, (..., 2): states (..., 2), what and lengths (...), codes (limbs, ...)."""
        for place, limb in enumerate(codes):
            head = np.uint64((at + 1) << 32 | place) | lengths << np.uint64(16)
            blocks = np.stack(np.broadcast_arrays(limb, head | what << np.uint64(56)), axis=-1)
            states = words.extend(states, blocks)
        return states

    # -- events -----------------------------------------------------------------------------

    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        step = max(1, _PAIRS // self.tags)
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        nonces = to_blocks(randomness(NONCE_BYTES * events.count))
        out[:, :NONCE_BYTES] = nonces.view(np.uint8).reshape(events.count, -1)
        for start in range(0, events.count, step):
            at = slice(start, start + step)
            codes = {name: limbs[:, at] for name, limbs in events.codes.items()}
            tags = [
                self._tags(WordKeys(bytes.fromhex(group)), hashed, codes, nonces[at], randomness)
                for group in key["words"].values()
            ]
            others = (len(nonces[at]), self.tags - sum(part.shape[1] for part in tags))
            tags.append(_random(others, randomness))  # of groups that the event does not reach
            joined = np.concatenate(tags, axis=1)
            joined.sort(axis=1)  # tags are random: sorted, they do not show what they stand for
            out[at, NONCE_BYTES:] = joined.astype("<u8", copy=False).view(np.uint8)

    def _tags(
        self,
        words: WordKeys,
        hashed: NonceHash,
        codes: Mapping[str, Words],
        nonces: Words,
        randomness: Randomness,
    ) -> Words:
        """Tags of events for one group, uint64, shape (events, tags)."""
        count, found = len(nonces), []
        states = []
        for choice in product((False, True), repeat=len(self.topic)):
            used = sum(1 << place for place, one in enumerate(choice) if one)
            state = self._topics(
                words, used, [codes[name] for name in compress(self.topic, choice)]
            )
            states.append(np.broadcast_to(state, (count, 2)))
        topics = np.stack(states, axis=1)[:, :, None]  # (events, topics, 1, 2)
        for at in self._order:
            limbs = codes[self._others[at]] if self._others else np.zeros((1, count), np.uint64)
            bits = self._bits(at)
            nullable = bool(self._others) and self.schema[self._others[at]].nullable
            what, lengths, masks = nodes_of_events(bits, len(limbs), nullable)
            cut = limbs[:, :, None, None] & masks[:, None, None]
            keys = self._nodes(words, topics, at, what, lengths, cut)
            tags = hashed.pairs(keys, nonces[:, None, None])
            if nullable:  # NULL has only two of these: `ccbps.matching.boxes.tag_covers`
                null = np.flatnonzero(~limbs.any(axis=0))
                for part in (tags[:, :, 1:bits], tags[:, :, bits + 1 :]):
                    part[null] = _random((len(null), *part.shape[1:]), randomness)
            found.append(tags.reshape(count, -1))
        return np.concatenate(found, axis=1)

    # -- subscriptions ----------------------------------------------------------------------

    def _prepare(self, interest: Any) -> Prepared:
        predicate = self._predicate(interest)
        ranges = predicate.box().ranges
        used, topics = 0, []
        for place, name in enumerate(self.topic):
            low, high = ranges[name]
            if low == high:
                used |= 1 << place
                topics.append(low)
            elif (low, high) not in (EMPTY, (0, self.schema[name].size - 1)):
                raise UnsupportedPredicateError(
                    f"topic attribute {name!r} takes = or no condition, not a range",
                    text=predicate.text,
                )
        if EMPTY in ranges.values():
            return None
        return (
            used,
            tuple(topics),
            tuple(ranges[self._others[at]] for at in self._order if self._others),
        )

    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[Prepared],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        words, secret = WordKeys(bytes.fromhex(key["words"])), bytes.fromhex(key["filling"])
        made: dict[Any, Words] = {}
        for row, prepared in enumerate(interests):
            if prepared is None:
                # Fresh, so that what never matches does not show by being sent twice.
                fresh = to_blocks(randomness(KEY_BYTES * self.keys))
                sets = [_sorted(part) for part in np.split(fresh, np.cumsum(self._sizes)[:-1])]
            else:
                used, topics, ranges = prepared
                sets = []
                for number, bounds in enumerate(ranges or [(0, 0)]):
                    name = (used, topics, number, bounds)
                    if name not in made:
                        made[name] = self._set(words, secret, *name)
                    sets.append(made[name])
            joined = np.concatenate(sets)
            out[row] = joined.astype("<u8", copy=False).view(np.uint8).reshape(-1)

    def _set(
        self,
        words: WordKeys,
        secret: bytes,
        used: int,
        topics: tuple[int, ...],
        number: int,
        bounds: tuple[int, int],
    ) -> Words:
        """The keys of an interval of attribute `number` in the order of groups: (size, 2)."""
        at, size = self._order[number], self._sizes[number]
        names = [name for place, name in enumerate(self.topic) if used >> place & 1]
        codes = [
            pack([code], self.schema[name].limbs) for code, name in zip(topics, names, strict=True)
        ]
        state = self._topics(words, used, codes)
        nodes: list[Node] = [(PREFIX, 0, 0)]
        if self._others:
            nodes = nodes_of(*bounds, self.schema[self._others[at]])
        what, firsts, lengths = zip(*nodes, strict=True)
        # What fills up depends on topic and interval alone: equal ones do not show what fills up.
        text = json.dumps([used, *map(str, [*topics, at, *bounds])]).encode()
        keys = to_blocks(shake_256(secret + text).digest(KEY_BYTES * size)).copy()
        keys[: len(nodes)] = self._nodes(
            words,
            state,
            at,
            np.array(what, dtype=np.uint64),
            np.array(lengths, dtype=np.uint64),
            pack(firsts, self._limbs(at)),
        )
        return _sorted(keys)

    # -- the broker -------------------------------------------------------------------------

    def _check_events(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        tags = np.ascontiguousarray(bodies[:, NONCE_BYTES:]).view("<u8")
        bad = (tags[:, 1:] < tags[:, :-1]).any(axis=1)
        return np.where(bad, Cause.VALUE, Cause.NONE).astype(np.uint8)

    def _check_interests(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        keys = np.ascontiguousarray(bodies).view("<u8").reshape(len(bodies), -1, 2)[:, :, 0]
        rising = keys[:, 1:] >= keys[:, :-1]
        rising[:, np.cumsum(self._sizes)[:-1] - 1] = True
        return np.where(rising.all(axis=1), Cause.NONE, Cause.VALUE).astype(np.uint8)

    def _table(self, key: Mapping[str, Any], bodies: Bytes) -> TagTable:
        keys = np.ascontiguousarray(bodies).view("<u8").reshape(len(bodies), -1, 2)
        groups = np.split(keys, np.cumsum(self._sizes)[:-1], axis=1)
        return TagTable.of([np.ascontiguousarray(group) for group in groups])

    def _match_all(self, key: Mapping[str, Any], events: Bytes, table: TagTable) -> Bools:
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        nonces = to_blocks(events[:, :NONCE_BYTES].tobytes())
        tags = np.ascontiguousarray(events[:, NONCE_BYTES:]).view("<u8")
        return table.match(hashed, nonces, tags)
