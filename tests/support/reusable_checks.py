"""What is asked of every reusable matcher: its roles, and answers against the plaintext."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import strategies as st

from ccbps.arrays import Bytes
from ccbps.errors import UnsupportedPredicateError
from ccbps.matching import Broker, KeyServer, Matcher, Publisher, Subscriber
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.strategies import predicates, record, rows

BODY: Final = slice(KEY_HEADER_BYTES, -MAC_BYTES)
"""Where a scheme's own bytes are, in a message made with a key."""


def sealed(role: Publisher | Subscriber | Broker, messages: Bytes) -> Bytes:
    """Altered messages, of one side, with the MACs that somebody with the role's key can give
    them: a broker can, for both sides."""
    access: Any = role._access
    access.authenticate(messages)
    return messages


def secrets_of(key: Any) -> dict[str, Any]:
    """The scheme's own part of a key."""
    return {name: value for name, value in key.export_secret_data().items() if name != "macs"}


def roles(
    matcher: Matcher, server: KeyServer | None = None
) -> tuple[Publisher, Subscriber, Broker]:
    """The three roles under the keys of one server."""
    server = matcher.key_server() if server is None else server
    return (
        matcher.publisher(server.publisher_key()),
        matcher.subscriber(server.subscriber_key("alice")),
        matcher.broker(server.broker_key()),
    )


def check_answers(matcher: Matcher, data: st.DataObject) -> None:
    """Random events and boxes: answers are the plaintext meaning; what is no box is refused."""
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
    found = broker.match_all(publisher.encode(records), subscriber.encode(interests))
    assert found.shape == (len(records), len(interests))
    for column, predicate in zip(found.T, interests, strict=True):
        assert column.tolist() == predicate.evaluate(records).tolist()


def check_covering(matcher: Matcher, data: st.DataObject) -> None:
    """Random boxes: one interest covers another where its box contains the other's."""
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
