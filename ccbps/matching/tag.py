"""TagMatch: boxes over prefixes, every prefix of an event a fresh pseudorandom tag.

An event is a nonce N and, for each attribute and each length, the tag F(F(k, prefix), N) of the
prefix of that length: 64 bits each, sorted. An interval is the disjoint union of at most
2 (bits - 1) prefixes; a subscription is F(k, prefix) for each, filled up with random keys to that
number. The broker computes F(y, N) for the keys y of a subscription and looks for them among the
event's tags; an event matches if every attribute has one.

*Topic* attributes are compared as a whole (= or anything) and are joined into every prefix:
"issue = IBM and price begins with 0110" is one word. Where the topic differs, nothing can be
learned about the other attributes.

What a broker sees can be computed from what it learns (`leakage`) and nothing else: tags that no
key fits are random numbers, new in every event. Equal events look unrelated; an event that no
interval of any subscription touches shows nothing.

Hazard: keys of subscriptions are deterministic, so equal subscriptions are seen to be equal, and
counted over many events hits give constants away to whoever knows how often values occur. Any
client has the key. Tags may agree by chance: see `TagMatch.false_positive_rate`, 2^-52 for 36 bits.
Source: the nonces of [RR06] and [Goh03]; intervals as prefixes and their tokens: see [DPPDG16]. Own
combination.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, WordKeys, to_blocks
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import Cost
from ccbps.matching.reusable import ReusableMatcher
from ccbps.matching.reusable_roles import Randomness
from ccbps.matching.role_keys import Role
from ccbps.matching.tag_lookup import TagTable
from ccbps.predicates import Schema
from ccbps.predicates.codes import pack
from ccbps.predicates.prefixes import Prefix, most_prefixes, range_prefixes
from ccbps.predicates.schema import Events
from ccbps.predicates.types import EMPTY
from ccbps.wire import Cause

__all__ = ["TagMatch"]

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

NONCE_BYTES: Final = 16
TAG_BYTES: Final = 8
MAX_TAGS: Final = 1 << 14
_PAIRS: Final = 1 << 14
_TOPIC: Final = np.uint64(1 << 63)

Prepared = tuple[bytes, int, tuple[int, ...], tuple[tuple[Prefix, ...], ...]]
"""(ranges as text, topics in use as bits, their codes, prefixes of each other attribute)."""


def _prefix_masks(bits: int, limbs: int) -> tuple[Words, Words]:
    """Lengths 0 .. bits, and what each leaves of a code: (bits + 1,) and (limbs, bits + 1)."""
    full = (1 << bits) - 1
    kept = [full >> (bits - length) << (bits - length) for length in range(bits + 1)]
    return np.arange(bits + 1, dtype=np.uint64), pack(kept, limbs)


class TagMatch(ReusableMatcher):
    """Conjunctions of intervals; the broker learns which hold, in matching topics only."""

    scheme = "tags"
    operators = ("=", "<", "interval", "prefix", "and")
    covering = False

    def __init__(self, schema: Schema, *, topic: Sequence[str] = ()) -> None:
        """
        Args:
            schema: any attributes. Every bit of an attribute costs a tag in each event.
            topic: attributes that subscriptions compare with = or leave open. Each doubles the
                tags of an event.

        Raises:
            ParameterError: an unknown attribute, or events would have more than 2^14 tags.
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
        levels = [schema[name].bits + 1 for name in self._others] or [1]
        self.tags = 2 ** min(len(self.topic), 20) * sum(levels)
        if self.tags > MAX_TAGS:
            raise ParameterError(
                f"an event must have at most {MAX_TAGS} tags, got {self.tags}: narrow the "
                "attributes or name fewer topics"
            )
        # Groups of keys, one an attribute; the narrow ones first, as most pairs end there.
        sizes = [most_prefixes(schema[name].bits) for name in self._others] or [1]
        self._order = sorted(range(len(sizes)), key=lambda at: (sizes[at], at))
        self._sizes = [sizes[at] for at in self._order]
        self.keys = sum(sizes)
        self._set_up(
            schema,
            NONCE_BYTES + TAG_BYTES * self.tags,
            KEY_BYTES * self.keys,
            {"topic": list(self.topic)},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TagMatch, topic=self.topic), (self.schema,)

    @property
    def false_positive_rate(self) -> float:
        """Chance, at most, that a pair which does not match seems to: keys * tags / 2^64."""
        return float(self.keys * self.tags) / 2**64

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="TagMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "events, as far as no subscription's interval holds: equal ones look unrelated, "
                "order and differences do not show",
                "on which side of an interval a value lies that is not in it, and how far, unless "
                "other intervals show it",
                "results of single intervals where a topic that is asked for differs",
            ),
            learns=(
                "for each pair, which of the subscription's intervals hold, in its topic",
                "for an interval that holds, which of its prefixes does: events in one such part "
                "of a subscription's interval are seen to be so",
                "over many events, how many prefixes an interval takes and how often each is "
                "found; so, where the values' distribution is known, the constants",
                "which subscriptions are equal, and which share a prefix in one topic; so, likely, "
                "which leave an attribute open: the empty prefix is shared most and always holds",
                "public parameters: the schema, the topics' names",
            ),
            security="computational",
            assumption="AES-128 as a pseudorandom function and as a random public permutation",
            reuse="reusable",
            hazards=(
                "any client has the key: with the broker it can read everything",
                "two events with one nonce show their common prefixes",
            ),
            attacks=(
                "frequency: of uniform values one in 2^n has a prefix of n bits, so counted hits "
                "give the lengths of an interval's prefixes, and these its width: c, of x < c",
                "frequency: how often a prefix is found is how often it occurs; subscriptions to "
                "all values of an attribute together sort its events by value",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        blocks = sum(
            2 ** len(self.topic) * (self._bits(at) + 1) * self._limbs(at) for at in self._order
        )
        return (
            Cost("publisher", "event", "AES block, about", float(blocks + self.tags)),
            Cost("subscriber", "interest", "AES block, about", float(self.keys)),
            Cost("broker", "pair", "AES block, at most", float(self.keys)),
            Cost("broker", "pair", "AES block, if the first interval fails", self._sizes[0]),
        )

    def _bits(self, at: int) -> int:
        return self.schema[self._others[at]].bits if self._others else 0

    def _limbs(self, at: int) -> int:
        return self.schema[self._others[at]].limbs if self._others else 1

    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        return {name: randomness(KEY_BYTES).hex() for name in ("words", "filling", "permutation")}

    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        return {"permutation": master["permutation"]} if role == "broker" else dict(master)

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

    def _prefixes(
        self, words: WordKeys, states: Words, at: int, lengths: Words, codes: Words
    ) -> Words:
        """Keys of words, (..., 2): states (..., 2), lengths (...), codes (limbs, ...)."""
        for place, limb in enumerate(codes):
            head = np.uint64((at + 1) << 32 | place) | lengths << np.uint64(16)
            blocks = np.stack(np.broadcast_arrays(limb, head), axis=-1)
            states = words.extend(states, blocks)
        return states

    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        step = max(1, _PAIRS // self.tags)
        nonces = to_blocks(randomness(NONCE_BYTES * events.count))
        out[:, :NONCE_BYTES] = nonces.view(np.uint8).reshape(events.count, -1)
        for start in range(0, events.count, step):
            at = slice(start, start + step)
            codes = {name: limbs[:, at] for name, limbs in events.codes.items()}
            tags = self._tags(key, codes, nonces[at])
            tags.sort(axis=1)  # tags are random: sorted, they do not show what they stand for
            out[at, NONCE_BYTES:] = tags.astype("<u8", copy=False).view(np.uint8)

    def _tags(self, key: Mapping[str, Any], codes: Mapping[str, Words], nonces: Words) -> Words:
        """Tags of events, uint64, shape (events, tags)."""
        words = WordKeys(bytes.fromhex(key["words"]))
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
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
            lengths, masks = _prefix_masks(self._bits(at), len(limbs))
            cut = limbs[:, :, None, None] & masks[:, None, None]
            keys = self._prefixes(words, topics, at, lengths, cut)
            found.append(hashed.pairs(keys, nonces[:, None, None]).reshape(count, -1))
        return np.concatenate(found, axis=1)

    # -- subscriptions ----------------------------------------------------------------------

    def _prepare(self, interest: Any) -> Prepared:
        predicate = self._predicate(interest)
        ranges = predicate.box().ranges
        text = json.dumps([list(map(str, bounds)) for bounds in ranges.values()]).encode()
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
        covers: list[tuple[Prefix, ...]] = []
        for at in self._order:
            if not self._others:
                covers.append(((0, 0),))
                continue
            kind = self.schema[self._others[at]]
            low, high = ranges[self._others[at]]
            if high == kind.size - 1:
                high = (1 << kind.bits) - 1  # codes there are none of: one prefix instead of many
            covers.append(tuple(range_prefixes(low, high, kind.bits)))
        if EMPTY in ranges.values():
            covers = [() for _ in covers]
            used, topics = 0, []
        return text, used, tuple(topics), tuple(covers)

    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[Prepared],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        words, secret = WordKeys(bytes.fromhex(key["words"])), bytes.fromhex(key["filling"])
        counter = np.zeros((self.keys, 2), dtype=np.uint64)
        counter[:, 0] = np.arange(self.keys)
        for row, prepared in enumerate(interests):
            text, used, topics, covers = prepared
            # What fills up depends on the predicate alone: equal ones do not show what is filling.
            filling = WordKeys(hmac.digest(secret, text, "sha256")[:KEY_BYTES])
            keys = filling.extend(np.zeros(2, dtype=np.uint64), counter)
            names = [name for place, name in enumerate(self.topic) if used >> place & 1]
            codes = [
                pack([code], self.schema[name].limbs)
                for code, name in zip(topics, names, strict=True)
            ]
            state, start = self._topics(words, used, codes), 0
            for at, size, cover in zip(self._order, self._sizes, covers, strict=True):
                if cover:
                    lengths = np.array([length for _, length in cover], dtype=np.uint64)
                    least = pack([code for code, _ in cover], self._limbs(at))
                    keys[start : start + len(cover)] = self._prefixes(
                        words, state, at, lengths, least
                    )
                group = keys[start : start + size]
                group[:] = group[np.argsort(group[:, 0], kind="stable")]
                start += size
            out[row] = keys.astype("<u8", copy=False).view(np.uint8).reshape(-1)

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
