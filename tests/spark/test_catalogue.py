"""Every scheme of the catalogue through the same functions: rows that are no events, predicates or
messages are set aside with their reasons, in batches, streams and stores, and all others are
answered as in plaintext."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt, matching
from ccbps import spark as cs
from ccbps.matching import SCHEMES, Answers, Keying, Matcher
from ccbps.testing.cases import proposed
from tests.support.affine_scheme import AffineMatch
from tests.support.spark_session import (
    KEY,
    answers,
    damaged,
    issued,
    reasons,
    rows_by,
    save,
    stored,
    streamed,
)
from tests.support.topic_strategies import introduce
from tests.support.toy_scheme import ToyMatch

pytestmark = pytest.mark.spark

KINDS: Final = Schema(kind=Category(["a", "b", "c"]))
SMALL: Final = Schema(x=UInt(2))
CHOSEN: Final[dict[type[Matcher], Matcher]] = {
    type(matcher): matcher
    for matcher in (
        matching.FormulaMatch.box(KINDS),
        matching.BroadcastMatch.box(KINDS),
        matching.BranchingMatch(KINDS, "kind = :kind"),
        matching.PublicFunctionMatch.hamming(2),
        matching.OFSGPMatch(KINDS, 2, group="S5"),
        matching.FSGPMatch(KINDS, 2),
        matching.UGPMatch(SMALL, 0),
        matching.ThresholdMatch(SMALL),
        matching.TagMatch(KINDS, topic=["kind"]),
        matching.broken.AdditiveMaskMatch(KINDS),
        matching.broken.PrefixMatch(KINDS),
        matching.broken.AspeMatch(KINDS, exact=True),
        matching.broken.PaillierRangeMatch(KINDS, modulus_bits=256, toy=True),
        matching.broken.AccessTreeMatch(KINDS, group="toy64"),
        matching.KeywordMatch(KINDS, group="toy64"),
        matching.InnerProductMatch(KINDS, pairing="transparent"),
        matching.CommutativeMatch(KINDS, group="toy64"),
        matching.KeywordFilterMatch(KINDS, false_positives=1e-9),
        matching.KeywordDictionaryMatch(KINDS),
        matching.MaskedTopicMatch(KINDS),
        matching.ObliviousTopicMatch(KINDS, ["kind"], group="toy64"),
    )
}
"""Kinds of matchers of which not the first proposal is tested."""


def first_proposal(scheme: type[Matcher]) -> Matcher:
    """What a scheme proposes for values of one attribute, as it comes."""
    offers = (KINDS, "kind = 'b'"), (KINDS, "kind = :kind"), (SMALL, "x >= 2")
    for schema, text in offers:
        for matcher in proposed(scheme, schema, schema.parse(text)):
            return matcher
    raise AssertionError(
        f"{scheme.__name__} proposes no matcher for {' or '.join(text for _, text in offers)}: add "
        "one to CHOSEN in tests/spark/test_catalogue.py"
    )


MATCHERS: Final[dict[type[Matcher], Matcher]] = {
    scheme: CHOSEN[scheme] if scheme in CHOSEN else first_proposal(scheme)
    for scheme in SCHEMES
    if scheme.keying is not Keying.BROKERS
}
"""One of each scheme of the catalogue that has one broker."""

EVENTS: Final = 9
GONE: Final = {5: "NULL", 6: "no value"}
"""Events that cannot be encoded: one has a NULL, one a value that its type has not."""


@pytest.mark.parametrize("scheme", [AffineMatch, ToyMatch], ids=lambda scheme: scheme.__name__)
def test_a_new_scheme_is_tested_without_a_line(scheme: type[Matcher]) -> None:
    assert type(first_proposal(scheme)) is scheme
    assert {*CHOSEN} <= {*SCHEMES}


def attribute(matcher: Matcher) -> str:
    (name,) = matcher.schema
    return name


def value(matcher: Matcher, number: int) -> str | int:
    """Of an event."""
    return "abc"[number % 3] if matcher.schema is KINDS else number % 4


def records(spark: SparkSession, matcher: Matcher) -> DataFrame:
    """Events, and those that are none."""
    text = isinstance(value(matcher, 0), str)
    rows = [(number, value(matcher, number)) for number in range(EVENTS) if number not in GONE]
    rows += [(5, None), (6, "d" if text else 1000)]  # type: ignore[list-item]
    kind = "string" if text else "long"
    return spark.createDataFrame(rows, f"event long, {attribute(matcher)} {kind}").coalesce(1)


def wishes(spark: SparkSession, matcher: Matcher) -> tuple[DataFrame, dict[str, set[Any]]]:
    """Subscriptions s0 and s1, and bad, which cannot be encoded; and the values that each wants."""
    name = attribute(matcher)
    if matcher.private_names is not None:
        kind, values = "string", [("b",), ("c",), (None,)]
        if matcher.schema is not KINDS:
            kind, values = "long", [(0, 0), (3, 1), (None, 0)]
        names = matcher.private_names
        every = sorted({value(matcher, number) for number in range(EVENTS)})
        events = matcher.schema.encode([{name: one} for one in every])
        wanted = {}
        for label, of in zip(("s0", "s1"), values, strict=False):
            met = matcher.meaning(dict(zip(names, of, strict=True)), events)
            wanted[label] = {one for one, is_met in zip(every, met, strict=True) if is_met}
        columns = ", ".join(f"{name} {kind}" for name in names)
        rows = [(label, *of) for label, of in zip(("s0", "s1", "bad"), values, strict=True)]
        return spark.createDataFrame(rows, f"subscription string, {columns}"), wanted
    texts = [("s0", f"{name} = 'b'"), ("s1", f"{name} = 'c'"), ("bad", "nothing = 3")]
    wanted = {"s0": {"b"}, "s1": {"c"}}
    if matcher.schema is SMALL:
        texts[:2] = [("s0", "x >= 2"), ("s1", "x < 2")]
        wanted = {"s0": {2, 3}, "s1": {0, 1}}
    if matcher.operators == ("hamming", "not"):
        texts[:2] = [("s0", "hamming(x, 3) <= 0"), ("s1", "hamming(x, 3) <= 1")]
        wanted = {"s0": {3}, "s1": {1, 2, 3}}
    return spark.createDataFrame(texts, "subscription string, predicate string"), wanted


def as_stream(df: DataFrame, path: Path) -> DataFrame:
    source = df.sparkSession.readStream.schema(stored(df, path).schema)
    return source.option("maxFilesPerTrigger", 1).parquet(str(path))


def some_damaged(df: DataFrame, name: str, cut: str, other: str) -> DataFrame:
    """One message is too short, another one begins with another kind."""
    rest = F.expr(f"substring({name}, 2)")
    return damaged(df, name, {cut: rest, other: F.concat(F.lit(b"\xee"), rest)})


def check_encoded(events: DataFrame, matcher: Matcher) -> DataFrame:
    """Those that cannot be encoded are set aside, no others; returns the others."""
    told = reasons(events, "event")
    assert told.keys() == GONE.keys()
    assert all(f"attribute {attribute(matcher)!r}: " in told[number] for number in GONE)
    assert "1000" not in told[6] and "'d'" not in told[6]
    return events.where("rejected IS NULL").drop("rejected")


WRONG_BYTES, WRONG_KIND = "wrong number of bytes", "message of this version"


@pytest.mark.slow
@pytest.mark.parametrize(
    "matcher",
    [one for one in MATCHERS.values() if one.keying is Keying.ROUNDS],
    ids=lambda matcher: type(matcher).__name__,
)
def test_pairs(spark: SparkSession, seed: object, tmp_path: Path, matcher: Matcher) -> None:
    wanted, meaning = wishes(spark, matcher)
    plain = records(spark, matcher).withColumn("round", F.col("event"))
    broadcast = matcher.answers is Answers.ROUND
    labels = spark.createDataFrame([("s0",), ("s1",)], "subscription string")
    addressed = plain if broadcast else plain.crossJoin(labels)
    events = stored(
        cs.encode_events(addressed, matcher, KEY, keep=["event"], on_error="reject"),
        tmp_path / "events",
    )
    for condition in ["true"] if broadcast else ["subscription = 's0'", "subscription = 's1'"]:
        check_encoded(events.where(condition), matcher)
    events = events.where("rejected IS NULL").drop("rejected")
    interests = stored(
        cs.encode_interests(wanted, matcher, KEY, rounds=range(EVENTS), on_error="reject"),
        tmp_path / "interests",
    )
    told = reasons(interests, "subscription", "round")
    assert told.keys() == {("bad", n) for n in range(EVENTS)}
    interests = interests.where("rejected IS NULL").drop("rejected")

    expected = {
        (label, number): value(matcher, number) in meaning[label]
        for label in ("s0", "s1")
        for number in range(EVENTS)
        if number not in GONE
    }
    assert {*expected.values()} == {True, False}
    cut, other = "subscription = 's0' AND round = 1", "subscription = 's1' AND round = 2"
    bad = some_damaged(interests, "interest_message", cut, other)
    aside = {("s0", 1): WRONG_BYTES, ("s1", 2): WRONG_KIND}
    check_answers(cs.match(events, bad, matcher, on_error="reject"), expected, aside)
    on = ["round"] if broadcast else ["subscription", "round"]
    rest = {pair: answer for pair, answer in expected.items() if pair not in aside}
    met = {pair for pair, answer in rest.items() if answer}
    check_column(spark, events.join(bad, on), matcher, None, met)

    # Stores take the rows that are messages; what the others lack is missing.
    for kind, df in (("event", events), ("interest", bad)):
        told_of = cs.check_messages(df, matcher, kind=kind)  # type: ignore[arg-type]
        assert told_of.where("rejected IS NOT NULL").count() == 2 * (kind == "interest")
        good = told_of.where("rejected IS NULL")
        cs.write_messages(good, tmp_path / f"{kind}-store", matcher, kind=kind)  # type: ignore[arg-type]
    paths = tmp_path / "event-store", tmp_path / "interest-store"
    check_answers(cs.match_messages(spark, *paths, matcher, on_error="reject"), rest, {})

    stream = as_stream(events, tmp_path / "sent")
    found = streamed(cs.match(stream, bad, matcher, on_error="reject"), tmp_path)
    check_answers(found, expected, aside)


def check_answers(
    found: DataFrame, expected: dict[tuple[str, int], bool], aside: dict[tuple[str, int], str]
) -> None:
    """Each pair has its answer, but those that are set aside, whose reason says so."""
    found = found.persist()
    assert answers(found) == {**expected, **dict.fromkeys(aside)}
    check_reasons(reasons(found, "subscription", "round"), aside)
    found.unpersist()


def check_reasons(told: dict[Any, str], aside: dict[Any, str]) -> None:
    assert told.keys() == aside.keys()
    assert all(aside[row] in why for row, why in told.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    "matcher",
    [one for one in MATCHERS.values() if one.answers is Answers.ALL],
    ids=lambda matcher: type(matcher).__name__,
)
def test_all_pairs(spark: SparkSession, tmp_path: Path, matcher: Matcher) -> None:
    (tmp_path / "keys").mkdir()
    keys = issued(matcher, tmp_path / "keys")
    wanted, meaning = wishes(spark, matcher)
    encoded = cs.encode_events(
        records(spark, matcher), matcher, keys["publisher"], keep=["event"], on_error="reject"
    )
    events = check_encoded(stored(encoded, tmp_path / "events"), matcher)
    another = wanted.where("subscription = 's0'").withColumn("subscription", F.lit("cut"))
    foreign = another.withColumn("subscription", F.lit("other"))
    asked = wanted.union(another).union(foreign)
    interests = stored(
        cs.encode_interests(asked, matcher, keys["subscriber"], on_error="reject"),
        tmp_path / "interests",
    )
    assert reasons(interests, "subscription").keys() == {"bad"}
    interests = interests.where("rejected IS NULL").drop("rejected")

    sent = some_damaged(events, "event_message", "event = 1", "event = 2")
    cut, other = "subscription = 'cut'", "subscription = 'other'"
    bad = some_damaged(interests, "interest_message", cut, other)
    matches = {
        (label, number)
        for label in ("s0", "s1")
        for number in range(EVENTS)
        if number not in (1, 2, *GONE) and value(matcher, number) in meaning[label]
    }
    assert {label for label, _ in matches} == {"s0", "s1"}
    sides = {("cut", None): WRONG_BYTES, ("other", None): "interest", (None, 1): WRONG_BYTES}
    sides |= {(None, 2): "event"}
    options: dict[str, Any] = {"on_error": "reject"}
    for strategy in ("closure", "blocks", "auto"):
        options["strategy"] = strategy
        found = cs.match_all_pairs(sent, bad, matcher, keys["broker"], **options)
        check_matches(found, matches, sides)
    # What s0 wants is about one topic, what the others want about all.
    topic = F.when(F.col("subscription") == "s0", 0).cast("long")
    found = cs.match_all_pairs(
        sent.withColumn("topic", F.col("event") % 2),
        bad.withColumn("topic", topic),
        matcher,
        keys["broker"],
        **options | {"topic": "topic", "strategy": "topic"},
    )
    about = {(label, number) for label, number in matches if label != "s0" or number % 2 == 0}
    assert len(about) < len(matches)
    check_matches(found, about, sides)
    check_column(spark, sent.crossJoin(bad), matcher, keys["broker"], matches)
    stream = as_stream(sent, tmp_path / "sent")
    found = cs.match(stream, bad, matcher, keys["broker"], on_error="reject")
    events_aside = {row: why for row, why in sides.items() if row[0] is None}
    check_matches(streamed(found, tmp_path), matches, events_aside)


def check_column(
    spark: SparkSession,
    both: DataFrame,
    matcher: Matcher,
    key: cs.KeySource | None,
    matches: set[tuple[str, int]],
) -> None:
    """What a column of both messages, and SQL's function, say of rows that have both."""
    decide = cs.match_udf(matcher, key, on_error="reject")
    column = decide("event_message", "interest_message")
    spark.udf.register("ccbps_match", decide)
    both.createOrReplaceTempView("both_sides")
    said = spark.sql(
        "SELECT *, ccbps_match(event_message, interest_message) AS said FROM both_sides"
    )
    rows = said.withColumn("answer", column).select("subscription", "event", "answer", "said")
    told = rows.collect()
    assert {(r["subscription"], r["event"]) for r in told if r["answer"]["matched"]} == matches
    assert [r for r in told if r["answer"]["rejected"]]
    assert all(r["said"] == r["answer"] for r in told)


def check_matches(
    found: DataFrame, matches: set[tuple[str, int]], aside: dict[tuple[str | None, int | None], str]
) -> None:
    told = {pair: row["rejected"] for pair, row in rows_by(found, "subscription", "event").items()}
    assert {pair for pair, why in told.items() if why is None} == matches
    check_reasons({pair: why for pair, why in told.items() if why}, aside)


@pytest.mark.slow
@pytest.mark.parametrize(
    "matcher",
    [one for one in MATCHERS.values() if one.keying is Keying.SESSION],
    ids=lambda matcher: type(matcher).__name__,
)
def test_sessions(spark: SparkSession, tmp_path: Path, matcher: Any) -> None:
    texts = ["kind = 'a'", "kind = 'b'", "kind = 'c'"]
    publisher, alice = matcher.new_publisher(texts), matcher.new_subscriber()
    introduce(publisher, alice)
    alice.accept(publisher.answer(alice.encode(texts[1:])))
    plain = records(spark, matcher).withColumn("round", F.col("event") + 100)
    encoded = cs.encode_events(
        plain, matcher, save(tmp_path / "p", publisher.key), keep=["event"], on_error="reject"
    )
    events = check_encoded(stored(encoded, tmp_path / "events"), matcher)
    key = save(tmp_path / "s", alice.key)
    sent = some_damaged(events, "event_message", "event = 1", "event = 2")
    matches = {
        (place, number)
        for place in range(2)
        for number in range(EVENTS)
        if number not in (1, 2, *GONE) and value(matcher, number) == "bc"[place]
    }
    stream = cs.match(as_stream(sent, tmp_path / "sent"), None, matcher, key, on_error="reject")
    for found in (
        cs.match(sent, None, matcher, key, on_error="reject"),
        streamed(stream, tmp_path),
    ):
        rows = found.select("interest", "event", "rejected").collect()
        assert {(r["interest"], r["event"]) for r in rows if r["rejected"] is None} == matches
        told = {row["event"]: row["rejected"] for row in rows if row["rejected"]}
        assert told.keys() == {1, 2} and len(rows) == len(matches) + 2
        assert "bytes" in told[1]
