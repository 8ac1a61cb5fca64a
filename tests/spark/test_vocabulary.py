"""One vocabulary: what does not apply to a matcher is refused, and the error says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ccbps import Schema, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError
from ccbps.keys import OperatorKey
from ccbps.matching import BroadcastMatch, FormulaMatch, ObliviousTopicMatch, ThreeBrokerMatch
from ccbps.matching.broken import AdditiveMaskMatch
from tests.support.spark_session import changed

pytestmark = pytest.mark.spark

SCHEMA = Schema(a=UInt(8), b=UInt(8))
ROUNDS = FormulaMatch.box(SCHEMA)
ONE_FOR_ALL = BroadcastMatch.box(SCHEMA)
SERVER = AdditiveMaskMatch(SCHEMA)
SESSION = ObliviousTopicMatch(SCHEMA, ["a"], group="toy64")
PAYLOADS = ObliviousTopicMatch(SCHEMA, ["a"], payload_bytes=8, group="toy64")
THREE = ThreeBrokerMatch.box(SCHEMA)
HIDING = ThreeBrokerMatch.box(SCHEMA, reveal="subscriber")
GRANTED = ThreeBrokerMatch.box(SCHEMA, grants=True)
TEMPLATE = FormulaMatch(SCHEMA, "a < :limit")
KEY = cs.FileKey("/nowhere")
Call = Callable[..., Any]

CASES: list[tuple[str, Any, dict[str, Any], str]] = [
    # encoders
    ("events", SERVER, {"subscription": "s"}, "subscription= does not .*keys of a key server"),
    ("events", SERVER, {"round": "n"}, "round= does not apply to AdditiveMaskMatch.*no rounds"),
    ("events", SERVER, {"payload": "p"}, "payload= does not apply"),
    ("events", ROUNDS, {"payload": "p"}, "payload= does not apply to FormulaMatch.*one pair"),
    ("events", ONE_FOR_ALL, {"subscription": "s"}, "subscription= does not .*serves all"),
    ("events", ONE_FOR_ALL, {"round": "a"}, "round='a' is also a column to be encoded"),
    ("events", SESSION, {"subscription": "s"}, "subscription= does not .*for everybody"),
    ("events", SESSION, {"payload": "p"}, "payload must be None"),
    ("events", PAYLOADS, {}, "payload must be a binary column.* got None"),
    ("interests", SERVER, {"round": "n"}, "round= does not apply to AdditiveMaskMatch"),
    ("interests", SERVER, {"constants": {}}, "constants= does not apply.* without private"),
    ("interests", TEMPLATE, {"predicate": "p"}, "predicate= does not apply.* limit"),
    ("interests", SESSION, {}, "encodes its requests itself.* remembers their secrets"),
    # brokers and subscribers
    ("match", ROUNDS, {"key": KEY}, "key= does not apply to FormulaMatch: its broker has no key"),
    ("pairs", ROUNDS, {"subscription": "s"}, "subscription= does not apply.*one pair and round"),
    ("match", ROUNDS, {"interests": None}, "interests=None is for .*subscribers"),
    ("match", ROUNDS, {"on_error": "drop"}, "'raise' or 'reject', got 'drop'.*none is dropped"),
    ("match", ONE_FOR_ALL, {"key": KEY}, "key= does not apply to BroadcastMatch"),
    ("match", ONE_FOR_ALL, {"interests": None}, "interests=None is for .*subscribers"),
    ("match", SERVER, {}, "key must be a KeySource"),
    ("pairs", SERVER, {}, "match_pairs does not .*every event with every.* call match_all_pairs"),
    ("own", SERVER, {}, "match_own does not apply to AdditiveMaskMatch.* call match_all_pairs"),
    ("match", SERVER, {"interests": None}, "interests=None is for .*subscribers"),
    ("match", SESSION, {"key": KEY}, "interests= does not apply.*no broker answers"),
    ("pairs", SESSION, {}, "match_pairs does not apply.*no broker answers.* call match_own"),
    ("all", SESSION, {}, "match_all_pairs does not apply.*no broker answers.* call match_own"),
    ("all", ROUNDS, {}, "match_all_pairs does not apply.*one pair and round; call match_pairs"),
    ("own", ONE_FOR_ALL, {}, "match_own does not apply.*interests of one round; call match_pairs"),
    ("match", SESSION, {"interests": None}, "key must be a KeySource"),
    ("match", SESSION, {"interests": None, "key": KEY, "on_error": "x"}, "'reject' or 'drop'"),
    ("decide", ROUNDS, {"key": KEY}, "key= does not apply"),
    ("decide", SERVER, {}, "key must be a KeySource"),
    ("decide", SESSION, {"key": KEY}, "does not apply.*no broker answers"),
    ("encode event", ROUNDS, {"on_error": "drop"}, "'raise' or 'reject'"),
    ("encode interest", SESSION, {}, "a subscriber role encodes its requests itself"),
    ("encode interest", TEMPLATE, {"double_quoted_strings": True}, "private constants, and no SQL"),
    ("encode interest", ROUNDS, {"double_quoted_strings": 1}, "must be True or False"),
    # three brokers
    ("events", THREE, {"round": "n"}, "round= does not apply.*a client's key, and have no rounds"),
    ("interests", THREE, {"round": "n"}, "round= does not apply to ThreeBrokerMatch"),
    ("match", THREE, {}, "match does not .*its three brokers answer.*; call match_shares"),
    ("all", THREE, {}, "match_all_pairs does not apply to ThreeBrokerMatch.*call match_shares"),
    ("decide", THREE, {"key": KEY}, "a part for each of three brokers: call encode_events"),
    ("encode event", THREE, {}, "a part for each of three brokers"),
    ("shares", ROUNDS, {}, "match_shares does not apply.*one pair and round; call match_pairs"),
    ("shares", GRANTED, {}, "takes no grants, and this matcher demands them"),
    ("open", HIDING, {"answers": []}, "answers must be of three operators, got 0"),
    ("open", THREE, {}, "open_shares is for three brokers that do not learn the answers"),
    ("open", ROUNDS, {}, "open_shares is for three brokers that do not learn the answers"),
    ("open", HIDING, {}, r"column 'attempt' is missing: answers\[0\] has"),
    ("shares", THREE, {"party": 3}, "party must be a whole number from 0 to 2, got 3"),
    ("shares", THREE, {"operators": []}, "operators must be three, got 0"),
    ("shares", THREE, {"hellos": [bytes(33 << 20)]}, "at most 32 MiB"),
    ("shares", THREE, {"job": 7}, "job must be"),
    ("shares", THREE, {"party": 0}, "'broker_1', which is for another broker"),
    ("shares", THREE, {}, "'subscription' is in both DataFrames"),
    ("shares", THREE, {"events": "/nowhere"}, "events='/nowhere': no message store is there"),
    ("shares", THREE, {"interests": []}, "interests must be a path or a URI as text, or several"),
    # stores
    ("write", THREE, {}, "party must be a whole number from 0 to 2, got None"),
    ("write", THREE, {"party": 1, "subscription": "s"}, "its events are for all subscriptions"),
    ("write", ROUNDS, {"party": 1}, "party= does not apply to FormulaMatch"),
    ("read", THREE, {}, "have no pairs and rounds: call encode_events .* match_shares"),
    ("provide", THREE, {}, "have no pairs and rounds"),
    (
        "drop",
        ROUNDS,
        {},
        "subscriptions= does not apply to FormulaMatch: .* for one pair and round",
    ),
    ("drop", THREE, {"subscriptions": "s1"}, "subscriptions must be a list of names, got 's1'"),
    ("write", SERVER, {}, "pairs and rounds, which AdditiveMaskMatch has not"),
    ("write", ONE_FOR_ALL, {"subscription": "s"}, "subscription= does not .*serves all"),
    ("read", SESSION, {}, "pairs and rounds, which ObliviousTopicMatch has not"),
]


@pytest.fixture(scope="module")
def calls(spark: SparkSession) -> dict[str, Call]:
    df = spark.createDataFrame([], "a int, b int, subscription string, round long, limit int")

    def match(matcher: Any, *, interests: Any = df, key: Any = None, **options: Any) -> Any:
        return cs.match(df, interests, matcher, key, **options)

    key = OperatorKey.generate()
    operators = [cs.Operator.of(key, f"10.0.0.{number}:7400") for number in range(3)]
    parted = df.selectExpr("*", "binary('') AS broker_1")

    def shares(matcher: Any, *, events: Any = parted, interests: Any = parted, **o: Any) -> Any:
        arguments = {"party": 1, "operators": operators, "hellos": [], "job": "test"}
        return cs.match_shares(events, interests, matcher, KEY, **{**arguments, **o})

    def open_(matcher: Any, *, answers: Any = (df, df, df)) -> Any:
        return cs.open_shares(answers, df, df, matcher, KEY)

    return {
        "open": open_,
        "events": lambda matcher, **o: cs.encode_events(df, matcher, KEY, **o),
        "interests": lambda matcher, **o: cs.encode_interests(df, matcher, KEY, **o),
        "match": match,
        "pairs": lambda matcher, **o: cs.match_pairs(df, df, matcher, **o),
        "all": lambda matcher, **o: cs.match_all_pairs(df, df, matcher, KEY, **o),
        "own": lambda matcher, **o: cs.match_own(df, matcher, KEY, **o),
        "shares": shares,
        "decide": cs.match_udf,
        "encode event": lambda matcher, **o: cs.encode_event_udf(matcher, KEY, **o),
        "encode interest": lambda matcher, **o: cs.encode_interest_udf(matcher, KEY, **o),
        "write": lambda matcher, **o: cs.write_messages(df, "/nowhere", matcher, kind="event", **o),
        "provide": lambda matcher: cs.provided_rounds("/nowhere", matcher),
        "drop": lambda matcher, subscriptions=(): cs.drop_interests(
            "/nowhere", matcher, subscriptions
        ),
        "read": lambda matcher, **o: cs.match_messages(spark, "/nowhere", "/nowhere", matcher, **o),
    }


@pytest.mark.parametrize(("call", "matcher", "options", "problem"), CASES)
def test_what_does_not_apply_is_refused(
    calls: dict[str, Call], call: str, matcher: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ParameterError, match=problem):
        calls[call](matcher, **options)


PAIR, KEYED = "subscription, round", {"key": KEY}
ALIKE: list[tuple[Any, str, str, dict[str, Any], str]] = [
    (ROUNDS, f"{PAIR}, Note", f"{PAIR}, note", {}, "'Note' of events.*'note"),
    (ROUNDS, f"{PAIR} AS Round", PAIR, {}, "'Round' of events.*'round"),
    (ROUNDS, f"{PAIR}, Note", PAIR, {"output": "note"}, "'Note' of the Data.*'note' of the result"),
    (ONE_FOR_ALL, "round, Subscription", PAIR, {}, "'Subscription' of events"),
    (SERVER, "Subscription", "subscription", KEYED, "'Subscription' of events.*'subscription"),
    (SESSION, "Interest", "", KEYED, "'Interest' of events.*'interest' of the result"),
]


@pytest.mark.parametrize(("matcher", "left", "right", "options", "problem"), ALIKE)
def test_names_that_differ_in_case_only_are_refused(
    spark: SparkSession, matcher: Any, left: str, right: str, options: dict[str, Any], problem: str
) -> None:
    plain = spark.createDataFrame([], "subscription string, round long, note long, interest long")
    events = plain.selectExpr(*left.split(", "), "binary('') AS event_message")
    interests = None
    if right:
        interests = plain.selectExpr(*right.split(", "), "binary('') AS interest_message")
    decide = cs.match_pairs if "output" in options else cs.match
    with pytest.raises(ParameterError, match=f"{problem}.* differ in case only.*rename one"):
        decide(events, interests, matcher, **options)


def test_names_that_differ_in_case_are_two_where_spark_tells_them_apart(
    spark: SparkSession,
) -> None:
    plain = spark.createDataFrame([], "subscription string, round long, note long")
    events = plain.selectExpr("*", "binary('') AS event_message")
    interests = plain.selectExpr("*", "binary('') AS interest_message")
    interests = interests.withColumnRenamed("note", "Note")
    with changed(spark, {"spark.sql.caseSensitive": "true"}):
        matches = cs.match(events, interests, ROUNDS)
        assert matches.columns == ["subscription", "round", "note", "Note", "matched"]


def test_a_matcher_is_a_matcher(calls: dict[str, Call], tmp_path: Path) -> None:
    for call in calls.values():
        with pytest.raises(ParameterError, match="matcher must be a Matcher, got str"):
            call("box")
