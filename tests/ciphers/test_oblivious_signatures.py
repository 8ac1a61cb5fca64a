"""ObliviousTopicMatch: who may ask and who may answer; what comes again changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema
from ccbps.ciphers.signatures import IDENTITY_BYTES, SIGNATURE_BYTES, name_of, signed_by
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.plain_key import SigningKey
from ccbps.matching import ObliviousTopicMatch
from ccbps.matching.session.layout import OPENED, SIGNED
from ccbps.matching.session.roles import ObliviousPublisher, ObliviousSubscriber
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.topic_strategies import introduce, sign

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]))
TEXTS = ["issue = 'AAPL'", "issue = 'GOOG'", "issue = 'IBM'"]
MATCHER = ObliviousTopicMatch(SCHEMA, payload_bytes=4, group="toy64")
EVENTS = [{"issue": "GOOG"}, {"issue": "IBM"}]
PAYLOADS = [b"goog", b"ibm"]


def parties() -> tuple[ObliviousPublisher, ObliviousSubscriber]:
    publisher, subscriber = MATCHER.new_publisher(TEXTS), MATCHER.new_subscriber()
    introduce(publisher, subscriber)
    return publisher, subscriber


def same_after(
    role: ObliviousPublisher | ObliviousSubscriber, act: Callable[[], Any], match: str
) -> tuple[int, ...]:
    """Refused, and the role is what it was; the rows that the error names."""
    before = role.key
    with pytest.raises(DecodeError, match=match) as caught:
        act()
    assert role.key == before
    assert len(caught.value.causes) == len(caught.value.rows)
    return caught.value.rows


# -- signatures -----------------------------------------------------------------------------------


def test_signatures_are_those_of_rfc_8032() -> None:
    """Its section 7.1, test 2."""
    key = SigningKey(
        bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    )
    wanted = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.identity.hex() == wanted
    signature = key.sign(b"\x72")
    assert signature.hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert signed_by(key.identity, b"\x72", signature)
    assert not signed_by(key.identity, b"\x73", signature)
    assert not signed_by(SigningKey.generate().identity, b"\x72", signature)
    assert not signed_by(key.identity, b"\x72", signature[:-1])
    assert name_of(key.identity) != name_of(SigningKey.generate().identity)


@pytest.mark.parametrize("wrong", ["text", None, bytes(31), bytes(33), 5])
def test_what_is_no_identity_is_refused(wrong: Any) -> None:
    publisher, subscriber = parties()
    for act in (publisher.admit, subscriber.trust):
        with pytest.raises(ParameterError, match=r"identity must be 32 bytes, .* other party's"):
            act(wrong)
    for requests in (-1, 1.0, "2", True):
        with pytest.raises(ParameterError, match="requests must be a whole number, at least 0"):
            publisher.admit(bytes(IDENTITY_BYTES), requests)  # type: ignore[arg-type]


def test_two_identities_of_one_name_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, subscriber = parties()
    stranger = SigningKey.generate().identity
    for role, act, known in (
        ("subscriber", publisher.admit, subscriber),
        ("publisher", subscriber.trust, publisher),
    ):
        own = name_of(known.identity)
        monkeypatch.setattr("ccbps.matching.session.roles.name_of", lambda _, own=own: own)
        with pytest.raises(ParameterError, match=f"another {role} has that name"):
            act(stranger)


# -- requests -------------------------------------------------------------------------------------


def test_no_byte_of_a_request_can_be_changed() -> None:
    publisher, subscriber = parties()
    requests = subscriber.encode(TEXTS)
    for column in range(KEY_HEADER_BYTES - 8, requests.shape[1]):
        altered = requests.copy()
        altered[1, column] ^= 0x10
        act = lambda: publisher.answer(altered)  # noqa: E731, B023
        named = KEY_HEADER_BYTES <= column < SIGNED
        cause = "of a subscriber that was not admitted" if named else "not signed by the subscriber"
        assert same_after(publisher, act, f"row 1: a request {cause}") == (1,)
    assert publisher.requests == 0
    publisher.answer(requests)


def test_signatures_hold_for_one_matcher_and_one_kind_of_message() -> None:
    """The header has 6 bytes of the fingerprint; the signature covers all 32."""
    publisher, subscriber = parties()
    request = subscriber.encode(TEXTS[:1])
    layout = MATCHER._layout
    covered = layout.request(request[0])
    assert MATCHER.digest in covered and covered.endswith(request[0, :-64].tobytes())
    for other in (
        covered.replace(MATCHER.digest, MATCHER.digest[:6] + bytes(26)),
        layout.session(request[0], b""),
    ):
        assert other != covered
        forged = request.copy()
        forged[0, -SIGNATURE_BYTES:] = list(subscriber._signing.sign(other))
        same_after(publisher, lambda: publisher.answer(forged), "not signed")  # noqa: B023
    publisher.answer(request)


def test_subscribers_ask_as_often_as_they_are_admitted_for() -> None:
    publisher, alice = parties()
    bob = MATCHER.new_subscriber()
    introduce(publisher, bob)
    publisher.admit(alice.identity, 2)
    requests = alice.encode([*TEXTS, *TEXTS])
    both = np.vstack([requests[:3], bob.encode(TEXTS)])
    refused = "row 2: a request beyond the number that its subscriber was admitted with"
    assert same_after(publisher, lambda: publisher.answer(both), refused) == (2,)
    sessions = publisher.answer(both[[0, 1, 3, 4, 5]])
    # The same ones again are no more; a restored publisher counts on.
    publisher = MATCHER.publisher(publisher.key)
    assert np.array_equal(publisher.answer(both[[1, 0, 0]]), sessions[[1, 0, 0]])
    again = np.vstack([requests[0], requests[2:]])
    assert same_after(publisher, lambda: publisher.answer(again), "row 1") == (1, 2, 3, 4)
    publisher.admit(alice.identity, 3)
    assert same_after(publisher, lambda: publisher.answer(requests), "row 3") == (3, 4, 5)
    publisher.answer(requests[2:3])
    publisher.admit(alice.identity)
    publisher.answer(requests)
    assert publisher.requests == 9


def test_a_request_has_one_answer_and_one_slot_however_often_it_comes() -> None:
    publisher, subscriber = parties()
    requests = subscriber.encode([*TEXTS, TEXTS[0]])
    sessions = publisher.answer(requests[[0, 1, 0, 2]])
    assert publisher.requests == 3
    assert np.array_equal(sessions[0], sessions[2])
    before = publisher.key
    for role in (publisher, MATCHER.publisher(before)):
        assert np.array_equal(role.answer(requests[[2, 1]]), sessions[[3, 1]])
        assert np.array_equal(role.answer(requests[:1]), sessions[:1])
        assert role.key == before
    last = publisher.answer(requests[[3, 0]])
    assert np.array_equal(last[1], sessions[0])
    # Requests for one topic have nothing in common, and another publisher answers otherwise.
    assert not set(map(bytes, last[0, OPENED:].reshape(-1, 8))) & set(
        map(bytes, sessions[0, OPENED:].reshape(-1, 8))
    )
    other = MATCHER.new_publisher(TEXTS)
    introduce(other, subscriber)
    assert not set(map(bytes, other.answer(requests)[:, OPENED:].reshape(-1, 8))) & set(
        map(bytes, sessions[:, OPENED:].reshape(-1, 8))
    )
    assert subscriber.accept(sessions) == 4
    assert subscriber.accept(last) == 2
    opened = subscriber.open(publisher.encode(EVENTS, payloads=PAYLOADS))
    assert opened.matched.tolist() == [[False, True, False, False], [False, False, True, False]]
    assert opened.payloads == PAYLOADS


# -- sessions -------------------------------------------------------------------------------------


def test_no_byte_of_a_session_can_be_changed() -> None:
    publisher, subscriber = parties()
    sessions = publisher.answer(subscriber.encode(TEXTS))
    for column in range(KEY_HEADER_BYTES, sessions.shape[1]):
        altered = sessions.copy()
        altered[1, column] ^= 0x10
        act = lambda: subscriber.accept(altered)  # noqa: E731, B023
        cause = "of a publisher that is not tru" if column < SIGNED else "not signed by the publish"
        assert same_after(subscriber, act, f"row 1: a session {cause}") == (1,)
    # Sessions without a part, though signed, are none.
    short = np.hstack([sessions[:, :OPENED], sessions[:, -SIGNATURE_BYTES:]])
    same_after(subscriber, lambda: subscriber.accept(short), "sessions have 108 bytes and a multi")
    assert subscriber.accept(sessions) == 3


def test_an_answer_to_one_request_is_none_to_another() -> None:
    publisher, subscriber = parties()
    requests = subscriber.encode(TEXTS[:2])
    sessions = publisher.answer(requests)
    moved = sessions.copy()
    moved[0, 8:KEY_HEADER_BYTES] = sessions[1, 8:KEY_HEADER_BYTES]
    same_after(subscriber, lambda: subscriber.accept(moved), "row 0: a session not signed")
    # With the name put right it is still signed for the other request.
    sign(publisher, moved[0], MATCHER._layout.digest(requests[0]))
    same_after(subscriber, lambda: subscriber.accept(moved), "row 0: a session not signed")


def test_the_first_answer_stays_whatever_comes_later() -> None:
    publisher, subscriber = parties()
    early = publisher.key
    requests = subscriber.encode(TEXTS)
    sessions = publisher.answer(requests)
    assert subscriber.accept(sessions) == 3
    events = publisher.encode(EVENTS, payloads=PAYLOADS)
    # The same again, by itself and twice in a batch; also to a subscriber that was restored.
    kept = subscriber.key
    for role in (subscriber, MATCHER.subscriber(kept)):
        assert role.accept(sessions[[0, 1, 0]]) == 3
        assert role.key == kept
    # The publisher, from a key that had not yet the requests: another place for the same request.
    forgetful = MATCHER.publisher(early)
    others = forgetful.answer(requests[::-1])
    refused = "row 0: a session unlike the one that this publisher gave to the"
    assert same_after(subscriber, lambda: subscriber.accept(others), refused) == (0, 2)
    fresh = MATCHER.subscriber(subscriber.key)
    assert fresh.open(events).payloads == PAYLOADS
    late = MATCHER.new_subscriber()
    introduce(publisher, late)
    own = late.encode(TEXTS[:1])
    forgetful = MATCHER.publisher(early)
    forgetful.admit(late.identity)
    both = np.vstack([publisher.answer(own), forgetful.answer(own)])
    assert same_after(late, lambda: late.accept(both), "row 1: a session unlike") == (1,)
    assert late.accept(both[:1]) == 1


def test_publishers_that_are_not_trusted_are_not_believed() -> None:
    publisher, subscriber = parties()
    sessions = publisher.answer(subscriber.encode(TEXTS))
    careful = MATCHER.subscriber(subscriber.key)
    assert careful.accept(sessions) == 3  # Trust is kept in the key.
    stranger = MATCHER.new_publisher(TEXTS)
    stranger.admit(subscriber.identity)
    others = stranger.answer(subscriber.encode(TEXTS))
    mixed = np.vstack([sessions[:1], others[:1]])
    assert same_after(subscriber, lambda: subscriber.accept(mixed), "call trust with") == (1,)
    subscriber.trust(stranger.identity)
    assert subscriber.accept(mixed) == 2
    # Who never asked has no use for any of them, and says so.
    assert MATCHER.new_subscriber().accept(mixed) == 0
