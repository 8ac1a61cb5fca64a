"""What is asked of every reusable matcher: its roles, and answers against the plaintext."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import strategies as st

from ccbps import Schema
from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.errors import UnsupportedPredicateError
from ccbps.matching import Broker, KeyServer, Matcher, Publisher, Subscriber
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.predicates import Predicate
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.strategies import Drawn, Node, leaves, predicates, record, rows

BODY: Final = slice(KEY_HEADER_BYTES, -MAC_BYTES)
"""Where a scheme's own bytes are, in a message made with a key."""


def sealed(role: Publisher | Subscriber | Broker, messages: Bytes) -> Bytes:
    """Give altered messages of one side the MACs that the role's key makes.

    A broker's key makes those of both sides.
    """
    access: Any = role._access
    access.authenticate(messages)
    return messages


def secrets_of(key: Any) -> dict[str, Any]:
    """Return the scheme's own part of a key."""
    return {name: value for name, value in key.export_secret_data().items() if name != "macs"}


def roles(
    matcher: Matcher, server: KeyServer | None = None, randomness: Randomness = os.urandom
) -> tuple[Publisher, Subscriber, Broker]:
    """Make the three roles under the keys of one server."""
    server = matcher.key_server(randomness=randomness) if server is None else server
    return (
        matcher.publisher(server.publisher_key(), randomness=randomness),
        matcher.subscriber(server.subscriber_key("alice"), randomness=randomness),
        matcher.broker(server.broker_key()),
    )


def users(matcher: Matcher, *names: str) -> tuple[Any, ...]:
    """Make a server, a broker that knows all users, a publisher, and subscribers of these names."""
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    subscribers = [matcher.subscriber(server.subscriber_key(name)) for name in names or ("alice",)]
    return server, matcher.broker(server.broker_key()), publisher, *subscribers


def sent(
    matcher: Matcher,
    records: Any,
    interests: Any,
    server: KeyServer | None = None,
    randomness: Randomness = os.urandom,
) -> tuple[Bytes, Bytes]:
    """Return all that a broker sees: messages of events and of interests."""
    publisher, subscriber, _ = roles(matcher, server, randomness)
    return publisher.encode(records), subscriber.encode(interests)


def answers(matcher: Matcher, records: Any, interests: Any) -> Bools:
    """Return the broker's answers for all pairs."""
    publisher, subscriber, broker = roles(matcher)
    return broker.match_all(publisher.encode(records), subscriber.encode(interests))


def plain(schema: Schema, records: Any, interests: Sequence[str | Predicate]) -> Bools:
    """Return the answers in plaintext, shape (events, interests)."""
    events = schema.encode(records)
    parsed = [
        schema.parse(predicate) if isinstance(predicate, str) else predicate
        for predicate in interests
    ]
    columns = [predicate.evaluate(events) for predicate in parsed]
    return np.array(columns, dtype=np.bool_).reshape(len(columns), events.count).T


@st.composite
def conjunctions(draw: st.DrawFn, schema: Schema) -> Predicate:
    """Draw AND of one to three conditions on one attribute each; most are boxes."""
    parts = draw(st.lists(leaves(schema, hamming=False, null=False), min_size=1, max_size=3))
    node = parts[0] if len(parts) == 1 else Node("and", parts=tuple(parts))
    return schema.parse(Drawn(schema, node).text)


def check_answers(matcher: Matcher, data: st.DataObject) -> None:
    """Check on random events that answers are the plaintext meaning, and what is no box refused."""
    schema = matcher.schema
    publisher, subscriber, broker = roles(matcher)
    records = [record(row) for row in data.draw(rows(schema))]
    interests = []
    for drawn in data.draw(st.lists(predicates(schema), min_size=1, max_size=4)):
        predicate = schema.parse(drawn.text).bind(**drawn.private)
        try:
            predicate.box()
        except UnsupportedPredicateError:
            with pytest.raises(UnsupportedPredicateError):
                subscriber.encode(predicate)
            continue
        interests.append(predicate)
    matches = broker.match_all(publisher.encode(records), subscriber.encode(interests))
    assert matches.shape == (len(records), len(interests))
    assert matches.T.tolist() == [predicate.evaluate(records).tolist() for predicate in interests]


def check_covering(matcher: Matcher, data: st.DataObject) -> None:
    """Check on random boxes that one interest covers another where its box contains the other's."""
    schema = matcher.schema
    _, subscriber, broker = roles(matcher)
    boxes, texts = [], []
    for drawn in data.draw(st.lists(predicates(schema, private=False), min_size=2, max_size=6)):
        try:
            boxes.append(schema.parse(drawn.text).box().ranges)
        except UnsupportedPredicateError:
            continue
        texts.append(drawn.text)
    messages = subscriber.encode(texts)
    covers = broker.covers(messages, messages)
    for i, wide in enumerate(boxes):
        for j, narrow in enumerate(boxes):
            expected = any(low > high for low, high in narrow.values()) or all(
                wide[name][0] <= narrow[name][0] and narrow[name][1] <= wide[name][1]
                for name in schema
            )
            assert covers[i, j] == expected
