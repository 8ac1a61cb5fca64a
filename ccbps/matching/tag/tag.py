"""TagMatch: boxes over prefixes, every prefix of an event a fresh pseudorandom tag.

An event is a nonce N and, for each attribute and each length, the tag F(F(k, prefix), N) of the
prefix of that length: 64 bits each, sorted. An interval is the disjoint union of at most
2 (bits - 1) prefixes. A subscription is F(k, prefix) for each of them, filled up to that number
with decoys, which subscriptions share as they share prefixes (`ccbps.matching.tag.tag_words`). The
broker computes F(y, N) for the keys y of a subscription and looks for them among the event's tags;
an event matches if there is a hit for every attribute.

*Topic* attributes are compared as a whole (= or anything) and are joined into every prefix:
"issue = IBM and price begins with 0110" is one word. Where the topic differs, nothing can be
learned about the other attributes.

Each *group* of subscribers has a key k of its own in each epoch. Keys of different groups show no
link by themselves::

    matcher = TagMatch(schema, groups=8)
    server = matcher.key_server()
    alice = server.subscriber_key("alice", group=3)         # makes subscriptions of group 3 only
    feed = server.publisher_key("feed", groups=[1, 3])      # makes events for groups 1 and 3
    server.rotate()                                         # keys of the next epoch from now on

An event has tags for every group of the matcher; those of groups that the publisher has no key of
are random numbers. So a client and the broker together read events that reach the client's own
group, and subscriptions of that group; with events that reach several groups they learn of the
subscriptions of all of these, by their hits.

All keys of an epoch are derived from its root by HMAC-SHA-256, and so is the next epoch's root:
servers restored from one saved key rotate to the same keys, and the key of an epoch gives no
earlier key. Subscriptions must be sent anew. Until then, a broker of the old epoch can serve the
existing ones, with events made under the old key.

A broker's view can be computed from the card's `learns` (`leakage`) and nothing else: tags that no
key fits are random numbers, new in every event. Equal events look unrelated; an event that no
interval of any subscription touches shows nothing.

Hazard: keys of subscriptions are deterministic in a group and epoch, so the broker sees equal
subscriptions and common prefixes of bounds. This gives constants away where their distribution is
known or intervals have two bounds; with some events at hand, hits give them away without prior
knowledge. Any client has its group's key, which makes the group's subscriptions and events: it can
forge either. Tags may agree by chance: see `TagMatch.false_positive_rate`, 2^-52 for 36 bits.
Source: the nonces of [RR06] and [Goh03]; intervals as prefixes and their tokens: see [DPPDG16]. The
combination and the decoys are this project's own.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Randomness, Words, slices
from ccbps.checks import fields, instance, whole
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, WordKeys, to_blocks
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.keys.role_key import Role, hex_bytes
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import BOXES, ReusableMatcher, bytes_of, causes, words_of
from ccbps.matching.tag.tag_lookup import TagTable
from ccbps.matching.tag.tag_words import Interval, TagWords, in_order
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box import Box
from ccbps.predicates.types import EMPTY

ROOT_BYTES: Final = 32
NONCE_BYTES: Final = 16
TAG_BYTES: Final = 8
MAX_TAGS: Final = 1 << 14
_PAIRS: Final = 1 << 14

Prepared = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]] | None
"""(topics in use as bits, their codes, the range of each other attribute); None never holds."""


def group_of(name: str, groups: int) -> int:
    """Return the group of a subscriber for whom no other is given: a hash of the name."""
    return int.from_bytes(sha256(name.encode()).digest(), "big") % groups


def _derived(root: str, label: str, size: int = KEY_BYTES) -> str:
    return hmac.digest(bytes.fromhex(root), label.encode(), "sha256")[:size].hex()


def _random(shape: tuple[int, ...], randomness: Randomness) -> Words:
    return np.frombuffer(randomness(8 * math.prod(shape)), dtype="<u8").reshape(shape)


class TagMatch(ReusableMatcher):
    """Conjunctions of intervals; the broker learns which hold, in matching topics only.

    Args:
        schema: any attributes. Every bit of an attribute costs a tag in each event.
        topic: attributes that subscriptions compare with = or leave open. Each doubles the
            tags of an event.
        groups: number of groups of subscribers, each with its own keys. Subscriptions of
            different groups show nothing of one another by themselves, until many events have
            hit them; an event has tags for each group.

    Raises:
        ParameterError: an attribute is unknown, `groups` is not a positive whole number, or
            events would have more than 2^14 tags.

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
    operators = BOXES
    covering = False
    key_options: ClassVar[Mapping[Role, tuple[str, ...]]] = {
        "publisher": ("groups",),
        "subscriber": ("group",),
    }
    version = 2

    def __init__(self, schema: Schema, *, topic: Sequence[str] = (), groups: int = 1) -> None:
        is_list = isinstance(topic, Iterable) and not isinstance(topic, str)
        names: list[Any] = list(topic) if is_list else [topic]
        if any(name not in schema.names or names.count(name) > 1 for name in names):
            raise ParameterError(
                "topic must name attributes of the schema, each once, such as topic=['issue']; "
                f"got {topic!r}"
            )
        self.groups, self._words = whole("groups", groups, 1), TagWords(schema, names)
        self.topic, self.tags = self._words.topic, self.groups * self._words.each
        if self.tags > MAX_TAGS:
            raise ParameterError(
                f"an event must have at most {MAX_TAGS} tags, got {self.tags}: narrow the "
                "attributes, name fewer topics or take fewer groups"
            )
        self.keys = sum(self._words.sizes)
        self._set_up(schema, Sizes(NONCE_BYTES + TAG_BYTES * self.tags, KEY_BYTES * self.keys))

    def parameters(self) -> dict[str, Any]:
        return {"topic": list(self.topic), "groups": self.groups}

    @classmethod
    def options_for(cls, schema: Schema, box: Box) -> Iterable[Mapping[str, Any]]:
        equal = [name for name, (low, high) in box.ranges.items() if low == high]
        return ({}, {"topic": equal}) if equal else ({},)

    @property
    def false_positive_rate(self) -> float:
        """Upper bound on the chance of a false match of a pair: keys * tags / 2^64."""
        return float(self.keys * self.tags) / 2**64

    @property
    def leakage(self) -> LeakageCard:
        return self._card(
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
            hazards=(
                "anyone who has a group's key, that is, any client of it, can, together with "
                "the broker, read the events that reach the group and the group's "
                "subscriptions, and can make both",
                "two events have the same nonce: they show their common prefixes",
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
        blocks = sum((kind.bits + 1) * kind.limbs for kind in self._words.kinds)
        blocks *= self.groups * 2 ** len(self.topic)
        first = f"{self._words.sizes[0]} if the first interval fails"
        return (
            Cost("publisher", "event", Operation.AES_BLOCK, blocks + self.tags, note="about"),
            Cost("subscriber", "interest", Operation.AES_BLOCK, self.keys, note="about"),
            Cost("broker", "pair", Operation.AES_BLOCK, self.keys, note=f"at most; {first}"),
        )

    # -- keys -------------------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
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
        """Return the key data of one party.

        Args:
            master: the master key's data.
            role: the party's role.
            name: the party's name.
            randomness: nothing is drawn from it.
            groups: numbers, from 0 on, of the groups that a publisher's events reach; None for all.
            group: number of a subscriber's group; None for one by a hash of its name.

        Raises:
            ParameterError: there is no such group, or none is named.
        """
        root = master["root"]
        if role == "subscriber":
            group = group_of(name, self.groups) if group is None else self._group("group", group)
            return {part: _derived(root, f"{part} {group}") for part in ("words", "filling")}
        data: dict[str, Any] = {"permutation": _derived(root, "permutation")}
        if role == "publisher":
            chosen: Iterable[int] = range(self.groups)
            if groups is not None:
                given: Iterable[int] = instance("groups", groups, Iterable, hint="such as [0]")
                chosen = sorted({self._group("a group", number) for number in given})
            data["words"] = {str(number): _derived(root, f"words {number}") for number in chosen}
            if not data["words"]:
                raise ParameterError("groups must name at least one group, got none")
        return data

    def check_key_data(self, role: Role, data: Mapping[str, Any]) -> None:
        names = {
            "server": ("root",),
            "publisher": ("permutation", "words"),
            "subscriber": ("words", "filling"),
            "broker": ("permutation",),
        }
        texts = dict(fields("key data", data, names[role]))
        if role == "publisher":
            groups = texts.pop("words")
            numbers = {str(number): number for number in range(self.groups)}
            if not groups or not set(instance("words", groups, dict)) <= set(numbers):
                raise ValueError("other groups")
            texts |= groups
        for text in texts.values():
            hex_bytes(text, ROOT_BYTES if role == "server" else KEY_BYTES)

    def _group(self, name: str, number: int) -> int:
        return whole(name, number, 0, self.groups - 1, hint="TagMatch(..., groups=n) makes n")

    def rotate(
        self, master: Mapping[str, Any], randomness: Randomness
    ) -> tuple[dict[str, Any], None]:
        """Return the next root, derived from this one. Interests must be encoded again."""
        return {"root": _derived(master["root"], "next epoch", ROOT_BYTES)}, None

    # -- events -----------------------------------------------------------------------------

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        step = max(1, _PAIRS // self.tags)
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        nonces = to_blocks(draw.fresh(NONCE_BYTES * events.count))
        out[:, :NONCE_BYTES] = bytes_of(nonces)
        for rows in slices(events.count, step):
            codes = {name: limbs[:, rows] for name, limbs in events.codes.items()}
            tags = [
                self._tags(WordKeys(bytes.fromhex(group)), hashed, codes, nonces[rows], draw.fresh)
                for group in key["words"].values()
            ]
            others = (len(nonces[rows]), self.tags - sum(part.shape[1] for part in tags))
            tags.append(_random(others, draw.fresh))  # Groups that the event does not reach.
            joined = np.concatenate(tags, axis=1)
            joined.sort(axis=1)  # Tags are random: their order does not show their words.
            out[rows, NONCE_BYTES:] = bytes_of(joined)

    def _tags(
        self,
        words: WordKeys,
        hashed: NonceHash,
        codes: Mapping[str, Words],
        nonces: Words,
        randomness: Randomness,
    ) -> Words:
        """Return the tags of events for one group, uint64, shape (events, tags)."""
        columns = []
        for keys, null, missing in self._words.of_events(words, codes, len(nonces)):
            tags = hashed.pairs(keys, nonces[:, None, None])
            if len(null):
                for part in (tags[:, :, places] for places in missing):
                    part[null] = _random((len(null), *part.shape[1:]), randomness)
            columns.append(tags.reshape(len(nonces), -1))
        return np.concatenate(columns, axis=1)

    # -- subscriptions ----------------------------------------------------------------------

    def prepare(self, interest: Any) -> Prepared:
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
        names = [self._words.others[place] for place in self._words.order]
        return used, tuple(topics), tuple(ranges.get(name, (0, 0)) for name in names)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Prepared], draw: Draw, out: Bytes
    ) -> None:
        words, secret = WordKeys(bytes.fromhex(key["words"])), bytes.fromhex(key["filling"])
        distinct = np.zeros((len(interests.values), self.keys, 2), dtype="<u8")
        asked = [(row, each) for row, each in enumerate(interests.values) if each is not None]
        topics = [(used, codes) for _, (used, codes, _) in asked]
        states = self._words.states_of(words, topics)
        for place, start in enumerate([0, *self._edges.tolist()] if asked else []):
            places: dict[Interval, int] = {}  # each interval once: many interests have the same
            index = [
                places.setdefault((topic, ranges[place]), len(places))
                for topic, (_, (_, _, ranges)) in zip(topics, asked, strict=True)
            ]
            keys = self._words.of_intervals(words, states, secret, place, [*places])
            distinct[[row for row, _ in asked], start : start + keys.shape[1]] = keys[index]
        out[:] = bytes_of(distinct)[interests.index]
        never = np.array([prepared is None for prepared in interests.values])
        for row in np.flatnonzero(never[interests.index]):
            # Drawn anew, so that an interest that never matches does not show by its repetition.
            fresh = to_blocks(draw.fresh(KEY_BYTES * self.keys))
            sets = [in_order(part) for part in np.split(fresh, self._edges)]
            out[row] = bytes_of(np.concatenate(sets)).reshape(-1)

    # -- the broker -------------------------------------------------------------------------

    @property
    def _edges(self) -> Index:
        """Places of the first keys of further attributes."""
        return np.cumsum(self._words.sizes)[:-1]

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        if side == "event":
            tags = words_of(bodies[:, NONCE_BYTES:])
            return causes((tags[:, 1:] < tags[:, :-1]).any(axis=1))
        keys = words_of(bodies)[:, ::2]
        falling = keys[:, 1:] < keys[:, :-1]
        falling[:, self._edges - 1] = False
        return causes(falling.any(axis=1))

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> TagTable:
        keys = words_of(bodies).reshape(len(bodies), -1, 2)
        groups = np.split(keys, self._edges, axis=1)
        return TagTable.of([np.ascontiguousarray(group) for group in groups])

    def match(self, key: Mapping[str, Any], events: Bytes, table: TagTable) -> Bools:
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        nonces = to_blocks(events[:, :NONCE_BYTES].tobytes())
        return table.match(hashed, nonces, words_of(events[:, NONCE_BYTES:]))
