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
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.bodies import Sizes
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.reusable import words_of
from ccbps.matching.words.topic_matcher import TopicMatcher
from ccbps.predicates import Schema

TOKEN_BYTES: Final = 16


class MaskedTopicMatch(TopicMatcher):
    """H(topic XOR k): equality of all attributes together. Shows which topics are equal.

    Args:
        schema: the attributes of the topic. A subscription names one value for every attribute.

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

    def __init__(self, schema: Schema) -> None:
        self.attributes = schema.names
        self._set_up(schema, Sizes(TOKEN_BYTES, TOKEN_BYTES))

    @property
    def leakage(self) -> LeakageCard:
        return self._card(
            hides=(
                "topics of which no event or subscription is known, from anyone who neither has "
                "the group key nor knows how often topics occur",
            ),
            learns=("every match", "which events and subscriptions have the same topic"),
            security="computational",
            assumption="HMAC-SHA256 is a pseudorandom function",
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
        note = "once for each distinct topic"
        return (
            Cost("publisher", "event", Operation.HASH_BLOCK, 2, note=note),
            Cost("subscriber", "interest", Operation.HASH_BLOCK, 2, note=note),
            Cost("broker", "pair", Operation.COMPARISON, 1, of="128 bits"),
        )

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        return {"key": randomness(32).hex()}

    def _bodies(self, key: Mapping[str, Any], topics: Words) -> Bytes:
        # HMAC stands for H(topic XOR k). It leaks the same, and XOR shows related topics, too.
        base = HMAC(bytes.fromhex(key["key"]), SHA256())
        tokens = np.empty((len(topics), TOKEN_BYTES), dtype=np.uint8)
        for row, topic in enumerate(topics.astype("<u8")):
            context = base.copy()
            context.update(topic.tobytes())
            tokens[row] = np.frombuffer(context.finalize()[:TOKEN_BYTES], dtype=np.uint8)
        return tokens

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Words:
        return words_of(bodies)

    def match(self, key: Mapping[str, Any], events: Bytes, table: Words) -> Bools:
        tokens = words_of(events)
        out: Bools = tokens[:, :1] == table[:, 0]
        out &= tokens[:, 1:] == table[:, 1]
        return out

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        return np.asarray((words_of(events) == words_of(interests)).all(axis=1))

    def covers(self, key: Mapping[str, Any], wide: Words, narrow: Words) -> Bools:
        return np.asarray((wide[:, None] == narrow).all(axis=2))
