"""The pre-filter in DataFrames: what it lets through, what it keeps from the match, and no key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, UInt
from ccbps import spark as cs
from ccbps.errors import DecodeError, ParameterError
from ccbps.filters import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    FilterKey,
    SipHash,
    TopicTokens,
)
from ccbps.matching import FormulaMatch
from tests.support.spark_session import KEY, MODE, Places, damaged, save, streamed

pytestmark = pytest.mark.spark

TOPICS = [*(f"topic {n}" for n in range(40)), "", "Zürich", None]
WANTED = [*TOPICS[:5], "Zürich"]


@pytest.fixture(scope="module")
def key() -> FilterKey:
    return FilterKey.generate()


@pytest.fixture(scope="module")
def source(key: FilterKey, tmp_path_factory: pytest.TempPathFactory) -> cs.FileKey:
    return save(tmp_path_factory.mktemp("keys") / "topics", key)


@pytest.fixture(scope="module")
def sent(spark: SparkSession, source: cs.FileKey) -> DataFrame:
    rows = [(n, topic) for n, topic in enumerate(TOPICS * 3)]
    found = spark.createDataFrame(rows, "round long, topic string").repartition(3)
    return found.withColumn("token", cs.topic_tokens("topic", source)).cache()


@pytest.fixture(scope="module")
def wanted(sent: DataFrame) -> CuckooFilter:
    return cs.make_filter(sent.where(F.col("topic").isin(WANTED)))


def test_tokens_are_those_of_the_library(sent: DataFrame, key: FilterKey) -> None:
    tokens = TopicTokens(key)
    for row in sent.collect():
        expected = None if row.topic is None else tokens.one(row.topic)
        assert (None if row.token is None else bytes(row.token)) == expected


def test_rows_pass_whose_topic_is_wanted_or_that_have_none(
    sent: DataFrame, wanted: CuckooFilter
) -> None:
    assert len(wanted) == len(WANTED)
    bloom = BloomFilter(10)
    bloom.add_all([bytes(row.token) for row in sent.where(F.col("topic").isin(WANTED)).collect()])
    for one in (wanted, bloom):
        tokens = [bytes(row.token) for row in sent.where("token IS NOT NULL").collect()]
        falsely = {token for token, found in zip(tokens, one.has_all(tokens), strict=True) if found}
        passed = cs.prefilter(sent, one).collect()
        assert {row.topic for row in passed} >= {*WANTED, None}
        assert {bytes(row.token) for row in passed if row.token is not None} == falsely
        assert len(falsely) < 12
        assert len(passed) == 3 * (len(falsely) + 1)


def test_nothing_passes_an_empty_filter_but_what_is_for_all(sent: DataFrame) -> None:
    nobody = cs.make_filter(sent.where("topic IS NULL"))
    assert len(nobody) == 0
    assert [row.topic for row in cs.prefilter(sent, nobody).collect()] == [None] * 3


def test_a_malformed_token_passes(sent: DataFrame, wanted: CuckooFilter) -> None:
    """It says nothing about its row, so the matcher decides."""
    broken = damaged(sent, "token", {"round % 2 = 0": F.expr("substring(token, 2)")})
    odd = {row.round for row in cs.prefilter(sent, wanted).collect() if row.round % 2}
    assert {row.round for row in cs.prefilter(broken, wanted).collect()} == {
        *odd,
        *range(0, 3 * len(TOPICS), 2),
    }


def test_a_filter_of_a_malformed_token_is_refused(sent: DataFrame) -> None:
    broken = damaged(sent, "token", {"round = 3": F.expr("substring(token, 2)")})
    with pytest.raises(DecodeError, match=r"column 'token' has 1 tokens.*not of 16 bytes"):
        cs.make_filter(broken)


@pytest.mark.slow
def test_what_is_dropped_reaches_no_match(
    spark: SparkSession, sent: DataFrame, wanted: CuckooFilter
) -> None:
    """Messages of hopeless topics are malformed here, and a match that saw one would fail."""
    schema = Schema(price=UInt(8))
    matcher = FormulaMatch.box(schema)
    rounds = sent.select("round", "token", F.lit("alice").alias("subscription"))
    events = rounds.withColumn("price", F.col("round").cast("int"))
    encoded = cs.encode_events(events, matcher, KEY, keep=["token"])
    passing = cs.prefilter(encoded, wanted).select("round").collect()
    numbers = sorted(row.round for row in passing)
    assert 0 < len(numbers) < sent.count()
    hopeless = f"round NOT IN ({', '.join(map(str, numbers))})"
    broken = damaged(encoded, "event_message", {hopeless: b"broken"})
    interests = cs.encode_interests(
        rounds.select("round", "subscription", F.lit("price < 100").alias("predicate")),
        matcher,
        KEY,
    )
    matches = cs.match(cs.prefilter(broken, wanted), interests, matcher)
    found = {row.round: row.matched for row in matches.collect()}
    assert found == {number: number < 100 for number in numbers}
    with pytest.raises(Exception, match="wrong number of bytes"):
        cs.match(broken, interests, matcher).collect()
    if MODE == "classic":
        plan = matches._jdf.queryExecution().executedPlan().toString()
        assert plan.index("decide") < plan.index("passes")  # children stand below


def test_no_key_enters_a_plan_or_a_file(
    sent: DataFrame, wanted: CuckooFilter, key: FilterKey, places: Places
) -> None:
    cs.prefilter(sent, wanted).collect()
    secret, plan = key.export_secret(), ""
    if MODE == "classic":
        plan = cs.prefilter(sent, wanted)._jdf.queryExecution().toString()
        found = [content for _, content in places.contents() if b"topic 3" in content]
        assert found, "the search finds what is there"
    forms = [secret, secret.hex().encode(), key.to_text().split(":")[-1].encode()]
    places.check_hidden(forms, plan)


def test_misuse_is_refused(sent: DataFrame, wanted: CuckooFilter, source: cs.FileKey) -> None:
    keyed = CuckooFilter(8, hashing=SipHash(FilterKey.generate()))
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: cs.topic_tokens("topic", FilterKey.generate()), "key must be a KeySource"),  # type: ignore[arg-type]
        (lambda: cs.make_filter(sent, "topic"), "'topic' must be binary"),
        (lambda: cs.make_filter(sent, "nothing"), "'nothing' is missing"),
        (lambda: cs.prefilter(sent, wanted, "round"), "'round' must be binary"),
        (lambda: cs.prefilter(sent, keyed), "wanted has a key"),
        (lambda: cs.prefilter(sent, CountingBloomFilter(8)), "got CountingBloomFilter"),  # type: ignore[arg-type]
        (lambda: cs.prefilter(sent, CuckooFilter(5_000_000)), "more than a plan may carry"),
    ]
    for call, said in wrong:
        with pytest.raises(ParameterError, match=said):
            call()
    with pytest.raises(Exception, match="keys must be a column of strings or binary, got int64"):
        sent.select(cs.topic_tokens("round", source)).collect()


@pytest.mark.slow
def test_streams_are_filtered(
    spark: SparkSession, sent: DataFrame, wanted: CuckooFilter, tmp_path: Path
) -> None:
    sent.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(sent.schema).parquet(str(tmp_path / "in"))
    passed = streamed(cs.prefilter(stream, wanted), tmp_path)
    assert sorted(row.round for row in passed.collect()) == sorted(
        row.round for row in cs.prefilter(sent, wanted).collect()
    )
