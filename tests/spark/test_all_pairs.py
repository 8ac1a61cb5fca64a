"""Matchers with a key server: every event with every interest, keys by name.

What happens to rows within a batch is tested without Spark, in `tests/columnar/test_columnar.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt, matching
from ccbps import spark as cs
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching import KeywordMatch
from ccbps.matching.broken import AdditiveMaskMatch
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark import all_pairs
from tests.support.spark_session import Keys, damaged, issued, rows_by, save, wishes
from tests.support.toy_scheme import ToyMatch

pytestmark = pytest.mark.spark

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(12))
MATCHER = AdditiveMaskMatch(SCHEMA)
PREDICATES = ["issue = 'IBM'", "price < 1000 AND issue = 'AAPL'", "price BETWEEN 5 AND 3000"]
COUNT = 200
Sides = tuple[DataFrame, DataFrame]
Pairs = set[tuple[str, int]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return issued(MATCHER, tmp_path_factory.mktemp("keys"))


def table(count: int = COUNT) -> pa.Table:
    rng = np.random.default_rng(2)
    return pa.table(
        {
            "event": np.arange(count),
            "issue": rng.choice(["AAPL", "GOOG", "IBM"], count).tolist(),
            "price": rng.integers(0, 4096, count),
        }
    )


def asked(spark: SparkSession, texts: list[str | None]) -> DataFrame:
    return wishes(spark, {f"s{i}": text for i, text in enumerate(texts)})


@pytest.fixture(scope="module")
def sides(spark: SparkSession, keys: Keys) -> Sides:
    """Messages of both sides, made once; one subscription has no predicate."""
    frames = (
        cs.encode_events(
            spark.createDataFrame(table()), MATCHER, keys["publisher"], keep=["event"]
        ),
        cs.encode_interests(asked(spark, [*PREDICATES, None]), MATCHER, keys["subscriber"]),
    )
    assert [df.columns for df in frames] == [
        ["event", "event_message"],
        ["subscription", "interest_message"],
    ]
    events, interests = (spark.createDataFrame(df.toArrow()) for df in frames)
    return events.coalesce(1), interests


WANTED: Pairs = {
    (f"s{i}", int(n))
    for i, text in enumerate(PREDICATES)
    for n in np.flatnonzero(SCHEMA.parse(text).evaluate(table()))
}


def pairs(df: DataFrame) -> Pairs:
    return {*rows_by(df, "subscription", "event")}


def test_all_pairs_equal_the_plaintext_filter(sides: Sides, keys: Keys) -> None:
    found = cs.match(*sides, MATCHER, keys["broker"])
    assert found.columns == ["subscription", "event"]
    assert pairs(found) == WANTED


# The last one is also a name that the functions themselves give. By default each strategy is tried
# with one of both.
@pytest.mark.parametrize(
    ("odd", "strategies"),
    [
        (".a b.`c", ["closure", "topic"]),
        ("c1", ["blocks"]),
        pytest.param(".a b.`c", ["blocks"], marks=pytest.mark.slow),
        pytest.param("c1", ["closure", "topic"], marks=pytest.mark.slow),
    ],
)
def test_columns_have_any_names(sides: Sides, keys: Keys, odd: str, strategies: list[str]) -> None:
    """In Spark a dot in a name is an expression, unless somebody quotes it."""
    topic, event, label = f"t.{odd}", f"e.{odd}", f"s.{odd}"
    sent, asked = sides[0].toDF(event, odd), sides[1].toDF(label, odd)
    options: dict[str, Any] = {"event": odd, "interest": odd, "subscription": label}
    options["on_error"] = "reject"
    for strategy in strategies:
        if strategy == "topic":
            sent, asked = (df.withColumn(topic, F.lit("all")) for df in (sent, asked))
            options["topic"] = topic
        found = cs.match_all_pairs(
            sent, asked, MATCHER, keys["broker"], strategy=strategy, **options
        )
        assert found.columns[:2] == [label, event]
        assert {*rows_by(found, label, event)} == WANTED


def test_all_pairs_of_interests_too_many_for_a_plan_are_found_in_blocks(
    sides: Sides, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, interests = sides
    monkeypatch.setattr(all_pairs, "PLAN_BYTES", 2 * MATCHER.interest_bytes)
    monkeypatch.setattr(all_pairs, "BLOCK_BYTES", 1500)
    collected: list[object] = []
    monkeypatch.setattr(type(interests), "toArrow", lambda df: collected.append(df))
    bad = damaged(interests, "interest_message", {"subscription = 's1'": b"x"})
    found = cs.match(events, interests, MATCHER, keys["broker"])
    kept = cs.match(events, bad, MATCHER, keys["broker"], on_error="drop")
    assert not collected
    assert found.columns == ["subscription", "event"]
    assert pairs(found) == WANTED
    assert pairs(kept) == {pair for pair in WANTED if pair[0] != "s1"}


@pytest.mark.parametrize("strategy", ["closure", "blocks", "topic"])
def test_rejected_messages_have_a_row_each_however_they_meet(
    sides: Sides, keys: Keys, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setattr(all_pairs, "BLOCK_BYTES", 1500)
    nothing = bytearray(MATCHER.event_bytes)
    events = damaged(
        sides[0], "event_message", {"event = 7": b"short", "event = 8": nothing, "event = 9": None}
    )
    interests = damaged(sides[1], "interest_message", {"subscription = 's1'": b"x"})
    options: dict[str, Any] = {"strategy": strategy, "on_error": "reject"}
    topics = []
    # s0 and s1 are about one topic, of which event 8 is not; event 7 and s2 are about all.
    if strategy == "topic":
        events = events.withColumn(
            "topic", F.expr("CASE event WHEN 8 THEN 2 WHEN 7 THEN NULL ELSE 1 END")
        )
        about = F.when(F.col("subscription") != "s2", 1)
        interests, topics = interests.withColumn("topic", about), ["topic"]
        options["topic"] = "topic"
    found = cs.match_all_pairs(events.repartition(3), interests, MATCHER, keys["broker"], **options)
    assert found.columns == ["subscription", "event", *topics, "rejected"]
    told = {pair: row["rejected"] for pair, row in rows_by(found, "subscription", "event").items()}
    kept = {pair for pair, why in told.items() if why is None}
    assert kept == {p for p in WANTED if p[0] != "s1" and p[1] not in (7, 8, 9)}
    bad = {pair: why for pair, why in told.items() if why}
    assert bad.keys() == {(None, 7), (None, 8), ("s1", None)}
    assert "wrong number of bytes" in bad[None, 7] and "wrong number of bytes" in bad["s1", None]
    assert "not an event message" in bad[None, 8]
    with pytest.raises(ParameterError, match="there is a column 'rejected' already"):
        cs.match_all_pairs(
            events.withColumn("rejected", F.lit("")), interests, MATCHER, keys["broker"], **options
        )


@pytest.mark.parametrize("block", [1500, pytest.param(8 << 20, marks=pytest.mark.slow)])
def test_with_topics_only_equal_ones_meet(
    spark: SparkSession, sides: Sides, keys: Keys, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Topics are numbers here, of which the first wish has one, the second none, the third two."""
    monkeypatch.setattr(all_pairs, "BLOCK_BYTES", block)
    events, interests = sides
    events = events.withColumn("topic", F.expr("CASE WHEN event % 5 < 4 THEN event % 5 END"))
    topics = {"s0": [2], "s1": [None], "s2": [0, 3]}
    rows = [(name, number) for name, numbers in topics.items() for number in numbers]
    asked = interests.join(
        spark.createDataFrame(rows, "subscription string, topic long"), "subscription"
    )
    found = cs.match_all_pairs(events, asked, MATCHER, keys["broker"], topic="topic")
    assert found.columns == ["subscription", "event", "topic"]
    got = sorted((r["subscription"], r["event"]) for r in found.collect())
    assert got == sorted(
        (name, event)
        for name, event in WANTED
        for number in topics[name]
        if None in (number, event % 5 if event % 5 < 4 else None) or number == event % 5
    )


def test_strategies_agree_and_say_what_they_cannot(
    sides: Sides, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, interests = sides
    key = keys["broker"]
    assert pairs(cs.match_all_pairs(*sides, MATCHER, key, strategy="blocks")) == WANTED
    # Labels travel, too.
    long = interests.withColumn("subscription", F.repeat(F.lit("x"), 1000))
    size = interests.count() * MATCHER.interest_bytes
    for name in ("CONNECT_BYTES", "CLASSIC_BYTES"):
        monkeypatch.setattr(all_pairs, name, 2 * size)
    assert pairs(cs.match_all_pairs(*sides, MATCHER, key, strategy="closure")) == WANTED
    with pytest.raises(ParameterError, match="strategy='closure' takes at most 0 MiB"):
        cs.match_all_pairs(events, long, MATCHER, key, strategy="closure")
    for name in ("CONNECT_BYTES", "CLASSIC_BYTES"):
        monkeypatch.setattr(all_pairs, name, 10)
    other = interests.withColumn("event", F.lit("x"))
    wrong: list[tuple[DataFrame, dict[str, Any], str]] = [
        (interests, {"strategy": "closure"}, "strategy='closure' takes at most 0 MiB .*'blocks'"),
        (interests, {"strategy": "x"}, "strategy must be 'auto', 'closure', 'blocks' or"),
        (interests, {"strategy": "topic"}, "strategy='topic' goes with topic="),
        (interests, {"strategy": "blocks", "topic": "event"}, "strategy='topic' goes with topic="),
        (interests, {"topic": "event"}, "column 'event' is missing"),
        (other, {"topic": "event"}, "of one type in both DataFrames, got bigint and string"),
    ]
    for right, options, problem in wrong:
        with pytest.raises(ParameterError, match=problem):
            cs.match_all_pairs(events, right, MATCHER, key, **options)


def test_rows_that_cannot_be_encoded_are_set_aside(spark: SparkSession, keys: Keys) -> None:
    bad = spark.createDataFrame(table(6).set_column(2, "price", pa.array([1, 31415, 2, 3, -1, 4])))
    events = cs.encode_events(bad, MATCHER, keys["publisher"], keep=["event"], on_error="reject")
    wanted = asked(spark, ["price < 9", "pryce < 31415", None]).withColumn("owner", F.lit("x"))
    encoded = cs.encode_interests(
        wanted, MATCHER, keys["subscriber"], keep=["owner"], on_error="reject"
    )
    assert encoded.columns == ["subscription", "owner", "interest_message", "rejected"]
    for df, name, message, aside in (
        (events, "event", "event_message", {1, 4}),
        (encoded, "subscription", "interest_message", {"s1", "s2"}),
    ):
        found = rows_by(df, name)
        assert {label for label, row in found.items() if row["rejected"]} == aside
        assert {label for label, row in found.items() if row[message] is None} == aside
    assert "31415" not in found["s1"]["rejected"]


# ToyMatch is a scheme that these functions were not written for.
SCHEMES: dict[Matcher, bool] = {
    ToyMatch(SCHEMA): True,
    matching.TagMatch(SCHEMA, topic=["issue"]): True,
    matching.broken.PrefixMatch(SCHEMA): False,
    matching.broken.AspeMatch(SCHEMA, exact=True): True,
    matching.broken.PaillierRangeMatch(SCHEMA, modulus_bits=256, toy=True): False,
    matching.broken.AccessTreeMatch(SCHEMA, group="toy64"): False,
    matching.KeywordMatch(SCHEMA, group="toy64"): True,
    matching.CommutativeMatch(SCHEMA, group="secp256k1"): False,
    matching.KeywordFilterMatch(SCHEMA, false_positives=1e-9): False,
    matching.KeywordDictionaryMatch(SCHEMA): False,
    matching.MaskedTopicMatch(SCHEMA): False,
}
"""Matchers of each scheme, and whether it is tested by default."""


@pytest.mark.parametrize(
    "matcher",
    [
        pytest.param(matcher, marks=[] if always else pytest.mark.slow)
        for matcher, always in SCHEMES.items()
    ],
    ids=lambda matcher: type(matcher).__name__,
)
def test_each_scheme_equals_the_plaintext_filter(
    spark: SparkSession, tmp_path: Path, matcher: Matcher
) -> None:
    records = pa.table({"event": [0, 1, 2], "issue": ["IBM", "IBM", "GOOG"], "price": [7, 9, 7]})
    events = spark.createDataFrame(records).coalesce(1)
    interests = asked(spark, ["issue = 'IBM' AND price = 7", "issue = 'GOOG' AND price = 7"])
    keys = issued(matcher, tmp_path)
    found = cs.match(
        cs.encode_events(events, matcher, keys["publisher"], keep=["event"]),
        cs.encode_interests(interests, matcher, keys["subscriber"]),
        matcher,
        keys["broker"],
    )
    assert pairs(found) == {("s0", 0), ("s1", 2)}


def test_equal_predicates_are_encoded_anew_and_revoked_users_match_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    matcher = KeywordMatch(SCHEMA, group="toy64", trapdoors="events")
    server, frames = matcher.key_server(), []
    keys = {"publisher": server.publisher_key()}
    keys |= {name: server.subscriber_key(name) for name in ("alice", "bob")}
    server.revoke("subscriber", "bob")
    keys["broker"] = server.broker_key()
    file = {name: save(tmp_path / name, key) for name, key in keys.items()}
    text = "issue = 'IBM' AND price = 7"
    for name in ("alice", "bob"):
        wanted = wishes(spark, {f"{name}{i}": text for i in range(2)})
        frames.append(cs.encode_interests(wanted, matcher, file[name]))
    made = frames[0].union(frames[1]).toArrow()
    assert len(set(made["interest_message"].to_pylist())) == 4
    records = pa.table({"event": [0], "issue": ["IBM"], "price": [7]})
    plain = spark.createDataFrame(records)
    events = cs.encode_events(plain, matcher, file["publisher"], keep=["event"])
    found = pairs(cs.match(events, spark.createDataFrame(made), matcher, file["broker"]))
    assert found == {("alice0", 0), ("alice1", 0)}


def test_malformed_messages_fail_the_job_by_name_or_match_nothing(sides: Sides, keys: Keys) -> None:
    events, interests = sides
    nothing = bytearray(MATCHER.event_bytes)
    bad = damaged(
        events, "event_message", {"event = 7": b"short", "event = 8": nothing, "event = 9": None}
    )
    nothing = bytearray(MATCHER.interest_bytes)
    unread = damaged(interests, "interest_message", {"subscription = 's1'": nothing})
    with pytest.raises(Exception, match=r"event=7: the event message has the wrong number"):
        cs.match(bad, interests, MATCHER, keys["broker"]).collect()
    with pytest.raises(Exception, match=r"subscription='s1': .*not an interest.*on_error='reject'"):
        cs.match(events, unread, MATCHER, keys["broker"]).collect()
    kept = pairs(cs.match(bad, unread, MATCHER, keys["broker"], on_error="drop"))
    assert kept == {p for p in WANTED if p[0] != "s1" and p[1] not in (7, 8, 9)}


def test_a_function_takes_the_brokers_key(sides: Sides, keys: Keys) -> None:
    events, interests = sides
    both = events.crossJoin(interests.where("subscription = 's0'"))
    matched = cs.match_udf(MATCHER, keys["broker"])("event_message", "interest_message")
    found = both.select("subscription", "event", matched.alias("m")).where("m")
    assert pairs(found) == {pair for pair in WANTED if pair[0] == "s0"}
    bad = damaged(both, "event_message", {"event = 7": b"short", "event = 9": None})
    with pytest.raises(Exception, match="the event message has the wrong number of bytes"):
        bad.select(matched).collect()
    decide = cs.match_udf(MATCHER, keys["broker"], on_error="reject")
    decided = decide("event_message", "interest_message")
    rows = rows_by(bad.select("event", decided.alias("d")).select("event", "d.*"), "event")
    assert [n for n, row in rows.items() if row["rejected"]] == [7]
    assert sorted(n for n, row in rows.items() if row["matched"] is None) == [7, 9]
    assert {("s0", n) for n, row in rows.items() if row["matched"]} == {
        pair for pair in WANTED if pair[0] == "s0" and pair[1] not in (7, 9)
    }
    # The same in SQL.
    spark = events.sparkSession
    spark.udf.register("mask_match", decide)
    bad.createOrReplaceTempView("both_sides")
    told = spark.sql(
        "SELECT event, d.* FROM (SELECT event, mask_match(event_message, interest_message) AS d "
        "FROM both_sides)"
    )
    assert rows_by(told, "event") == rows


def test_columns_that_do_not_fit_are_refused(sides: Sides, keys: Keys) -> None:
    events, interests = sides
    key = keys["broker"]
    with pytest.raises(ParameterError, match="'raise', 'reject' or 'drop', got 'keep'"):
        cs.match(events, interests, MATCHER, key, on_error="keep")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="'subscription' is in both"):
        cs.match(events.withColumn("subscription", F.lit("a")), interests, MATCHER, key)
    with pytest.raises(ParameterError, match="'event_message' is missing"):
        cs.match(events.drop("event_message"), interests, MATCHER, key)
    short = interests.withColumn("interest_message", F.lit(b"x"))
    with pytest.raises(DecodeError, match="subscription='s0': the interest message has the wrong"):
        cs.match(events, short, MATCHER, key)


def test_no_key_enters_a_plan(sides: Sides, keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    cs.match(*sides, MATCHER, keys["broker"]).explain(extended=True)
    plan = capsys.readouterr().out
    assert "event_message" in plan
    for key in keys.values():
        secret = Path(key.path).read_text()
        assert secret not in plan
        assert secret.partition(":")[2][:40] not in plan
