"""MaskedTopicMatch: encrypted answers are plaintext answers, covering is equality, bad input is
refused.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Keyword, Schema, Text, UInt
from ccbps.errors import UnsupportedPredicateError
from ccbps.matching import MaskedTopicMatch
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY, plain, roles
from tests.support.strategies import record, rows, schemas, small_types

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16))


@given(
    schema=schemas(small_types(), max_attributes=3)
    | st.builds(
        lambda k, t: Schema(k=k, t=t),
        st.builds(Keyword, st.sampled_from([48, 128]), nullable=st.booleans()),
        st.builds(Text, st.sampled_from([3, 20]), nullable=st.booleans()),
    ),
    data=st.data(),
)
@settings(max_examples=examples(60))
def test_topic_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    publisher, subscriber, broker = roles(MaskedTopicMatch(schema))
    records = [record(row) for row in data.draw(rows(schema))]
    texts = [
        " AND ".join(
            f"{name} IS NULL" if value is None else f"{name} = {literal(value)}"
            for name, value in row.items()
        )
        for row in [*records[:3], *map(record, data.draw(rows(schema, max_size=3)))]
    ]
    events, messages = publisher.encode(records), subscriber.encode(texts)
    matches = broker.match_all(events, messages)
    assert np.array_equal(matches, plain(schema, records, texts))
    count = min(len(events), len(messages))
    pairs = broker.match(events[:count], messages[:count])
    assert pairs.tolist() == matches[:count].diagonal().tolist()
    boxes = [schema.parse(text).box().ranges for text in texts]
    same = [[wide == narrow for narrow in boxes] for wide in boxes]
    assert broker.covers(messages, messages).tolist() == same


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper()


def test_tokens_are_hmac_of_the_codes() -> None:
    matcher = MaskedTopicMatch(SCHEMA)
    server = matcher.key_server()
    key = bytes.fromhex(server.publisher_key().export_secret_data()["key"])
    event = matcher.publisher(server.publisher_key()).encode([{"issue": "IBM", "price": 300}])
    topic = (2).to_bytes(8, "little") + (300).to_bytes(8, "little")
    token = hmac.new(key, topic, hashlib.sha256).digest()[:16]
    assert event[0, BODY].tobytes() == token


@pytest.mark.parametrize("text", ["issue = 'IBM'", "issue = 'IBM' AND price < 7", "FALSE"])
def test_interests_that_name_no_topic_are_refused(text: str) -> None:
    _, subscriber, _ = roles(MaskedTopicMatch(SCHEMA))
    refused(UnsupportedPredicateError, "has one value of", subscriber.encode, text)
