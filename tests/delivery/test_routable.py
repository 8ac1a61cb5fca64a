"""Routable and secret attributes: brokers see no secret, subscribers get what plaintext gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, Text, UInt
from ccbps.delivery import (
    KeyTree,
    PolicySealer,
    RangeKey,
    RoutableOpener,
    RoutableSealer,
    TreeKey,
    read_routable,
)
from ccbps.delivery.routable import _Body, _Event
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.functional import Authority, CpAbe, FunctionalScheme, HiddenVectors, Ibe, KpAbe
from ccbps.overlay import PlainRelation
from ccbps.predicates.split import code_bytes
from ccbps.records import write
from tests.support import strategies as drawn
from tests.support.altered import altered
from tests.support.effort import examples

SCHEMA = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8), note=Text(12))
SPLIT = SCHEMA.split(routable=["issue"])
SECRET = TreeKey.generate()
TREE = KeyTree(SPLIT.routable, "quotes")
PUBLISHER = TREE.publisher_key(SECRET, epoch=7)
RECORDS = [
    {"issue": "IBM", "price": 119, "note": "block trade"},
    {"issue": "IBM", "price": 121, "note": "odd lot 7731"},
    {"issue": "AAPL", "price": 119, "note": "block trade"},
]
PAYLOADS = [b"payload %d" % row for row in range(3)]
MATCH = "issue = 'IBM' AND price < 120"


def transparent(kind: type[FunctionalScheme], schema: Schema | None) -> Authority:
    return Authority.generate(kind.made_from(schema, "transparent"))


def sealers() -> list[tuple[Any, Any, Any]]:
    """Sealers, what they seal to, and a subscriber's key."""
    weak = SPLIT.weaken(MATCH)
    key_policy = transparent(KpAbe, SPLIT.routable)
    policy = transparent(CpAbe, Schema(trader=UInt(1)))
    vectors, names = transparent(HiddenVectors, SCHEMA), transparent(Ibe, None)
    return [
        (PUBLISHER, None, TREE.subscriber_key(SECRET, weak, epoch=7)),
        (PolicySealer(key_policy.public), None, key_policy.key(weak)),
        (PolicySealer(vectors.public), None, vectors.key(MATCH)),
        (PolicySealer(policy.public), "trader = 1", policy.key({"trader": 1})),
        (PolicySealer(names.public), "group 5", names.key("group 5")),
    ]


@pytest.mark.parametrize("number", range(5))
def test_subscribers_get_what_matches(number: int) -> None:
    sealer, to, key = sealers()[number]
    sealed = RoutableSealer(SPLIT, sealer).seal(PAYLOADS, RECORDS, to=to)
    assert SPLIT.weaken(MATCH).evaluate(read_routable(SPLIT, sealed)).tolist() == [1, 1, 0]
    opened, causes = RoutableOpener(SPLIT, key, MATCH).examine(sealed)
    assert opened == [PAYLOADS[0], None, None]
    assert sorted(causes) == [1, 2]


@pytest.mark.parametrize("number", range(5))
def test_no_secret_value_is_in_what_brokers_see(number: int) -> None:
    """Two batches that differ in secrets only have the same lengths and the same clear parts."""
    sealer, to, _ = sealers()[number]
    others = [{**row, "price": 7, "note": ""} for row in RECORDS]
    batches = [
        RoutableSealer(SPLIT, sealer).seal(PAYLOADS, records, to=to)
        for records in (RECORDS, others)
    ]
    for one, other, record in zip(*batches, RECORDS, strict=True):
        assert len(one) == len(other)
        assert str(record["note"])[:5].encode() not in one
        (secret,) = code_bytes(SPLIT.divide([record])[1])
        assert secret[8:16] not in one  # the first word of the note
        assert secret not in one
        assert b"payload" not in one
    clear = [read_routable(SPLIT, batch) for batch in batches]
    assert code_bytes(clear[0]) == code_bytes(clear[1])


@pytest.mark.parametrize("number", range(5))
def test_which_sealers_show_that_events_were_sealed_together(number: int) -> None:
    """An encapsulation that events have in common is 32 bytes and more."""
    sealer, to, _ = sealers()[number]
    one, other, _ = RoutableSealer(SPLIT, sealer).seal(PAYLOADS, RECORDS, to=to)
    ends = {one[at : at + 32] for at in range(100, len(one) - 31)}
    shared = any(other[at : at + 32] in ends for at in range(100, len(other) - 31))
    assert shared == (to is not None)


def test_sealers_that_show_secret_attributes_are_refused() -> None:
    whole = KeyTree(SCHEMA, "quotes").publisher_key(SECRET, epoch=7)
    shows = PolicySealer(transparent(KpAbe, SCHEMA).public)
    for sealer in (whole, shows):
        with pytest.raises(ParameterError, match="show the records"):
            RoutableSealer(SPLIT, sealer)
    with pytest.raises(ParameterError, match=r"split\.schema"):
        RoutableSealer(SPLIT, PolicySealer(transparent(HiddenVectors, SPLIT.routable).public))


def test_a_body_belongs_to_its_routable_part() -> None:
    """A broker that puts an event's body behind other attributes is noticed."""
    names = transparent(Ibe, None)
    sealer = RoutableSealer(SPLIT, PolicySealer(names.public))
    first, _, third = sealer.seal(PAYLOADS, RECORDS, to="group")
    (apple,), (ibm,) = (code_bytes(read_routable(SPLIT, [message])) for message in (third, first))
    opener = RoutableOpener(SPLIT, names.key("group"), "TRUE")
    assert opener.examine([first.replace(ibm, apple)])[1] == {
        0: "the body is not of these routable attributes, or was altered"
    }
    for message in [*altered(first)][::17]:
        assert opener.examine([message, first])[0] == [None, PAYLOADS[0]]


def test_records_that_are_none_are_refused_one_by_one() -> None:
    """A publisher may seal anything: codes of no value, and of another length."""
    good = code_bytes(SPLIT.divide(RECORDS)[1])
    (shown, *_) = code_bytes(SPLIT.divide(RECORDS)[0])
    bad = [b"", good[0][:-1], b"\xff" * len(good[0]), good[0] + b"\0"]
    routable = [shown] * 6 + [b"\xff" * len(shown), b""]
    secret = [good[0], *bad, good[0], good[0], good[0]]
    bodies = [write(_Body(*pair, b"x")) for pair in zip(routable, secret, strict=True)]
    sealed = PUBLISHER.seal(bodies, [RECORDS[0]] * 8)
    messages = [_Event(*pair).to_bytes() for pair in zip(routable, sealed, strict=True)]
    opened, causes = RoutableOpener(SPLIT, PUBLISHER, "TRUE").examine(messages)
    assert [payload is not None for payload in opened] == [True, *[False] * 4, True, False, False]
    assert set(causes.values()) == {"the body is not of these routable attributes, or was altered"}


def test_without_a_fitting_key_there_is_nothing() -> None:
    sealed = RoutableSealer(SPLIT, PUBLISHER).seal(PAYLOADS, RECORDS)
    key = TREE.subscriber_key(SECRET, "issue = 'AAPL'", epoch=7)
    opened, causes = RoutableOpener(SPLIT, key, "TRUE").examine(sealed)
    assert opened == [None, None, PAYLOADS[2]]
    assert causes[0] == "the event is outside of this key's ranges"
    later = TREE.subscriber_key(SECRET, "TRUE", epoch=8)
    assert RoutableOpener(SPLIT, later, "TRUE").examine(sealed)[0] == [None] * 3


def test_arguments_are_checked() -> None:
    sealer = RoutableSealer(SPLIT, PUBLISHER)
    with pytest.raises(ParameterError, match="need as many payloads"):
        sealer.seal(PAYLOADS[:2], RECORDS)
    with pytest.raises(ParameterError, match="seal for the records"):
        sealer.seal(PAYLOADS, RECORDS, to="group")
    with pytest.raises(ParameterError, match="has its own"):
        sealer.seal(PAYLOADS, RECORDS, epoch=7)
    few = TREE.subscriber_key(SECRET, "issue = 'AAPL'", epoch=7)
    with pytest.raises(KeyMismatchError, match="outside of this key's ranges"):
        RoutableSealer(SPLIT, few).seal(PAYLOADS, RECORDS)
    with pytest.raises(DecodeError):
        read_routable(SPLIT, [b"no event"])
    assert sealer.seal([], []) == []
    assert RoutableOpener(SPLIT, PUBLISHER, "TRUE").examine([]) == ([], {})


def test_brokers_of_a_network_route_by_the_weaker_predicate() -> None:
    relation = PlainRelation(SPLIT.routable)
    wide = relation.read_filter(relation.filter_bytes(SPLIT.weaken(MATCH)))
    events = [relation.read_event(relation.event_bytes(record)) for record in RECORDS]
    assert [bool(relation.matches(event, [wide]).all()) for event in events] == [True, True, False]


@given(st.data(), drawn.schemas().filter(lambda schema: len(schema) > 1))
@settings(max_examples=examples(200))
def test_deliveries_equal_those_of_plaintext(data: st.DataObject, schema: Schema) -> None:
    """Broker: the weaker predicate on the clear part. Subscriber: the key, then its own filter."""
    most = len(schema) - 1
    names = st.lists(st.sampled_from(schema.names), min_size=1, max_size=most, unique=True)
    split = schema.split(routable=data.draw(names))
    some = data.draw(drawn.predicates(schema))
    predicate = schema.parse(some.text).bind(**some.private)
    records = [drawn.record(row) for row in data.draw(drawn.rows(schema))]
    payloads = [b"%d" % row for row in range(len(records))]
    key: RangeKey = KeyTree(split.routable, "t").publisher_key(SECRET, epoch=1)
    sealed = RoutableSealer(split, key).seal(payloads, records)
    passed = split.weaken(predicate).evaluate(read_routable(split, sealed)).tolist()
    delivered = [message for message, held in zip(sealed, passed, strict=True) if held]
    opened, _ = RoutableOpener(split, key, predicate).examine(delivered)
    held = predicate.evaluate(records).tolist()
    assert [payload for payload in opened if payload is not None] == [
        payload for payload, matches in zip(payloads, held, strict=True) if matches
    ]
