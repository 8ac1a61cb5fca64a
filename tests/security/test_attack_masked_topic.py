"""What a broker gets out of masked topics. It has no key.

- Frequencies known from elsewhere give the most frequent topics.
- One known event names all events and subscriptions of its topic.
- With a client's key, trying all topics gives every event and subscription.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ccbps import Category, Schema, UInt
from ccbps.matching import MaskedTopicMatch
from tests.support.reusable_checks import BODY, sent


def test_frequent_topics_are_recognized() -> None:
    names = [f"t{number:03}" for number in range(300)]
    weights = 1 / np.arange(1, 301)
    chosen = np.random.default_rng(9).choice(300, 20_000, p=weights / weights.sum())
    matcher = MaskedTopicMatch(Schema(topic=Category(names)))
    records = {"topic": [names[i] for i in chosen]}
    events, _ = sent(matcher, records, [])
    tokens = [row.tobytes() for row in events[:, BODY]]
    ranked = {token: rank for rank, (token, _) in enumerate(Counter(tokens).most_common(8))}
    right = [ranked.get(token) == topic for token, topic in zip(tokens, chosen, strict=True)]
    assert np.mean(right) > 0.4  # 8 of 300 topics, and nearly half of the events


def test_one_known_event_names_all_of_its_topic() -> None:
    names = [f"t{number}" for number in range(6)]
    chosen = np.random.default_rng(13).integers(0, 6, 200)
    matcher = MaskedTopicMatch(Schema(topic=Category(names)))
    records = {"topic": [names[i] for i in chosen]}
    texts = [f"topic = '{name}'" for name in names]
    events, interests = sent(matcher, records, texts)
    tokens = np.concatenate([events, interests])[:, BODY]
    same = (tokens == tokens[0]).all(axis=1)
    assert np.array_equal(same, np.append(chosen, np.arange(6)) == chosen[0])


def test_a_client_s_key_reads_all_topics() -> None:
    schema = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(8))
    matcher = MaskedTopicMatch(schema)
    server = matcher.key_server()
    rng = np.random.default_rng(10)
    records = schema.encode(
        {
            "issue": [["AAPL", "GOOG", "IBM"][i] for i in rng.integers(0, 3, 400)],
            "price": rng.integers(0, 256, 400),
        }
    )
    text = "issue = 'GOOG' AND price = 77"
    events, interests = sent(matcher, records, text, server)
    every = [{"issue": i, "price": p} for i in ("AAPL", "GOOG", "IBM") for p in range(256)]
    tried = matcher.publisher(server.publisher_key("mallory")).encode(every)[:, BODY]
    book = {row.tobytes(): topic for row, topic in zip(tried, every, strict=True)}
    recovered = [book[row.tobytes()] for row in events[:, BODY]]
    again = schema.encode(recovered)
    for name in schema:
        np.testing.assert_array_equal(again.codes[name], records.codes[name])
    assert book[interests[0, BODY].tobytes()] == {"issue": "GOOG", "price": 77}
