"""Parameters of word matchers: checked, the same as JSON, and proposed for a predicate."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Decimal, Keyword, Schema, Text, Timestamp, UInt
from ccbps.errors import ParameterError, PredicateError, UnsupportedPredicateError
from ccbps.matching import KeywordDictionaryMatch, KeywordFilterMatch
from tests.matching.test_words import POINTS, QUOTES, Both, answers, both
from tests.support.reusable_checks import roles


@both
def test_parameters_are_checked(kind: Both) -> None:
    for wrong, message in (
        ({"points": {"cost": [1]}}, "no attribute 'cost'"),
        ({"points": {"price": []}}, "one or more ascending"),
        ({"points": {"price": [5, 3]}}, "one or more ascending"),
        ({"points": {"price": [256]}}, "points of 'price'"),
        ({"points": {"price": [3]}, "partitions": {"price": (2, 1)}}, "not both"),
        ({"partitions": {"price": (0, 1)}}, "'price', cells must be .* at least 1, got 0"),
        ({"partitions": {"price": 7}}, r"partitions of 'price' must be \(cells.*got 7"),
        ({"partitions": {"price": (8,)}}, r"partitions of 'price' must be .*got \(8,\)"),
        ({"partitions": {"price": (8.0, 2)}}, "'price', cells must be .*got 8.0"),
        ({"partitions": {"price": (8, True)}}, "'price', shifts must be .*got True"),
        ({"partitions": {"price": np.array(8)}}, "partitions of 'price' must be .*got array"),
        ({"partitions": [("price", (8, 2))]}, "partitions must be a Mapping, got list"),
        ({"points": 7}, "points must be a Mapping, got int"),
        ({"points": {"price": 7}}, "points of 'price' must be a list of values, got 7"),
        ({"points": {"price": "57"}}, "points of 'price' must be a list of values, got '57'"),
        ({"points": {"price": {5: 7}}}, "points of 'price' must be a list of values"),
        ({"points": {"price": np.array(5)}}, "points of 'price' must be a list of values"),
        ({"partitions": {"price": (64, 5)}}, "shifts must be .* from 1 to 4, got 5"),
    ):
        with pytest.raises(ParameterError, match=message):
            kind(QUOTES, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="cells take at most 62"):
        kind(Schema(x=UInt(63)), partitions={"x": (4, 1)})
    subscriber = roles(kind(QUOTES, points=POINTS))[1]
    with pytest.raises(UnsupportedPredicateError, match="'volume' needs points") as refused:
        subscriber.encode(["price < 50", "volume < 7"])
    assert refused.value.row == 1 and "7" not in str(refused.value).split("matcher")[0]
    with pytest.raises(PredicateError):
        subscriber.encode("issue = 'IBM' OR price < 3")


def test_own_parameters_are_checked() -> None:
    for name, wrong in (
        *(("hashes", value) for value in (0, 65, 2.5, "3", True, [3])),
        *(("bits", value) for value in (0, 100, 1 << 21, 64.0, "64", np.array([64, 64]))),
        *(("false_positives", value) for value in (0.9, float("nan"), "0.1", True, [0.1])),
    ):
        with pytest.raises(ParameterError, match=f"^{name} must be .*got "):
            KeywordFilterMatch(QUOTES, **{name: wrong})  # type: ignore[arg-type]
    given = {"hashes": np.int64(3), "bits": np.int64(64), "false_positives": np.float32(0.25)}
    matcher = KeywordFilterMatch(QUOTES, points={"price": iter([5, 9])}, **given)  # type: ignore
    plain = KeywordFilterMatch(QUOTES, points={"price": [5, 9]}, hashes=3, bits=64)
    assert pickle.loads(pickle.dumps(matcher)) == matcher == plain
    for dictionaries, message in (
        (5, "dictionaries must be a Mapping, got int"),
        ({"price": 7}, "dictionary of 'price' must be a list of values, got 7"),
        ({"issue": "IBM"}, "dictionary of 'issue' must be a list of values, got 'IBM'"),
    ):
        with pytest.raises(ParameterError, match=message):
            KeywordDictionaryMatch(QUOTES, dictionaries=dictionaries)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="no attribute 'cost'"):
        KeywordDictionaryMatch(QUOTES, dictionaries={"cost": []})
    with pytest.raises(ParameterError, match="dictionary of 'price'"):
        KeywordDictionaryMatch(QUOTES, dictionaries={"price": [300]})
    with pytest.raises(ParameterError, match="at most 1048576 words"):
        KeywordDictionaryMatch(Schema(x=UInt(32)))
    dictionary = KeywordDictionaryMatch(Schema(x=UInt(32)), dictionaries={"x": [7, 2**31]})
    assert answers(dictionary, {"x": [7, 8, 2**31]}, ["x = 7", f"x = {2**31}"]).tolist() == [
        [True, False],
        [False, False],
        [False, True],
    ]
    with pytest.raises(UnsupportedPredicateError, match="does not have the value"):
        roles(dictionary)[1].encode("x = 8")


@both
def test_parameters_as_json_make_the_same_matcher(kind: Both) -> None:
    schema = Schema(
        day=Timestamp("day", "2020-01-01", "2030-12-31", nullable=True),
        price=Decimal(0, 10, "0.5"),
        note=Text(20),
        tag=Keyword(64),
        volume=UInt(8),
    )
    given: dict[str, Any] = {
        "points": {"day": ["2021-05-01", datetime.date(2022, 1, 1)], "price": ["0.5", 2.0]},
        "partitions": {"volume": (8, 2)},
    }
    if kind is KeywordDictionaryMatch:
        given["dictionaries"] = {"note": ["IBM", "SAP", "IBM"], "tag": ["x"], "day": []}
        given["dictionaries"] |= {"price": [decimal.Decimal("0.5")], "volume": []}
    matcher = kind(schema, **given)
    text = json.dumps(matcher.parameters())
    again = kind.from_parameters(schema, json.loads(text))
    assert again == matcher and again.sizes == matcher.sizes
    assert json.dumps(again.parameters()) == text
    day, price = [datetime.date(2021, 5, 1), "2022-01-01"], [decimal.Decimal("0.50"), 2]
    assert kind(schema, **given | {"points": {"day": day, "price": price}}) == matcher
    # Messages of the one for a broker of the other.
    server = matcher.key_server()
    records = {"day": [None, "2021-05-02"], "price": [1, 0.5], "volume": [9, 70]}
    records |= {"note": ["IBM", "SAP"], "tag": ["x", "y"]}
    texts = ["day > DATE '2021-05-01'", "note = 'IBM' AND tag = 'x'", "price < 2", "volume < 32"]
    events = matcher.publisher(server.publisher_key()).encode(records)
    interests = matcher.subscriber(server.subscriber_key("alice")).encode(texts)
    found = again.broker(server.broker_key()).match_all(events, interests)
    plain = np.stack([schema.parse(text).evaluate(records) for text in texts], axis=1)
    assert np.array_equal(found, plain)
    for name, wrong in (
        ("points", {"price": [1]}),
        ("points", {"price": ["1"]}),
        ("points", {"price": ["0x01"]}),
        ("points", {"price": ["0x15"]}),  # 21 of 21 values
        ("points", {"day": ["0x0"]}),  # NULL
        ("points", {"price": "0x1"}),
        ("points", {"cost": ["0x1"]}),
        ("points", [5]),
        ("points", None),
        ("partitions", {"volume": [8]}),
    ):
        with pytest.raises(ParameterError, match=name):
            kind.from_parameters(schema, {**matcher.parameters(), name: wrong})
    for name in matcher.parameters():
        left = {key: value for key, value in matcher.parameters().items() if key != name}
        with pytest.raises(ParameterError, match=f"{name} must be|parameters are not those"):
            kind.from_parameters(schema, left)


@both
def test_matchers_are_proposed_with_points_that_tell_nothing(kind: Both) -> None:
    proposals = [
        list(kind.propose(QUOTES, QUOTES.parse(text)))
        for text in ("issue = 'IBM' AND price < 77", "price < 12", "price = 3", "price < 3 OR TRUE")
    ]
    (first,), (second,), (equal,), (free,) = proposals
    assert first.vocabulary.points == second.vocabulary.points
    assert first.vocabulary.points == {"price": list(range(16, 256, 16))}
    assert equal.vocabulary.points == free.vocabulary.points == {}
    assert (first == second) is (kind is KeywordFilterMatch)  # a dictionary has its equalities
    assert first.widened("price < 77").ranges["price"] == (0, 79)
    found = answers(first, {"issue": ["IBM"] * 2, "price": [79, 80], "volume": [1, 1]},
                    ["issue = 'IBM' AND price < 77"])  # fmt: skip
    assert found[:, 0].tolist() == [True, False]
    assert not list(kind.propose(QUOTES, QUOTES.parse("price < 3 OR volume < 3")))
    assert not list(kind.propose(QUOTES, QUOTES.parse("price < :limit")))
    # Few values, and NULL among them.
    small = Schema(level=Category(["a", "b", "c"], nullable=True))
    (matcher,) = kind.propose(small, small.parse("level < 'c'"))
    assert matcher.vocabulary.points == {"level": [1, 2, 3]}
    wide = Schema(x=UInt(32))
    assert bool(list(kind.propose(wide, wide.parse("x = 3")))) is (kind is KeywordFilterMatch)
    assert list(kind.propose(wide, wide.parse("x < 3")))
