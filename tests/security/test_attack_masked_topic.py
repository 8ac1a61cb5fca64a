"""What a broker gets out of masked topics, by `ccbps.attacks.schemes.masked_topic`.

- Frequencies known from elsewhere give the most frequent topics.
- One known event names all events and subscriptions of its topic.
- With a client's key, trying all topics gives every event and subscription.
"""

from __future__ import annotations

import numpy as np

from ccbps import Category, Schema, UInt
from ccbps.attacks.schemes.masked_topic import name_by_event, try_topics
from ccbps.attacks.schemes.views import name_by_frequency, watch
from ccbps.matching import MaskedTopicMatch


def test_frequent_topics_are_recognized() -> None:
    names = [f"t{number:03}" for number in range(300)]
    weights = 1 / np.arange(1, 301)
    chosen = np.random.default_rng(9).choice(300, 20_000, p=weights / weights.sum())
    matcher = MaskedTopicMatch(Schema(topic=Category(names)))
    records = {"topic": [names[i] for i in chosen]}
    tokens = [row.tobytes() for row in watch(matcher, records, []).events]
    ranked = name_by_frequency(tokens, range(8))
    right = [ranked.get(token) == topic for token, topic in zip(tokens, chosen, strict=True)]
    assert np.mean(right) > 0.4  # 8 of 300 topics, and nearly half of the events


def test_one_known_event_names_all_of_its_topic() -> None:
    names = [f"t{number}" for number in range(6)]
    chosen = np.random.default_rng(13).integers(0, 6, 200)
    matcher = MaskedTopicMatch(Schema(topic=Category(names)))
    records = {"topic": [names[i] for i in chosen]}
    texts = [f"topic = '{name}'" for name in names]
    view = watch(matcher, records, texts)
    same = name_by_event(np.concatenate([view.events, view.interests]), view.events[0])
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
    view = watch(matcher, records, text, server)
    every = [{"issue": i, "price": p} for i in ("AAPL", "GOOG", "IBM") for p in range(256)]
    client = matcher.publisher(server.publisher_key("mallory"))
    again = schema.encode(try_topics(client, every, view.events))
    for name in schema:
        np.testing.assert_array_equal(again.codes[name], records.codes[name])
    assert try_topics(client, every, view.interests) == [{"issue": "GOOG", "price": 77}]
