"""ObliviousTopicMatch: what is left to attack, and that what should be noise is noise.

- Guessing: a subscriber whose requests are all answered learns the topic of every event.
- Everybody else's messages: slots of a topic that repeats do not repeat, and their bits are even.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from ccbps import Category, Schema
from ccbps.matching import ObliviousTopicMatch

NAMES = [f"topic {number}" for number in range(12)]
MATCHER = ObliviousTopicMatch(Schema(topic=Category(NAMES)), group="toy64")
TEXTS = [f"topic = '{name}'" for name in NAMES]


def test_a_subscriber_with_a_request_for_every_topic_reads_all_topics() -> None:
    order = np.random.default_rng(3).integers(0, 5, 50)
    publisher = MATCHER.publisher(TEXTS[:5])
    greedy = MATCHER.subscriber()
    greedy.accept(publisher.answer(greedy.encode(TEXTS)))
    opened = greedy.open(publisher.encode([{"topic": NAMES[place]} for place in order]))
    assert opened.matched.argmax(axis=1).tolist() == order.tolist()
    assert (opened.matched.sum(axis=1) == 1).all()
    # With three requests answered it reads three topics and cannot tell the others apart.
    modest = MATCHER.subscriber()
    modest.accept(publisher.answer(modest.encode(TEXTS[:3])))
    opened = modest.open(publisher.encode([{"topic": NAMES[place]} for place in order]))
    assert (opened.matched.any(axis=1) == (order < 3)).all()


def test_slots_of_one_topic_for_ever_are_noise() -> None:
    publisher = MATCHER.publisher(TEXTS[:2])
    subscribers = [MATCHER.subscriber() for _ in range(2)]
    publisher.answer(np.vstack([subscriber.encode(TEXTS[0]) for subscriber in subscribers]))
    events = publisher.encode([{"topic": NAMES[0]}] * 3000)
    slots = events[:, MATCHER.event_bytes(0) :].reshape(-1, 16)
    assert len({slot.tobytes() for slot in slots}) == 6000
    bits = np.unpackbits(slots, axis=1)
    ones = bits.sum(axis=0)
    chi = ((ones - 3000) ** 2 / 1500).sum()
    assert stats.chi2.sf(chi, 128) > 1e-6
    # Two subscribers of one topic, as the broker sees them: unrelated.
    pairs = slots.reshape(-1, 2, 16)
    same = np.unpackbits(pairs[:, 0] ^ pairs[:, 1]).mean()
    assert abs(same - 0.5) < 5 * 0.5 / np.sqrt(3000 * 128)


def test_topics_do_not_show_in_sessions_and_events_of_different_topics_look_alike() -> None:
    publisher = MATCHER.publisher(TEXTS[:2])
    subscriber = MATCHER.subscriber()
    requests = subscriber.encode([TEXTS[0], TEXTS[0], TEXTS[1]])
    sessions = publisher.answer(requests)
    assert len({row.tobytes() for row in requests[:, 16:]}) == 3
    parts = sessions[:, MATCHER.session_bytes(0) :].reshape(-1, 8)
    assert len({part.tobytes() for part in parts}) == len(parts)
    events = publisher.encode([{"topic": NAMES[0]}, {"topic": NAMES[1]}])
    # Header and width are the same; the number counts; the rest is slots.
    assert np.array_equal(events[0, :16], events[1, :16])
