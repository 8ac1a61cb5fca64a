"""Matchers with a key server: warnings of broken ones, and what refusals say.

That every scheme refuses is in `ccbps.testing`.
"""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from pyspark import cloudpickle

import ccbps
from ccbps import Category, Schema, SharedSeed, UInt, matching
from ccbps.errors import (
    BrokenSchemeWarning,
    DecodeError,
    EventError,
    KeyMismatchError,
    ParameterError,
    PredicateError,
    UnsupportedPredicateError,
)
from ccbps.keys.role_key import RoleKey
from ccbps.matching import Matcher, TagMatch
from ccbps.matching.broken import AdditiveMaskMatch
from tests.support.refusals import refused
from tests.support.reusable_checks import roles, secrets_of

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(8))
TEXTS = ["issue = 'IBM' AND price = 7", "issue = 'AAPL' AND price = 9"]
MATCHERS: dict[str, Matcher] = {
    "masks": AdditiveMaskMatch(SCHEMA),
    "topics": matching.MaskedTopicMatch(SCHEMA),
    "prefixes": matching.broken.PrefixMatch(SCHEMA),
    "scalar products": matching.broken.AspeMatch(SCHEMA),
    "exact scalar products": matching.broken.AspeMatch(SCHEMA, exact=True),
    "blinded comparisons": matching.broken.PaillierRangeMatch(SCHEMA, 256, toy=True),
    "tags": matching.TagMatch(SCHEMA),
    "inner products": matching.InnerProductMatch(SCHEMA),
    "filters": matching.KeywordFilterMatch(SCHEMA, false_positives=1e-9),
    "dictionaries": matching.KeywordDictionaryMatch(SCHEMA),
    "keywords": matching.KeywordMatch(SCHEMA),
    "trees": matching.broken.AccessTreeMatch(SCHEMA),
    "layers": matching.CommutativeMatch(SCHEMA),
}
BROKERS_KNOW: dict[str, set[str]] = {
    "blinded comparisons": {"n", "mu", "attributes"},
    "tags": {"permutation"},
    "filters": {"permutation"},
    "dictionaries": {"permutation"},
    "keywords": {"users"},
    "trees": {"users"},
    "layers": {"broker"},
}
MATCHER = TagMatch(SCHEMA)
every_matcher = pytest.mark.parametrize("matcher", MATCHERS.values(), ids=MATCHERS)
EVENTS: list[dict[str, Any]] = [
    {"issue": issue, "price": price} for issue in ("AAPL", "GOOG", "IBM") for price in (7, 9)
]


OPTIONS: list[tuple[type[Matcher], dict[str, Any]]] = [
    (matching.TagMatch, {"topic": ["issue"], "groups": 2}),
    (matching.KeywordMatch, {"group": "toy64", "equalities": 1, "trapdoors": "events"}),
    (matching.CommutativeMatch, {"attributes": ["issue"], "group": "toy64"}),
    (matching.KeywordFilterMatch, {"points": {"price": [9]}, "hashes": 3, "bits": 192}),
    (matching.KeywordDictionaryMatch, {"points": {"price": [9]}, "dictionaries": {"issue": []}}),
    (matching.ObliviousTopicMatch, {"attributes": ["issue"], "payload_bytes": 5, "group": "toy64"}),
    (
        matching.InnerProductMatch,
        {
            "members": {"price": 2},
            "domains": ["issue"],
            "alternatives": 2,
            "pairing": "transparent",
        },
    ),
    (matching.broken.AccessTreeMatch, {"group": "toy64", "leaves": 9}),
    (matching.broken.AspeMatch, {"exact": True}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_every_option_is_kept_and_tells_matchers_apart(
    kind: type[Matcher], options: dict[str, Any]
) -> None:
    matcher = kind(SCHEMA, **options)
    again = kind.from_parameters(SCHEMA, json.loads(json.dumps(matcher.parameters())))
    assert again == matcher and again.sizes == matcher.sizes
    assert again.parameters() == matcher.parameters()
    for name in options:
        assert kind(SCHEMA, **{n: given for n, given in options.items() if n != name}) != matcher


# -- broken schemes ------------------------------------------------------------------------------

BROKEN = {
    name: matcher for name, matcher in MATCHERS.items() if matcher.leakage.security == "broken"
}


def test_these_are_broken() -> None:
    always_broken = {"masks", "prefixes", "scalar products", "exact scalar products"}
    assert always_broken | {"blinded comparisons"} <= set(BROKEN) < set(MATCHERS)


@every_matcher
def test_a_broken_matcher_says_so_when_it_is_made_and_shown(matcher: Matcher) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = type(matcher).from_parameters(matcher.schema, matcher.parameters())
    broken = matcher in BROKEN.values()
    assert ("[broken]" in repr(again)) is broken
    assert [warning.category for warning in caught] == [BrokenSchemeWarning] * broken
    for warning in caught:
        card = matcher.leakage
        for part in (card.scheme, card.attacks[0], "FormulaMatch"):
            assert part in str(warning.message)


def test_the_warning_points_to_who_made_it_and_can_be_ignored() -> None:
    with pytest.warns(BrokenSchemeWarning, match="AdditiveMaskMatch is broken") as caught:
        AdditiveMaskMatch(SCHEMA)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ccbps.BrokenSchemeWarning)
        AdditiveMaskMatch(SCHEMA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(BrokenSchemeWarning, "", AdditiveMaskMatch, SCHEMA)


@every_matcher
def test_nobody_is_warned_again_where_a_matcher_travels(matcher: Matcher) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for carried in (
            pickle.loads(pickle.dumps(matcher)),
            pickle.loads(cloudpickle.dumps(lambda: matcher))(),
            copy.copy(matcher),
            copy.deepcopy(matcher),
        ):
            assert carried == matcher and type(carried) is type(matcher)
            assert repr(carried) == repr(matcher)
            roles(carried)


def test_broker_refuses_what_is_no_message_of_its_key() -> None:
    publisher, subscriber, broker = roles(MATCHER)
    events, interests = publisher.encode(EVENTS), subscriber.encode(TEXTS)
    mixed, epoch = events.copy(), interests.copy()
    mixed[4] = roles(MATCHER)[0].encode(EVENTS)[4]
    epoch[1, 14] ^= 1
    cases = [
        ("row 4: .* under another master key", mixed, interests),
        ("must be uint8 messages|not an event", interests, interests),
        ("row 1: .* another key epoch", events, epoch),
        ("events must be uint8 messages", events[:, :-1], interests),
        ("interests must be uint8", events, interests.astype(np.int16)),
    ]
    for place, message in ((0, "not an event"), (1, "not an event"), (5, "another matcher")):
        altered = events.copy()
        altered[2, place] ^= 1
        cases.append((f"row 2: .*{message}", altered, interests))
    for message, *messages in cases:
        refused(DecodeError, message, broker.match_all, *messages)
    refused(DecodeError, "6 events do not pair with 2 interests", broker.match, events, interests)
    foreign = roles(MATCHER)[2].prepare(interests[:0])
    message = "prepared with another matcher, key or epoch"
    refused(KeyMismatchError, message, broker.match_all, events, foreign)


def test_keys_are_bound_to_matcher_and_role() -> None:
    server = MATCHER.key_server()
    other = AdditiveMaskMatch(Schema(x=UInt(3)))
    with pytest.raises(KeyMismatchError, match="the key of a subscriber, wanted a publisher's"):
        MATCHER.publisher(server.subscriber_key("a"))
    refused(KeyMismatchError, "belongs to another matcher", other.broker, server.broker_key())
    wrong: Any = SharedSeed.generate()
    with pytest.raises(
        KeyMismatchError, match=r"a broker needs a RoleKey, got SharedSeed; matcher.key_server\(\)"
    ):
        MATCHER.broker(wrong)
    refused(KeyMismatchError, "wanted a server's", MATCHER.key_server, server.broker_key())


@pytest.mark.parametrize("epoch", [-1, 1 << 16, 2.5, True, "3", None])
def test_epochs_that_are_none_are_refused(epoch: Any) -> None:
    with pytest.raises(ParameterError, match="epoch must be int"):
        RoleKey.make(bytes(32), "broker", bytes(6), epoch, {})


def test_covering_is_not_told_across_keys() -> None:
    masks = MATCHERS["masks"]
    (_, ours, broker), (_, theirs, other) = roles(masks), roles(masks)
    mine, foreign = ours.encode(TEXTS), other.prepare(theirs.encode(TEXTS))
    assert broker.covers(mine, mine).diagonal().all()
    with pytest.raises(KeyMismatchError, match="prepared with another matcher, key or epoch"):
        broker.covers(mine, foreign)


def test_key_texts_that_are_none_are_refused_and_not_shown() -> None:
    for text in ("", "ccbps-role-key-1:7b7d", "ccbps-broker-key-3:zz", "ccbps-broker-key-3:7b7d"):
        with pytest.raises(
            KeyMismatchError, match=r"not a key|broker's key, but damaged"
        ) as caught:
            RoleKey.from_text(text)
        assert "7b7d" not in str(caught.value)
    refused(KeyMismatchError, "not a role key", RoleKey, b"[]")


def test_a_damaged_key_is_refused_and_not_shown() -> None:
    server = MATCHER.key_server()
    for key in (server.key, server.publisher_key(), server.broker_key()):
        text, secret = key.to_text(), key.export_secret()
        rng = np.random.default_rng(1)
        for at in rng.choice(len(secret), 40).tolist():
            damaged = bytearray(secret)
            damaged[at] ^= 1 << int(rng.integers(0, 7))
            with pytest.raises(
                KeyMismatchError, match="not a role key, or a damaged one"
            ) as caught:
                RoleKey(bytes(damaged))
            assert caught.value.__context__ is None
        refused(KeyMismatchError, "key, but damaged", RoleKey.from_text, text[:-2])


@every_matcher
def test_a_schema_that_is_none_is_refused(matcher: Matcher) -> None:
    wrong: Any = {"price": 16}
    with pytest.raises(ParameterError, match=r"schema must be a ccbps.Schema, got dict; make one"):
        type(matcher)(wrong)


@pytest.mark.parametrize("name", MATCHERS)
def test_a_brokers_key_holds_no_more_than_a_broker_may_know(name: str) -> None:
    key = MATCHERS[name].key_server().broker_key()
    assert set(secrets_of(key)) == BROKERS_KNOW.get(name, set())


@pytest.mark.parametrize("name", sorted(MATCHERS.keys() - {"trees"}))
def test_what_is_no_box_is_refused_by_row(name: str) -> None:
    subscriber = roles(MATCHERS[name])[1]
    with pytest.raises(UnsupportedPredicateError) as caught:
        subscriber.encode([TEXTS[0], "issue = 'IBM' AND price = 3 OR issue = 'GOOG'"])
    assert caught.value.row == 1


def test_bad_events_and_predicates_are_refused() -> None:
    publisher, subscriber, broker = roles(MATCHER)
    refused(EventError, "", publisher.encode, [{"issue": "IBM", "price": 256}])
    assert refused(PredicateError, "", subscriber.encode, [TEXTS[0], "prise = 3"]).row == 1
    with pytest.raises(PredicateError, match="need values; call bind first"):
        subscriber.encode("issue = 'IBM' AND price = :p")
    with pytest.raises(ParameterError, match="parsed for another schema"):
        subscriber.encode(Schema(price=UInt(9)).parse("price = 3"))
    refused(ParameterError, "an interest is a predicate", subscriber.encode, 7)
    with pytest.raises(ParameterError, match="does not support covering"):
        broker.covers(subscriber.encode(TEXTS), subscriber.encode(TEXTS))
