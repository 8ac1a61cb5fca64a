"""MaskedTopicMatch: topics hashed with a group's key, the cheapest matcher of equalities.

A topic is sent as H(topic XOR k) with a group key k; the broker compares.

Hazard: the broker sees which topics are equal, and how often each occurs.
Source: [Survey] section 4.1 on Chen et al.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.dictionary import DictionaryColumn
from ccbps.forms.topic import topic_codes, topic_of
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import ServerScheme, TableScheme
from ccbps.predicates import Events, Schema

TOKEN_BYTES: Final = 16


class MaskedTopicMatch(Matcher, ServerScheme, TableScheme):
    """H(topic XOR k): equality of all attributes together. Shows which topics are equal.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import MaskedTopicMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = MaskedTopicMatch(schema)
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["issue = 'IBM' AND price = 119"])
        >>> broker.match_all(events, interests)
        array([[ True],
               [False]])
    """

    name = "masked topic"
    operators = ("=", "and")
    covering = True

    def __init__(self, schema: Schema) -> None:
        """
        Args:
            schema: a subscription names one value for every attribute: the topic.
        """
        self._set_up(schema, Sizes(TOKEN_BYTES, TOKEN_BYTES))

    def parameters(self) -> dict[str, Any]:
        """None beyond the schema."""
        return {}

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="MaskedTopicMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "topics of which no event or subscription is known, from anyone who neither has "
                "the group key nor knows how often topics occur",
            ),
            protects=frozenset(),
            learns=("every match", "which events and subscriptions have the same topic"),
            security="computational",
            assumption="HMAC-SHA256 is a pseudorandom function",
            reuse="reusable",
            hazards=(
                "a client colludes with the broker: with the group key it can try all topics",
            ),
            attacks=(
                "frequency: the most frequent token is the most frequent topic",
                "known plaintext: one known event names all events and subscriptions of its topic",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        note = "once for each distinct topic"
        return (
            Cost("publisher", "event", Operation.HASH_BLOCK, 2, note=note),
            Cost("subscriber", "interest", Operation.HASH_BLOCK, 2, note=note),
            Cost("broker", "pair", Operation.COMPARISON, 1, of="128 bits"),
        )

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """See `ServerScheme.generate`."""
        return {"key": randomness(32).hex()}

    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
    ) -> dict[str, Any]:
        """See `ServerScheme.issue`."""
        return {} if role == "broker" else {"key": master["key"]}

    def prepare(self, interest: Any) -> Words:
        """Codes of the topic, uint64 (limbs,)."""
        return topic_of(bound_predicate(self.schema, interest), self.schema.names)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        # Topics repeat: each distinct one is hashed once.
        codes = topic_codes(events, self.schema.names)
        distinct, index = np.unique(codes, axis=0, return_inverse=True)
        out[:] = _tokens(key, distinct)[index.reshape(-1)]

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        """See `Scheme.encode_interests`."""
        out[:] = _tokens(key, np.stack(interests.values))[interests.index]

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Words:
        """Tokens, uint64 (interests, 2)."""
        return _halves(bodies)

    def match(self, key: Mapping[str, Any], events: Bytes, table: Words) -> Bools:
        """See `TableScheme.match`."""
        tokens = _halves(events)
        out: Bools = tokens[:, :1] == table[:, 0]
        out &= tokens[:, 1:] == table[:, 1]
        return out

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        """See `TableScheme.match_rows`."""
        return np.asarray((_halves(events) == _halves(interests)).all(axis=1))

    def covers(self, key: Mapping[str, Any], wide: Words, narrow: Words) -> Bools:
        """See `TableScheme.covers`."""
        return np.asarray((wide[:, None] == narrow).all(axis=2))


def _tokens(key: Mapping[str, Any], topics: Words) -> Bytes:
    """A token for each row of codes. HMAC stands for H(topic XOR k): the same leakage, without
    what XOR gives away about related topics."""
    base = HMAC(bytes.fromhex(key["key"]), SHA256())
    tokens = np.empty((len(topics), TOKEN_BYTES), dtype=np.uint8)
    for row, topic in enumerate(topics.astype("<u8")):
        context = base.copy()
        context.update(topic.tobytes())
        tokens[row] = np.frombuffer(context.finalize()[:TOKEN_BYTES], dtype=np.uint8)
    return tokens


def _halves(bodies: Bytes) -> Words:
    return np.ascontiguousarray(bodies).view("<u8")
