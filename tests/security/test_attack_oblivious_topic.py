"""ObliviousTopicMatch: what is left to attack, and that what should be noise is noise.

The adversaries are those of `ccbps.attacks.schemes.oblivious_topic`.

- The man in the middle: a relay that puts its own elements into a subscriber's request, and one
  that answers in a publisher's place. Both are refused; where nobody looks at signatures, the same
  messages give the relay the payload, and take it from the subscriber.
- Guessing: a subscriber whose requests are all answered learns the topic of every event.
- Everybody else's messages: slots of a topic that repeats do not repeat, and their bits are even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from ccbps import Category, Schema
from ccbps.attacks.schemes.oblivious_topic import Relay, open_session
from ccbps.ciphers.signatures import SIGNATURE_BYTES
from ccbps.errors import DecodeError
from ccbps.matching import ObliviousTopicMatch
from ccbps.matching.session.layout import OPENED, SIGNED
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.refusals import refused
from tests.support.topic_strategies import acquainted, introduce, sign

NAMES = [f"topic {number}" for number in range(12)]
MATCHER = ObliviousTopicMatch(Schema(topic=Category(NAMES)), group="toy64")
TEXTS = [f"topic = '{name}'" for name in NAMES]


PAYING = ObliviousTopicMatch(MATCHER.schema, payload_bytes=16, group="toy64")
RECORDS, PAYLOADS = [{"topic": NAMES[0]}], [b"for alice alone"]
ROLES = "ccbps.matching.session.roles."


class Meeting:
    """Alice and a publisher, with a relay between them."""

    def __init__(self) -> None:
        self.publisher, self.alice = PAYING.new_publisher(TEXTS[:3]), PAYING.new_subscriber()
        introduce(self.publisher, self.alice)
        self.request = self.alice.encode(TEXTS[0])
        self.relay = Relay(PAYING, TEXTS[0])

    def forged(self) -> Any:
        """Alice's request with the relay's elements in it."""
        return self.relay.forge(self.request)

    def reads(self, forged: Any, session: Any, event: Any) -> bytes | None:
        """The payload that the event has for whoever made the forged request."""
        return self.relay.read(forged, session, event, self.publisher.identity, 3)


def test_a_relay_cannot_ask_under_a_subscribers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting()
    mallory, modest = PAYING.new_subscriber(), PAYING.new_subscriber()
    meeting.publisher.admit(modest.identity, 0)
    before = meeting.publisher.key
    attempts = {"signed by alice, for what it said": (meeting.forged(), "not signed")}
    for role, cause in ((mallory, "was not admitted"), (modest, "beyond the number")):
        forgery = meeting.forged()
        sign(role, forgery[0])
        attempts[f"in alice's name by {cause}"] = forgery, "not signed"
        renamed = forgery.copy()
        renamed[:, KEY_HEADER_BYTES:SIGNED] = role.encode(TEXTS[0])[:, KEY_HEADER_BYTES:SIGNED]
        sign(role, renamed[0])
        attempts[f"in its own name, {cause}"] = renamed, cause
    for attempt, (forged, cause) in attempts.items():
        refused(DecodeError, cause, meeting.publisher.answer, forged)
        assert meeting.publisher.key == before, attempt
    session = meeting.publisher.answer(meeting.request)
    assert meeting.alice.accept(session) == 1
    event = meeting.publisher.encode(RECORDS, payloads=PAYLOADS)
    assert meeting.alice.open(event).payloads == PAYLOADS
    assert meeting.reads(meeting.forged(), session, event) is None
    # A publisher that does not look: the same bytes bring the relay the payload.
    meeting = Meeting()
    forged = meeting.forged()
    monkeypatch.setattr(ROLES + "signed_by", lambda *_: True)
    session = meeting.publisher.answer(forged)
    event = meeting.publisher.encode(RECORDS, payloads=PAYLOADS)
    assert meeting.reads(forged, session, event) == PAYLOADS[0]


def test_a_strangers_session_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting()
    stranger = PAYING.new_publisher(TEXTS[:3])
    stranger.admit(meeting.alice.identity)
    good, forgery = meeting.publisher.answer(meeting.request), stranger.answer(meeting.request)
    event = meeting.publisher.encode(RECORDS, payloads=PAYLOADS)
    digest = PAYING._layout.digest(meeting.request[0])
    named, mixed = forgery.copy(), good.copy()
    named[:, KEY_HEADER_BYTES:SIGNED] = good[:, KEY_HEADER_BYTES:SIGNED]
    sign(stranger, named[0], digest)
    mixed[:, OPENED:-SIGNATURE_BYTES] = forgery[:, OPENED:-SIGNATURE_BYTES]
    start = meeting.alice.key
    for first in (True, False):  # The stranger's arrives before the good one, or after it.
        alice = PAYING.subscriber(start)
        if not first:
            alice.accept(good)
        before = alice.key
        for session, cause in ((forgery, "not trusted"), (named, "not sig"), (mixed, "not signed")):
            for batch in (session, np.vstack([good, session]), np.vstack([session, good])):
                refused(DecodeError, f"a session .*{cause}", alice.accept, batch)
                assert alice.key == before
        assert alice.accept(good) == 1
        assert alice.open(event).payloads == PAYLOADS
    # A subscriber that does not look takes the stranger's, and the event is lost on it.
    alice = PAYING.subscriber(start)
    monkeypatch.setattr(ROLES + "signed_by", lambda *_: True)
    assert alice.accept(named) == 1
    assert alice.open(event).payloads == [None]


def test_messages_that_are_replayed_change_nothing() -> None:
    meeting = Meeting()
    publisher, alice = meeting.publisher, meeting.alice
    old = publisher.answer(meeting.request)
    alice.accept(old)
    newer = alice.encode(TEXTS[1])
    alice.accept(publisher.answer(newer))
    keys, width = (publisher.key, alice.key), publisher.encode(RECORDS, payloads=PAYLOADS).shape[1]
    for request in (meeting.request, newer, np.vstack([newer, meeting.request, newer])):
        alice.accept(publisher.answer(request))
    alice.accept(old)
    assert alice.key == keys[1]
    assert publisher.key.export_secret_data()["keys"] == keys[0].export_secret_data()["keys"]
    both = [*RECORDS, {"topic": NAMES[1]}]
    events = publisher.encode(both, payloads=[*PAYLOADS, b"second"])
    assert events.shape[1] == width
    assert alice.open(events).payloads == [*PAYLOADS, b"second"]


def test_a_subscriber_with_a_request_for_every_topic_reads_all_topics() -> None:
    order = np.random.default_rng(3).integers(0, 5, 50)
    publisher, greedy = open_session(MATCHER, TEXTS[:5], TEXTS)
    opened = greedy.open(publisher.encode([{"topic": NAMES[place]} for place in order]))
    assert opened.matched.argmax(axis=1).tolist() == order.tolist()
    assert (opened.matched.sum(axis=1) == 1).all()
    # With three requests answered it reads three topics and cannot tell the others apart.
    modest = MATCHER.new_subscriber()
    introduce(publisher, modest)
    publisher.admit(modest.identity, requests=3)
    with pytest.raises(DecodeError, match="row 3: a request beyond the number"):
        publisher.answer(modest.encode(TEXTS))
    modest.accept(publisher.answer(modest.encode(TEXTS[:3])))
    opened = modest.open(publisher.encode([{"topic": NAMES[place]} for place in order]))
    assert (opened.matched.any(axis=1) == (order < 3)).all()


def test_slots_of_one_topic_for_ever_are_noise() -> None:
    publisher, *subscribers = acquainted(MATCHER, TEXTS[:2], 2)
    publisher.answer(np.vstack([subscriber.encode(TEXTS[0]) for subscriber in subscribers]))
    events = publisher.encode([{"topic": NAMES[0]}] * 3000)
    slots = events[:, MATCHER.event_bytes :].reshape(-1, 16)
    assert len({slot.tobytes() for slot in slots}) == 6000
    bits = np.unpackbits(slots, axis=1)
    ones = bits.sum(axis=0)
    chi = ((ones - 3000) ** 2 / 1500).sum()
    assert stats.chi2.sf(chi, 128) > 1e-9
    # Two subscribers of one topic, as the broker sees them: unrelated.
    pairs = slots.reshape(-1, 2, 16)
    same = np.unpackbits(pairs[:, 0] ^ pairs[:, 1]).mean()
    assert abs(same - 0.5) < 6 * 0.5 / np.sqrt(3000 * 128)


def test_topics_do_not_show_in_sessions_and_events_of_different_topics_look_alike() -> None:
    publisher, subscriber = acquainted(MATCHER, TEXTS[:2])
    requests = subscriber.encode([TEXTS[0], TEXTS[0], TEXTS[1]])
    sessions = publisher.answer(requests)
    parts = requests[:, SIGNED:-SIGNATURE_BYTES].reshape(-1, 8)
    assert len({part.tobytes() for part in parts}) == len(parts) == 9
    parts = sessions[:, OPENED:-SIGNATURE_BYTES].reshape(-1, 8)
    assert len({part.tobytes() for part in parts}) == len(parts)
    events = publisher.encode([{"topic": NAMES[0]}, {"topic": NAMES[1]}])
    # Header and width are the same; the number counts; the rest is slots.
    assert np.array_equal(events[0, :16], events[1, :16])
