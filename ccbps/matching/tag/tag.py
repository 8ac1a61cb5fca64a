"""TagMatch: boxes over prefixes, every prefix of an event a fresh pseudorandom tag.

An event is a nonce N and, for each attribute and each length, the tag F(F(k, prefix), N) of the
prefix of that length: 64 bits each, sorted. An interval is the disjoint union of at most
2 (bits - 1) prefixes; a subscription is F(k, prefix) for each, among decoys that are shared as
prefixes are (`ccbps.matching.tag.tag_covers`), filled up to that number. The broker computes
F(y, N) for the keys y of a subscription and looks for them among the event's tags; an event matches
if every attribute has one.

*Topic* attributes are compared as a whole (= or anything) and are joined into every prefix:
"issue = IBM and price begins with 0110" is one word. Where the topic differs, nothing can be
learned about the other attributes.

*Groups* of subscribers, and epochs, have a k each (`ccbps.matching.tag.tag_keys`): an event has
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

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Randomness, Words
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, WordKeys, to_blocks
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.kinds import Side
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import ServerScheme, TableScheme
from ccbps.matching.tag.tag_card import CARD
from ccbps.matching.tag.tag_keys import (
    ROOT_BYTES,
    broker_data,
    checked_groups,
    group_of,
    next_root,
    publisher_data,
    subscriber_data,
)
from ccbps.matching.tag.tag_lookup import TagTable
from ccbps.matching.tag.tag_words import TagWords, in_order
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.types import EMPTY
from ccbps.wire import Cause

NONCE_BYTES: Final = 16
TAG_BYTES: Final = 8
MAX_TAGS: Final = 1 << 14
_PAIRS: Final = 1 << 14

Prepared = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]] | None
"""(topics in use as bits, their codes, the range of each other attribute); None never holds."""


def _random(shape: tuple[int, ...], randomness: Randomness) -> Words:
    return np.frombuffer(randomness(8 * math.prod(shape)), dtype="<u8").reshape(shape)


class TagMatch(Matcher, ServerScheme, TableScheme):
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

    name = "tags"
    operators = ("=", "<", "interval", "prefix", "and")
    covering = False
    key_options: ClassVar[Mapping[Role, tuple[str, ...]]] = {
        "publisher": ("groups",),
        "subscriber": ("group",),
    }
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
        if type(groups) is not int or groups < 1:
            raise ParameterError(f"groups must be a whole number, at least 1; got {groups!r}")
        self.groups, self._words = groups, TagWords(schema, names)
        self.topic, self.tags = self._words.topic, groups * self._words.each
        if self.tags > MAX_TAGS:
            raise ParameterError(
                f"an event must have at most {MAX_TAGS} tags, got {self.tags}: narrow the "
                "attributes, name fewer topics or take fewer groups"
            )
        self.keys = sum(self._words.sizes)
        self._set_up(schema, Sizes(NONCE_BYTES + TAG_BYTES * self.tags, KEY_BYTES * self.keys))

    def parameters(self) -> dict[str, Any]:
        """Topics and the number of groups."""
        return {"topic": list(self.topic), "groups": self.groups}

    @classmethod
    def propose(cls, schema: Schema, wanted: Predicate) -> Iterator[TagMatch]:
        """Without topics; and with those attributes that are compared with =."""
        yield from super().propose(schema, wanted)
        with suppress(CcbpsError):
            ranges = bound_predicate(schema, wanted).box().ranges
            equal = [name for name, (low, high) in ranges.items() if low == high]
            if equal:
                yield cls(schema, topic=equal)

    @property
    def false_positive_rate(self) -> float:
        """Upper bound on the chance that a pair seems to match and does not: keys * tags / 2^64."""
        return float(self.keys * self.tags) / 2**64

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return CARD

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        words = self._words
        blocks = sum((words.bits(at) + 1) * words.limbs(at) for at in words.order)
        blocks *= self.groups * 2 ** len(self.topic)
        block, first = Operation.AES_BLOCK, f"{words.sizes[0]} if the first interval fails"
        return (
            Cost("publisher", "event", block, blocks + self.tags, note="about"),
            Cost("subscriber", "interest", block, self.keys, note="about"),
            Cost("broker", "pair", block, self.keys, note=f"at most; {first}"),
        )

    # -- keys -------------------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """See `ServerScheme.generate`."""
        return {"root": randomness(ROOT_BYTES).hex()}

    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
        *,
        groups: Iterable[int] | None = None,
        group: int | None = None,
    ) -> dict[str, Any]:
        """See `ServerScheme.issue`.

        Args:
            groups: of a publisher, which its events reach, from 0 on; None for all.
            group: of a subscriber; None for one by a hash of its name.

        Raises:
            ParameterError: there is no such group.
        """
        root = master["root"]
        if role == "publisher":
            return publisher_data(root, checked_groups(groups, self.groups))
        if role == "subscriber":
            if group is None:
                return subscriber_data(root, group_of(name, self.groups))
            return subscriber_data(root, *checked_groups([group], self.groups))
        return broker_data(root)

    def rotate(
        self, master: Mapping[str, Any], randomness: Randomness
    ) -> tuple[dict[str, Any], None]:
        """The next root, which follows from this one."""
        return {"root": next_root(master["root"])}, None

    # -- events -----------------------------------------------------------------------------

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        step = max(1, _PAIRS // self.tags)
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        nonces = to_blocks(draw.fresh(NONCE_BYTES * events.count))
        out[:, :NONCE_BYTES] = nonces.view(np.uint8).reshape(events.count, -1)
        for start in range(0, events.count, step):
            at = slice(start, start + step)
            codes = {name: limbs[:, at] for name, limbs in events.codes.items()}
            tags = [
                self._tags(WordKeys(bytes.fromhex(group)), hashed, codes, nonces[at], draw.fresh)
                for group in key["words"].values()
            ]
            others = (len(nonces[at]), self.tags - sum(part.shape[1] for part in tags))
            tags.append(_random(others, draw.fresh))  # of groups that the event does not reach
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
        found = []
        for keys, null, missing in self._words.of_events(words, codes, len(nonces)):
            tags = hashed.pairs(keys, nonces[:, None, None])
            if len(null):
                for part in (tags[:, :, at] for at in missing):
                    part[null] = _random((len(null), *part.shape[1:]), randomness)
            found.append(tags.reshape(len(nonces), -1))
        return np.concatenate(found, axis=1)

    # -- subscriptions ----------------------------------------------------------------------

    def prepare(self, interest: Any) -> Prepared:
        """Topic, and ranges."""
        predicate = bound_predicate(self.schema, interest)
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
        words = self._words
        bounds = tuple(ranges[words.others[at]] for at in words.order if words.others)
        return used, tuple(topics), bounds or ((0, 0),)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Prepared], draw: Draw, out: Bytes
    ) -> None:
        """See `Scheme.encode_interests`."""
        words, secret = WordKeys(bytes.fromhex(key["words"])), bytes.fromhex(key["filling"])
        made: dict[Any, Words] = {}
        distinct = np.zeros((len(interests.values), self.keys, 2), dtype="<u8")
        for number, prepared in enumerate(interests.values):
            if prepared is None:
                continue
            used, topics, ranges = prepared
            sets = []
            for place, bounds in enumerate(ranges):
                name = (used, topics, place, bounds)
                if name not in made:
                    made[name] = self._words.of_interval(words, secret, *name)
                sets.append(made[name])
            np.concatenate(sets, out=distinct[number])
        out[:] = distinct.view(np.uint8).reshape(len(distinct), -1)[interests.index]
        never = np.array([prepared is None for prepared in interests.values])
        for row in np.flatnonzero(never[interests.index]):
            # Fresh, so that what never matches does not show by being sent twice.
            fresh = to_blocks(draw.fresh(KEY_BYTES * self.keys))
            sets = [in_order(part) for part in np.split(fresh, self._edges)]
            out[row] = np.concatenate(sets).view(np.uint8).reshape(-1)

    # -- the broker -------------------------------------------------------------------------

    @property
    def _edges(self) -> Index:
        """Where the keys of further attributes begin."""
        return np.cumsum(self._words.sizes)[:-1]

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """See `Scheme.check`."""
        if side == "event":
            tags = np.ascontiguousarray(bodies[:, NONCE_BYTES:]).view("<u8")
            wrong = (tags[:, 1:] < tags[:, :-1]).any(axis=1)
        else:
            keys = np.ascontiguousarray(bodies).view("<u8").reshape(len(bodies), -1, 2)[:, :, 0]
            falling = keys[:, 1:] < keys[:, :-1]
            falling[:, self._edges - 1] = False
            wrong = falling.any(axis=1)
        return np.where(wrong, Cause.VALUE, Cause.NONE).astype(np.uint8)

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> TagTable:
        """See `TableScheme.table`."""
        keys = np.ascontiguousarray(bodies).view("<u8").reshape(len(bodies), -1, 2)
        groups = np.split(keys, self._edges, axis=1)
        return TagTable.of([np.ascontiguousarray(group) for group in groups])

    def match(self, key: Mapping[str, Any], events: Bytes, table: TagTable) -> Bools:
        """See `TableScheme.match`."""
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        nonces = to_blocks(events[:, :NONCE_BYTES].tobytes())
        tags = np.ascontiguousarray(events[:, NONCE_BYTES:]).view("<u8")
        return table.match(hashed, nonces, tags)
