"""A few bad rows amid a million: each is set aside with its reason, and no other answer changes.

Results are compared as wholes, reasons with them: so a reason that held a value would be another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.columnar.addressing import OTHER_CONTENT
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching import BroadcastMatch, FormulaMatch, TagMatch
from ccbps.spark.columns import NUMBER_REPEATED, REPEATED
from ccbps.wire import Cause
from tests.support.spark_session import KEY, damaged, issued, stored

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ISSUES = ["AAPL", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), price=UInt(10))
# Later, with one more category: messages of both are equally long.
CHANGED = Schema(issue=Category([*ISSUES, "ORCL"]), price=UInt(10))
BOX, OTHER = FormulaMatch.box(SCHEMA), FormulaMatch.box(CHANGED)
PREDICATE = "issue = 'IBM' AND price < 700"
MILLION: Final = 1_000_000
PAIR = ["subscription", "round"]
NO_ISSUE, NO_CATEGORY, NO_PRICE = REASONS = (
    "attribute 'issue': the value is missing (None, NaN or NaT); declare it "
    "Category(..., nullable=True) to allow that",
    "attribute 'issue': not in the list; expected one of 'AAPL', 'IBM', 'MSFT'",
    "attribute 'price': out of range; expected a whole number 0..1023",
)
NO_PREDICATE = (
    "unknown attribute; the schema has issue, price; the closest is 'price'; strings are written "
    "in single quotes; double_quoted_strings=True takes them in double quotes, and names in "
    "backticks only"
)
Aside = Sequence[tuple[str | int | None, ...]]
"""Rows that have no message or no answer: what names them, and why; NULL where there was
no message to decide."""


def bad(count: int) -> dict[int, str]:
    """Which of so many quotes cannot be encoded, and why."""
    return dict(zip((count // 7, count // 3, count - 1), REASONS, strict=True))


def quotes(spark: SparkSession, count: int) -> DataFrame:
    """Events with ids, of which those in `bad` do not fit the schema."""
    missing, unknown, outside = bad(count)
    return spark.range(count).selectExpr(
        "id",
        f"CASE id WHEN {missing} THEN NULL WHEN {unknown} THEN 'SAP' ELSE "
        "element_at(array('AAPL', 'IBM', 'MSFT'), CAST(id % 7 % 3 + 1 AS int)) END AS issue",
        f"CAST(CASE id WHEN {outside} THEN 4567 ELSE id % 1024 END AS int) AS price",
    )


def assert_rows(found: DataFrame, plain: DataFrame, aside: Aside, answer: str = "true") -> None:
    """Is there one row for each of `plain`, with `answer`, but for those set aside?

    Args:
        found: columns that name a row, an answer, and a reason.
        aside: of these, there are as many rows as are listed.
    """
    *names, value, why = found.columns
    kinds = {"subscription": "string"}
    columns = ", ".join(f"{name} {kinds.get(name, 'long')}" for name in names)
    refused = plain.sparkSession.createDataFrame(list(aside), f"{columns}, {why} string")
    wanted = (
        plain.join(refused, names, "left_anti")
        .selectExpr(*names, f"{answer} AS {value}", f"CAST(NULL AS string) AS {why}")
        .unionByName(refused.withColumn(value, F.lit(None).cast("boolean")))
    )
    assert_same(found, wanted)


def assert_same(found: DataFrame, wanted: DataFrame) -> None:
    """Have both the same rows, as often?"""
    signed = found.withColumn("times", F.lit(1)).unionByName(wanted.withColumn("times", F.lit(-1)))
    counted = signed.groupBy(*found.columns).agg(F.sum("times").alias("times"))
    assert counted.where("times != 0").limit(20).collect() == []


def sent(encoded: DataFrame, names: Sequence[str], message: str) -> DataFrame:
    """What an encoder says of each row: true where there is a message."""
    return encoded.selectExpr(*names, f"nullif({message} IS NOT NULL, false) AS sent", "rejected")


def at(label: str, number: int) -> str:
    """In SQL, one pair and round."""
    return f"subscription = '{label}' AND round = {number}"


def swapped(df: DataFrame, rows: str, others: DataFrame) -> DataFrame:
    """With others in place of some rows."""
    return df.where(f"NOT ({rows})").unionByName(others)


@dataclass(frozen=True)
class Sides:
    """Of a million pairs and rounds: the plaintext, and what encoders made of it, with reasons."""

    plain: DataFrame
    wanted: DataFrame
    events: DataFrame
    interests: DataFrame
    no_event: Aside
    no_interest: Aside


def wishes(plain: DataFrame, unusable: dict[str, str]) -> DataFrame:
    """An interest for each row; where SQL conditions hold, another one, in SQL."""
    others = " ".join(f"WHEN {condition} THEN {text}" for condition, text in unusable.items())
    return plain.selectExpr(*PAIR, f'CASE {others} ELSE "{PREDICATE}" END AS predicate')


@pytest.fixture(scope="module")
def sides(spark: SparkSession, seed: object, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    folder = tmp_path_factory.mktemp("poison")
    plain = quotes(spark, MILLION).selectExpr(
        "concat('s', id % 10) AS subscription", "id div 10 AS round", "issue", "price"
    )
    again = plain.where(at("s9", 3)).withColumn("price", F.lit(1))
    # Beyond the rounds that a ledger allots below, so that its events all have interests.
    unusable = {at("s4", 99_998): "'pryce < 4567'", at("s4", 99_997): "NULL"}
    wanted = wishes(plain, unusable)
    twice = wanted.where(at("s9", 99_996))
    return Sides(
        plain,
        wanted,
        stored(
            cs.encode_events(plain.union(again), BOX, KEY, on_error="reject"), folder / "events"
        ),
        stored(
            cs.encode_interests(wanted.union(twice), BOX, KEY, on_error="reject"),
            folder / "interests",
        ),
        [(f"s{i % 10}", i // 10, why) for i, why in bad(MILLION).items()]
        + [("s9", 3, REPEATED)] * 2,
        [("s4", 99_998, NO_PREDICATE), ("s4", 99_997, "the predicate is NULL")]
        + [("s9", 99_996, REPEATED)] * 2,
    )


def test_encoders_set_rows_aside(sides: Sides) -> None:
    assert_rows(sent(sides.events, PAIR, "event_message"), sides.plain, sides.no_event)
    assert_rows(sent(sides.interests, PAIR, "interest_message"), sides.plain, sides.no_interest)


def poisoned(sides: Sides) -> tuple[DataFrame, DataFrame, Aside]:
    """Messages of the right width, of which some belong elsewhere or are none; and which ones."""
    events, interests = (df.drop("rejected") for df in (sides.events, sides.interests))
    few = "round BETWEEN 40 AND 61"
    event, interest = (
        {(row[0], row[1]): bytes(row[2]) for row in df.where(few).select(*PAIR, message).collect()}
        for df, message in ((events, "event_message"), (interests, "interest_message"))
    )
    flipped = bytearray(event["s7", 51])
    flipped[5] ^= 1
    events = damaged(
        events,
        "event_message",
        {
            at("s6", 40): event["s6", 41],
            at("s6", 41): event["s5", 41],
            at("s7", 50): b"\7" + event["s7", 50][1:],
            at("s7", 51): bytes(flipped),
        },
    )
    interests = damaged(
        interests,
        "interest_message",
        {at("s8", 60): interest["s8", 61], at("s8", 61): b"\7" + interest["s8", 61][1:]},
    )
    # Of the matcher whose schema has changed: events, interests, and in the middle both.
    new = [f"subscription = 's5' AND round BETWEEN {n} AND {n + 199}" for n in (31_000, 31_100)]
    events = swapped(events, new[0], cs.encode_events(sides.plain.where(new[0]), OTHER, KEY))
    interests = swapped(
        interests, new[1], cs.encode_interests(sides.wanted.where(new[1]), OTHER, KEY)
    )
    pairing = [("s6", 40), ("s6", 41), ("s7", 51), ("s8", 60)]
    pairing += [("s5", number) for number in range(31_000, 31_300)]
    return (
        events,
        interests,
        [
            *((*pair, Cause.PAIRING.text) for pair in pairing),
            ("s7", 50, Cause.EVENT_KIND.text),
            ("s8", 61, Cause.INTEREST_KIND.text),
        ],
    )


def test_match_sets_rows_aside(sides: Sides) -> None:
    events, interests, aside = poisoned(sides)
    events = damaged(events, "event_message", {at("s1", 70): b"cut off"})
    interests = damaged(interests, "interest_message", {at("s1", 71): b"cut off"})
    events = events.union(events.where(at("s8", 80)))
    found = cs.match(events, interests, BOX, on_error="reject")
    assert_rows(
        found,
        sides.plain,
        [
            *aside,
            ("s1", 70, Cause.EVENT_WIDTH.text),
            ("s1", 71, Cause.INTEREST_WIDTH.text),
            *[("s8", 80, REPEATED)] * 2,
            # What has no message has no answer, and only what comes twice is wrong here.
            *(
                (label, number, why if why == REPEATED else None)
                for label, number, why in (*sides.no_event, *sides.no_interest)
            ),
        ],
        PREDICATE,
    )


def test_stores_set_rows_aside(spark: SparkSession, sides: Sides, tmp_path: Path) -> None:
    events, interests, aside = poisoned(sides)
    paths = {"event": tmp_path / "events", "interest": tmp_path / "interests"}
    for df, kind in ((events, "event"), (interests, "interest")):
        whole = df.where(f"{kind}_message IS NOT NULL")
        cs.write_messages(whole, paths[kind], BOX, kind=kind)
        again = whole.where(at("s2", 500))
        assert again.count() == 1
        cs.write_messages(again, paths[kind], BOX, kind=kind, mode="append")
        width = BOX.event_bytes if kind == "event" else BOX.interest_bytes
        other = again.withColumn(f"{kind}_message", F.lit(bytearray(width)))
        with pytest.raises(RandomnessReuseError, match="subscription='s2', round=500"):
            cs.write_messages(other, paths[kind], BOX, kind=kind, mode="append")
    found = cs.match_messages(spark, *paths.values(), BOX, on_error="reject")
    missing = {row[:2] for row in (*sides.no_event, *sides.no_interest)}
    gone = spark.createDataFrame(list(missing), "subscription string, round long")
    assert_rows(found, sides.plain.join(gone, PAIR, "left_anti"), aside, PREDICATE)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("CAST(NULL AS binary)", "the message is NULL; leave such rows out"),
        ("X'2345'", "the message has 2 bytes; messages of this matcher have 20"),
        (None, "occurs twice; a pair and round has one message"),
    ],
)
def test_stores_name_the_row_that_is_no_message(
    sides: Sides, tmp_path: Path, message: str | None, problem: str
) -> None:
    events, here = sides.events.where("rejected IS NULL"), at("s2", 500)
    nothing = f"X'{bytes(BOX.event_bytes).hex()}'"
    row = events.where(here).withColumn("event_message", F.expr(message or nothing))
    if message is not None:
        events = events.where(f"NOT ({here})")
    with pytest.raises(ParameterError, match=f"subscription='s2', round=500:? {problem}"):
        cs.write_messages(events.unionByName(row), tmp_path / "store", BOX, kind="event")
    assert not list((tmp_path / "store").iterdir())


def test_a_ledger_sets_rows_aside(spark: SparkSession, sides: Sides, tmp_path: Path) -> None:
    """A row has a number, and its event an id: 4 has that of 3, with other content; 60 has none."""
    count, labels = MILLION // 10, [f"s{i}" for i in range(10)]
    plain = quotes(spark, count)
    given = plain.selectExpr(
        "id AS number", "CASE id WHEN 4 THEN 3 WHEN 60 THEN NULL ELSE id END AS event", *SCHEMA
    )
    ledger = cs.EventLedger(tmp_path / "events.ledger", rounds=count)
    encoded = cs.encode_events(
        given, BOX, KEY, ledger=ledger, labels=labels, keep=["number"], on_error="reject"
    )
    events = stored(encoded, tmp_path / "events")
    aside = {**bad(count), 4: OTHER_CONTENT, 60: "column 'event' is NULL"}
    addressed = plain.withColumnRenamed("id", "number").crossJoin(
        spark.createDataFrame([(label,) for label in labels], "subscription string")
    )
    names = ["subscription", "number"]
    # An event that is set aside has one row, for all labels.
    used = addressed.where(~F.col("number").isin([*aside]))
    assert_rows(sent(events, names, "event_message"), used, [(None, *one) for one in aside.items()])
    assert ledger.used() == count - len(aside)
    found = cs.match(
        events.drop("rejected"), sides.interests.drop("rejected"), BOX, on_error="reject"
    )
    assert_rows(found.select(*names, "matched", "rejected"), used, [], PREDICATE)


def test_a_broadcast_sets_rows_aside(spark: SparkSession, seed: object, tmp_path: Path) -> None:
    box, other = BroadcastMatch.box(SCHEMA), BroadcastMatch.box(CHANGED)
    rounds, labels = 2000, 500
    plain = quotes(spark, rounds).withColumnRenamed("id", "round")
    again = plain.where("round = 3").withColumn("price", F.lit(1))
    encoded = stored(
        cs.encode_events(plain.union(again), box, KEY, on_error="reject"), tmp_path / "events"
    )
    no_event = [*bad(rounds).items(), *[(3, NUMBER_REPEATED)] * 2]
    assert_rows(sent(encoded, ["round"], "event_message"), plain, no_event)

    addressed = plain.crossJoin(spark.range(labels).selectExpr("concat('s', id) AS subscription"))
    unusable = {at("s4", 8): "'pryce < 4567'", at("s4", 9): "NULL"}
    wanted = wishes(addressed, unusable)
    twice = wanted.where(at("s9", 4))
    asked = stored(
        cs.encode_interests(wanted.union(twice), box, KEY, on_error="reject"),
        tmp_path / "interests",
    )
    no_interest = [
        ("s4", 8, NO_PREDICATE),
        ("s4", 9, "the predicate is NULL"),
        *[("s9", 4, REPEATED)] * 2,
    ]
    assert_rows(sent(asked, PAIR, "interest_message"), addressed, no_interest)

    events, interests = encoded.drop("rejected"), asked.drop("rejected")
    event, wish = (
        bytes(df.where(here).select(message).collect()[0][0])
        for df, here, message in (
            (events, "round = 41", "event_message"),
            (interests, at("s8", 61), "interest_message"),
        )
    )
    events = damaged(
        events,
        "event_message",
        {"round = 40": event, "round = 41": b"\7" + event[1:], "round = 42": b"cut off"},
    )
    interests = damaged(
        interests,
        "interest_message",
        {at("s8", 60): wish, at("s8", 61): b"\7" + wish[1:], at("s8", 62): b"cut off"},
    )
    new = ["round BETWEEN 1000 AND 1009", "subscription = 's5' AND round BETWEEN 1005 AND 1099"]
    events = swapped(events, new[0], cs.encode_events(plain.where(new[0]), other, KEY))
    interests = swapped(interests, new[1], cs.encode_interests(wanted.where(new[1]), other, KEY))
    events = events.union(events.where("round = 80"))
    interests = interests.union(interests.where(at("s8", 90)))
    found = cs.match(events, interests, box, on_error="reject")
    everybody = [f"s{i}" for i in range(labels)]
    whole = [*bad(rounds), 40, 41, 42, *range(1000, 1010)]
    causes = {40: Cause.PAIRING, 41: Cause.EVENT_KIND, 42: Cause.EVENT_WIDTH}
    causes |= dict.fromkeys(range(1000, 1010), Cause.PAIRING)
    assert_rows(
        found.select(*PAIR, "matched", "rejected"),
        addressed,
        [
            *(
                (label, number, causes[number].text if number in causes else None)
                for number in whole
                for label in everybody
            ),
            *[(label, number, REPEATED) for number in (3, 80) for label in everybody] * 2,
            *[("s9", 4, REPEATED), ("s8", 90, REPEATED)] * 2,
            ("s4", 8, None),
            ("s4", 9, None),
            ("s8", 60, Cause.PAIRING.text),
            ("s8", 61, Cause.INTEREST_KIND.text),
            ("s8", 62, Cause.INTEREST_WIDTH.text),
            *(("s5", number, Cause.PAIRING.text) for number in range(1010, 1100)),
        ],
        PREDICATE,
    )


def test_all_pairs_set_rows_aside(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows are matches here, and what cannot be used has one of its own."""
    tags, other = TagMatch(SCHEMA, topic=["issue"]), TagMatch(CHANGED, topic=["issue"])
    keys, changed, foreign = (
        issued(matcher, tmp_path_factory.mktemp("keys")) for matcher in (tags, other, tags)
    )
    plain = quotes(spark, MILLION)
    encoded = stored(
        cs.encode_events(plain, tags, keys["publisher"], keep=["id"], on_error="reject"),
        tmp_path_factory.mktemp("tags") / "events",
    )
    assert_rows(sent(encoded, ["id"], "event_message"), plain, [*bad(MILLION).items()])

    predicates = {"s0": PREDICATE, "s1": "price >= 512"}
    wanted = spark.createDataFrame(
        [*predicates.items(), *((label, PREDICATE) for label in ("changed", "foreign", "cut"))],
        "subscription string, predicate string",
    )
    asked = cs.encode_interests(wanted, tags, keys["subscriber"])
    interests = damaged(asked, "interest_message", {"subscription = 'cut'": b"cut off"})
    events = encoded.drop("rejected")
    whole = bytes(events.where("id = 700000").collect()[0]["event_message"])
    flipped = {"id = 700000": b"\7" + whole[1:], "id = 800000": b"cut off"}
    events = damaged(events, "event_message", flipped)
    for label, matcher, theirs, first in (
        ("changed", other, changed, 500_000),
        ("foreign", tags, foreign, 600_000),
    ):
        rows, own = f"id BETWEEN {first} AND {first + 99}", f"subscription = '{label}'"
        made = cs.encode_events(plain.where(rows), matcher, theirs["publisher"], keep=["id"])
        wish = cs.encode_interests(wanted.where(own), matcher, theirs["subscriber"])
        events, interests = swapped(events, rows, made), swapped(interests, own, wish)
    causes = {
        **dict.fromkeys(range(500_000, 500_100), Cause.EVENT_MATCHER),
        **dict.fromkeys(range(600_000, 600_100), Cause.KEY),
        700_000: Cause.EVENT_KIND,
        800_000: Cause.EVENT_WIDTH,
    }
    aside = [
        *((None, number, cause.text) for number, cause in causes.items()),
        ("changed", None, Cause.INTEREST_MATCHER.text),
        ("foreign", None, Cause.KEY.text),
        ("cut", None, Cause.INTEREST_WIDTH.text),
    ]
    expected = spark.createDataFrame(aside, "subscription string, id long, rejected string")
    unusable = spark.createDataFrame([(one,) for one in (*causes, *bad(MILLION))], "id long")
    good = plain.join(unusable, "id", "left_anti")
    for label, predicate in predicates.items():
        matches = good.where(predicate).selectExpr(f"'{label}'", "id", "CAST(NULL AS string)")
        expected = expected.union(matches)
    found = cs.match(events, interests, tags, keys["broker"], on_error="reject")
    assert_same(found, expected)
