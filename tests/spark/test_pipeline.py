"""The adapter end to end: answers equal the plaintext, NULLs, bad input, secrets, delivery."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Decimal, EpochSeed, Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import KeyMismatchError, ParameterError, RandomnessReuseError
from ccbps.keys import sources as keysource
from ccbps.matching import BranchingMatch
from tests.spark.conftest import KEY, MODE, Places

pytestmark = pytest.mark.spark

Stages = tuple[pa.Table, DataFrame, DataFrame]
QUOTES = Schema(
    issue=Category(["AAPL", "GOOG", "IBM"]),
    price=Decimal(0, "655.35", step="0.01"),
    volume=UInt(20, nullable=True),
)
BOX = BranchingMatch.box(QUOTES)
PREDICATES = [
    "issue = 'IBM'",
    "issue LIKE 'G%' AND price < 300",
    "price BETWEEN 100 AND 400 AND volume > 500000",
    "volume IS NULL",
    "price < 0",
]


def records(count: int) -> pa.Table:
    rng = np.random.default_rng(11)
    return pa.table(
        {
            "event": np.arange(count),
            "issue": rng.choice(["AAPL", "GOOG", "IBM"], count).tolist(),
            "price": np.round(rng.uniform(0, 655, count), 2),
            "volume": pa.array(rng.integers(0, 1 << 20, count), mask=rng.uniform(size=count) < 0.2),
        }
    )


def subscriptions(spark: SparkSession, predicates: list[Any] = PREDICATES) -> DataFrame:
    rows = [(f"s{i}", predicate) for i, predicate in enumerate(predicates)]
    return spark.createDataFrame(rows, "subscription string, predicate string")


def event_messages(spark: SparkSession, table: pa.Table, key: cs.KeySource = KEY) -> DataFrame:
    events = spark.createDataFrame(table).withColumn("round", F.col("event"))
    addressed = events.crossJoin(subscriptions(spark).select("subscription"))
    return cs.encode_events(addressed, BOX, key, keep=["event"])


def interest_messages(spark: SparkSession, rounds: int, key: cs.KeySource = KEY) -> DataFrame:
    numbers = spark.range(rounds).withColumnRenamed("id", "round")
    return cs.encode_interests(subscriptions(spark).crossJoin(numbers), BOX, key)


def answers(df: DataFrame) -> dict[tuple[str, int], bool | None]:
    return {(r["subscription"], r["round"]): r["matched"] for r in df.collect()}


@pytest.fixture(scope="module")
def stages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    """300 events for 5 subscriptions, both sides' messages through Parquet."""
    table, folder = records(300), tmp_path_factory.mktemp("messages")
    frames = []
    for name, df in (
        ("events", event_messages(spark, table)),
        ("interests", interest_messages(spark, table.num_rows)),
    ):
        df.write.parquet(str(folder / name))
        frames.append(spark.read.parquet(str(folder / name)))
    return table, frames[0], frames[1]


def test_match_equals_the_plaintext_filter(stages: Stages) -> None:
    table, events, interests = stages
    got = answers(cs.match(events, interests, BOX))
    assert len(got) == table.num_rows * len(PREDICATES)
    for i, text in enumerate(PREDICATES):
        wanted = QUOTES.parse(text).evaluate(table)
        assert [got[f"s{i}", n] for n in range(table.num_rows)] == wanted.tolist(), text
    assert any(got.values())


def test_encoded_frames_keep_ids_and_drop_what_is_private(stages: Stages) -> None:
    _, events, interests = stages
    assert set(events.columns) == {"event", "subscription", "round", "event_message"}
    assert set(interests.columns) == {"subscription", "round", "interest_message"}


def test_columns_travel_when_they_are_asked_for(spark: SparkSession) -> None:
    events = spark.createDataFrame(records(3)).withColumns(
        {"round": F.col("event"), "subscription": F.lit("s"), "client": F.lit("ACME")}
    )
    wanted = subscriptions(spark).withColumns({"round": F.lit(1), "owner": F.lit("Alice")})
    payloads = events.select("event", "client", F.lit("x").alias("payload"))
    ids = ["subscription", "round"]
    assert cs.encode_events(events, BOX, KEY).columns == ["round", "subscription", "event_message"]
    assert cs.encode_interests(wanted, BOX, KEY).columns == [*ids, "interest_message"]
    assert cs.seal_payloads(payloads, KEY).columns == ["event", "sealed"]
    kept = cs.encode_events(events, BOX, KEY, keep=["client", "event"])
    assert set(kept.columns) == {*ids, "client", "event", "event_message"}
    assert {row["client"] for row in kept.collect()} == {"ACME"}
    kept = cs.encode_interests(wanted, BOX, KEY, keep=["owner"])
    assert kept.columns == [*ids, "owner", "interest_message"]
    assert cs.seal_payloads(payloads, KEY, keep=["client"]).columns == ["event", "client", "sealed"]
    for call, keep, problem in (
        (
            lambda keep: cs.encode_events(events, BOX, KEY, keep=keep),
            ["price"],
            "'price', which is",
        ),
        (lambda keep: cs.encode_interests(wanted, BOX, KEY, keep=keep), ["predicate"], "encoded"),
        (lambda keep: cs.seal_payloads(payloads, KEY, keep=keep), ["payload"], "encoded because"),
        (
            lambda keep: cs.encode_events(events, BOX, KEY, keep=keep),
            ["clint"],
            "'clint' is missing",
        ),
        (lambda keep: cs.encode_events(events, BOX, KEY, keep=keep), "client", "must be a list"),
    ):
        with pytest.raises(ParameterError, match=problem):
            call(keep)
    with pytest.raises(ParameterError, match=r"'event' is missing.*keep=\[\.\.\.\]"):
        cs.wrap_keys(cs.encode_events(events, BOX, KEY), KEY)


def test_records_that_cannot_be_encoded_are_set_aside(spark: SparkSession) -> None:
    price = pa.array([1.0, 31415.25, 2.345678, None, 5.0, 6.0])
    issue = pa.array(["IBM", "IBM", "GOOG", "GOOG", "SECRET", "AAPL"])
    table = records(6).set_column(1, "issue", issue).set_column(2, "price", price)
    frame = spark.createDataFrame(table).withColumn("round", F.col("event"))
    frame = frame.withColumn("subscription", F.expr("CASE WHEN event < 5 THEN 's' END")).coalesce(1)
    rows = cs.encode_events(frame, BOX, KEY, on_error="reject").orderBy("round").collect()
    reasons = [row["rejected"] for row in rows]
    assert reasons[0] is None and reasons[5] is None
    assert "attribute 'price': out of range; expected a number 0..655.35" in reasons[1]
    assert "attribute 'price': not a multiple of step" in reasons[2]
    assert "attribute 'price': the value is missing" in reasons[3]
    assert "attribute 'issue'" in reasons[4]
    assert not any(value in "".join(filter(None, reasons)) for value in ("31415", "345", "SECRET"))
    assert [row["event_message"] is None for row in rows] == [False, True, True, True, True, True]
    whole = cs.encode_events(frame.where("event = 0"), BOX, KEY).first()
    assert rows[0]["event_message"] == whole["event_message"]
    with pytest.raises(Exception, match=r"subscription='s', round=\d: attribute 'issue'"):
        cs.encode_events(frame, BOX, KEY).collect()
    with pytest.raises(ParameterError, match="on_error must be"):
        cs.encode_events(frame, BOX, KEY, on_error="drop")  # type: ignore[arg-type]
    kind = frame.withColumn("issue", F.lit(5))  # nothing that a row could help
    with pytest.raises(Exception, match="wrong type"):
        cs.encode_events(kind, BOX, KEY, on_error="reject").collect()


def test_predicates_that_cannot_be_encoded_are_set_aside(spark: SparkSession) -> None:
    texts = ["price < 3", "pryce < 31415", None, "price < 'SECRET'", "issue = 'IBM' OR price < 5"]
    df = subscriptions(spark, texts).coalesce(1)
    frame = df.crossJoin(spark.range(2).withColumnRenamed("id", "round"))
    rows = cs.encode_interests(frame, BOX, KEY, on_error="reject").collect()
    found = {(row["subscription"], row["round"]): row for row in rows}
    good = cs.encode_interests(frame.where("subscription = 's0'"), BOX, KEY).collect()
    for row in good:
        mine = found[row["subscription"], row["round"]]
        assert mine["interest_message"] == row["interest_message"]
    for (name, _), row in found.items():
        assert (row["interest_message"] is None) == (name != "s0")
        assert (row["rejected"] is None) == (name in ("s0", "s2"))
        assert not any(word in (row["rejected"] or "") for word in ("pryce", "31415", "SECRET"))
    assert "unknown attribute" in found["s1", 1]["rejected"]
    template = BranchingMatch(QUOTES, "price < :limit")
    values = spark.createDataFrame(
        [("a", 1, "x"), ("b", 1, "SECRET")], "subscription string, round long, limit string"
    )
    rows = cs.encode_interests(values, template, KEY, on_error="reject").collect()
    assert all("private constant" in row["rejected"] for row in rows)
    assert not any("SECRET" in row["rejected"] for row in rows)


def test_float_columns_are_refused_whatever_they_hold(spark: SparkSession) -> None:
    frame = spark.createDataFrame(records(2)).withColumns(
        {"round": F.col("event"), "subscription": F.lit("s"), "price": F.lit(1.0).cast("float")}
    )
    with pytest.raises(ParameterError, match=r"'price' is FLOAT.*cast\('decimal"):
        cs.encode_events(frame, BOX, KEY)
    template = BranchingMatch(QUOTES, "price < :limit")
    with pytest.raises(ParameterError, match="'price' is FLOAT"):
        cs.encode_interests(frame, template, KEY, constants={"limit": "price"})
    exact = frame.withColumn("price", F.lit(0.1).cast("float").cast("decimal(12,2)"))
    same = frame.withColumn("price", F.lit("0.10").cast("decimal(12,2)"))
    assert cs.encode_events(exact, BOX, KEY).collect() == cs.encode_events(same, BOX, KEY).collect()


def test_match_column_decides_within_a_row(stages: Stages) -> None:
    _, events, interests = stages
    joined = events.join(interests, ["subscription", "round"])
    column = cs.match_column("event_message", "interest_message", BOX).alias("matched")
    got = answers(joined.select("subscription", "round", column))
    assert got == answers(cs.match(events, interests, BOX))


def test_template_constants_come_from_columns(spark: SparkSession) -> None:
    template = "issue = :who AND (price < :limit OR volume IS NULL)"
    matcher = BranchingMatch(QUOTES, template)
    table = records(200)
    events = spark.createDataFrame(table).withColumn("round", F.col("event"))
    rows = [("a", "IBM", 200), ("b", "GOOG", 50)]
    wanted = spark.createDataFrame(rows, "subscription string, who string, cap int")
    numbers = spark.range(table.num_rows).withColumnRenamed("id", "round")
    encoded = cs.encode_events(events.crossJoin(wanted.select("subscription")), matcher, KEY)
    interests = cs.encode_interests(
        wanted.crossJoin(numbers), matcher, KEY, constants={"limit": "cap"}
    )
    got = answers(cs.match(encoded, interests, matcher))
    for name, who, limit in rows:
        plain = QUOTES.parse(template).bind(who=who, limit=limit).evaluate(table)
        assert [got[name, n] for n in range(table.num_rows)] == plain.tolist()


def test_null_in_gives_null_out(spark: SparkSession) -> None:
    rows = [("a", 0, "IBM", 1.0, 1), (None, 1, "IBM", 1.0, 1), ("a", None, "IBM", 1.0, 1)]
    kinds = "subscription string, round long, issue string, price double, volume long"
    events = cs.encode_events(spark.createDataFrame(rows, kinds), BOX, KEY).collect()
    assert [row["event_message"] is None for row in events] == [False, True, True]
    texts = [("a", 0, "price < 3"), ("a", 1, None), ("b", 2, "price < 4")]
    df = spark.createDataFrame(texts, "subscription string, round long, predicate string")
    interests = cs.encode_interests(df, BOX, KEY).collect()
    assert [row["interest_message"] is None for row in interests] == [False, True, False]
    both = spark.createDataFrame(
        [(bytes(events[0]["event_message"]), None)],
        "event_message binary, interest_message binary",
    )
    column = cs.match_column("event_message", "interest_message", BOX).alias("matched")
    assert both.select(column).collect()[0]["matched"] is None


def test_empty_frames_give_empty_frames(spark: SparkSession) -> None:
    none = event_messages(spark, records(3)).where("false")
    assert cs.match(none, interest_messages(spark, 3), BOX).count() == 0


def test_duplicate_rounds_are_refused_before_anything_is_encoded(spark: SparkSession) -> None:
    twice = spark.createDataFrame(
        [("a", 7, "price < 3"), ("b", 7, "price < 3"), ("a", 7, "price < 4")],
        "subscription string, round long, predicate string",
    )
    with pytest.raises(RandomnessReuseError, match=r"subscription 'a', round 7 occurs 2 times"):
        cs.encode_interests(twice, BOX, KEY)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("substring(event_message, 1, 40)", "wrong number of bytes"),
        ("concat(unhex('07'), substring(event_message, 2))", "not an event message"),
        (
            "concat(substring(event_message, 1, 2), unhex('FF'), substring(event_message, 4))",
            "another matcher",
        ),
        (
            "concat(substring(event_message, 1, 8), unhex('0102030405060708'), "
            "substring(event_message, 17))",
            "different pairs, rounds or seeds",
        ),
    ],
)
def test_malformed_messages_are_named_or_set_aside(stages: Stages, change: str, cause: str) -> None:
    _, events, interests = stages
    good = answers(cs.match(events, interests, BOX))
    hit = "subscription = 's1' AND round = 5"
    damaged = events.withColumn(
        "event_message", F.expr(f"CASE WHEN {hit} THEN {change} ELSE event_message END")
    )
    with pytest.raises(Exception, match=cause) as failure:
        cs.match(damaged, interests, BOX).collect()
    assert "subscription='s1', round=5" in str(failure.value)
    rows = cs.match(damaged, interests, BOX, on_error="reject").collect()
    rejected = {(r["subscription"], r["round"]): r["rejected"] for r in rows if r["rejected"]}
    assert list(rejected) == [("s1", 5)]
    assert cause in rejected["s1", 5]
    left = {(r["subscription"], r["round"]): r["matched"] for r in rows}
    assert left == {**good, ("s1", 5): None}


@pytest.mark.parametrize(("side", "again"), [("events", "same"), ("interests", "other")])
def test_a_pair_and_round_that_occurs_twice_is_not_counted_twice(
    stages: Stages, side: str, again: str
) -> None:
    _, *frames = stages
    good = answers(cs.match(*frames, BOX))
    place = ("events", "interests").index(side)
    message = f"{side[:-1]}_message"
    hit = frames[place].where("subscription = 's1' AND round IN (5, 6)")
    if again == "other":  # a message of another round under these: not what was encoded for them
        other = frames[place].where("subscription = 's1' AND round = 7").first()[message]
        hit = hit.withColumn(message, F.lit(other))
    twice = list(frames)
    twice[place] = frames[place].unionByName(hit)
    with pytest.raises(RandomnessReuseError, match=rf"'s1', round [56] occurs 2 .*in {side}\."):
        cs.match(*twice, BOX)
    decided = cs.match(*twice, BOX, on_error="reject")
    assert sorted(decided.columns) == sorted([*cs.match(*frames, BOX).columns, "rejected"])
    rows = decided.collect()
    bad = [r for r in rows if r["rejected"] is not None]
    assert sorted(r["round"] for r in bad) == [5, 5, 6, 6]
    assert {r["rejected"] for r in bad} == {"the pair and round occurs more than once"}
    assert {r["matched"] for r in bad} == {None}
    left = {(r["subscription"], r["round"]): r["matched"] for r in rows if not r["rejected"]}
    assert left == {key: value for key, value in good.items() if key not in _HIT}


_HIT = {("s1", 5), ("s1", 6)}


def test_messages_under_another_seed_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "seed"
    path.write_text(SharedSeed.generate().to_text())
    events = event_messages(spark, records(4), cs.FileKey(str(path)))
    with pytest.raises(Exception, match="different pairs, rounds or seeds"):
        cs.match(events, interest_messages(spark, 4), BOX).collect()


def test_a_replaced_key_file_is_read_at_the_next_job(spark: SparkSession, tmp_path: Path) -> None:
    path, found = tmp_path / "seed", []
    for _ in range(2):
        path.write_text(SharedSeed.generate().to_text())
        events = event_messages(spark, records(1), cs.FileKey(str(path)))
        found.append({bytes(r["event_message"]) for r in events.collect()})
    assert not found[0] & found[1]


def test_subscribers_use_a_ring_of_their_own_seeds(
    spark: SparkSession, seed: SharedSeed, tmp_path: Path
) -> None:
    path = tmp_path / "ring"
    path.write_text(seed.ring([f"s{i}" for i in range(len(PREDICATES))]).to_text())
    ring = cs.FileKey(str(path))
    with_ring = interest_messages(spark, 3, ring).orderBy("subscription", "round").collect()
    assert with_ring == interest_messages(spark, 3).orderBy("subscription", "round").collect()
    path.write_text(seed.ring(["s0"]).to_text())
    with pytest.raises(Exception, match="no seed for pair 's"):
        interest_messages(spark, 3, ring).collect()
    with pytest.raises(Exception, match="needs the master seed"):
        cs.wrap_keys(event_messages(spark, records(2)), ring).collect()


def test_epochs_match_in_key_files_and_a_worker_drops_the_last_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [f"s{i}" for i in range(len(PREDICATES))]
    master, ring = EpochSeed.generate(), None
    files = tmp_path / "publisher", tmp_path / "subscribers"
    publisher, subscribers = (cs.FileKey(str(file)) for file in files)
    found = []
    for _ in range(2):
        ring = master.ring(names) if ring is None else ring.step()
        files[0].write_text(master.to_text())
        files[1].write_text(ring.to_text())
        assert len({id(publisher.load()), id(publisher.load())}) == 1
        assert sum(str(files[0]) in place for place in keysource._parsed) == 1
        events = event_messages(spark, records(3), publisher)
        matched = cs.match(events, interest_messages(spark, 3, subscribers), BOX)
        found.append(sorted(map(tuple, matched.collect())))
        before, master = interest_messages(spark, 3, subscribers), master.step()
    assert found[0] == found[1]
    files[0].write_text(master.to_text())  # the subscribers are an epoch behind
    with pytest.raises(Exception, match="different pairs, rounds or seeds"):
        cs.match(event_messages(spark, records(3), publisher), before, BOX).collect()


@pytest.mark.parametrize("kind", ["string", "double"])
def test_rounds_that_are_no_whole_numbers_are_refused(spark: SparkSession, kind: str) -> None:
    df = subscriptions(spark).withColumn("round", F.lit(1).cast(kind))
    with pytest.raises(ParameterError, match="'round' must be a whole number"):
        cs.encode_interests(df, BOX, KEY)


def test_pairs_that_are_no_strings_are_refused(spark: SparkSession) -> None:
    df = subscriptions(spark).withColumn("round", F.lit(1)).withColumn("pair", F.lit(1.5))
    with pytest.raises(ParameterError, match="'pair' must be a string"):
        cs.encode_interests(df, BOX, KEY, pair="pair")


def test_columns_are_not_used_twice(spark: SparkSession) -> None:
    df = subscriptions(spark).withColumn("round", F.lit(1))
    with pytest.raises(ParameterError, match="column of that name"):
        cs.encode_interests(df, BOX, KEY, output="round")
    with pytest.raises(ParameterError, match="also a column to be encoded"):
        cs.encode_interests(df, BOX, KEY, predicate="subscription")
    template = BranchingMatch(QUOTES, "issue = :who")
    with pytest.raises(ParameterError, match="'whom'"):
        cs.encode_interests(df, template, KEY, constants={"whom": "predicate"})


def test_any_column_name_will_do(spark: SparkSession) -> None:
    df = subscriptions(spark, PREDICATES[:1]).withColumn("round", F.lit(1))
    odd = df.toDF("a.b", "c`d", "e f")
    got = cs.encode_interests(odd, BOX, KEY, pair="a.b", predicate="c`d", round="e f")
    assert got.collect()[0][2] == cs.encode_interests(df, BOX, KEY).collect()[0][2]


def test_bad_predicates_name_pair_and_round_and_stay_private(spark: SparkSession) -> None:
    df = subscriptions(spark, ["price < 3", "pryce < 31415"])
    with pytest.raises(Exception, match="the closest is 'price'") as failure:
        cs.encode_interests(df.withColumn("round", F.lit(4)), BOX, KEY).collect()
    assert "subscription='s1', round=4" in str(failure.value)
    assert "31415" not in str(failure.value) and "pryce" not in str(failure.value)


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        ("issue = IBMSECRET", "unknown attribute; the schema has issue, price, volume"),
        ('issue = "IBMSECRET"', "strings are written in single quotes"),
        ("issue IN (IBMSECRET, 'IBM')", "unknown attribute"),
        ("IBMSECRET(price) < 3", "an operator or function is not supported"),
        ("price IN (SELECT price FROM IBMSECRET(7))", "not (one condition|supported)"),
        ("price |> IBMSECRET", "not one condition in SQL"),
        ("price IN (SELECT 1 |> IBMSECRET)", "not one condition in SQL"),
        ("price < :IBMSECRET", r"subscription='s0', round=9.*private constants"),
    ],
)
def test_words_of_a_bad_predicate_stay_private(
    spark: SparkSession, predicate: str, reason: str
) -> None:
    bad = subscriptions(spark, [predicate]).withColumn("round", F.lit(9))
    with pytest.raises(Exception, match=reason) as failure:
        cs.encode_interests(bad, BOX, KEY).collect()
    assert "subscription='s0', round=9" in str(failure.value)
    assert "IBMSECRET" not in str(failure.value)


def test_one_column_may_fill_several_constants(spark: SparkSession) -> None:
    matcher = BranchingMatch(QUOTES, "price BETWEEN :low AND :high")
    df = spark.createDataFrame([("s", 1, 7.25)], "subscription string, round long, p double")
    interests = cs.encode_interests(df, matcher, KEY, constants={"low": "p", "high": "p"})
    rows = spark.createDataFrame(
        [("s", 1, "IBM", 7.25, 1)],
        "subscription string, round long, issue string, price double, volume int",
    )
    assert cs.match(cs.encode_events(rows, matcher, KEY), interests, matcher).first()["matched"]


def test_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    table = spark.createDataFrame(records(3)).withColumn("round", F.col("event"))
    table = table.withColumn("subscription", F.lit("s"))
    for other, df in (
        ("price", table.select("*", F.lit(1.0).alias("price"))),
        ("PRICE", table.select("*", F.lit(1.0).alias("PRICE"))),
    ):
        with pytest.raises(ParameterError, match=rf"2 columns named 'price' \(and '{other}'\)"):
            cs.encode_events(df, BOX, KEY)


def test_messages_are_binary_columns(stages: Stages) -> None:
    _, events, interests = stages
    text = events.withColumn("event_message", F.lit(5))
    with pytest.raises(ParameterError, match="'event_message' must be binary, got"):
        cs.match(text, interests, BOX)
    joined = events.join(interests, ["subscription", "round"])
    column = cs.match_column(F.lit(5), "interest_message", BOX)
    with pytest.raises(Exception, match="messages must be a binary column, got int32"):
        joined.select(column).collect()


def test_one_event_number_names_one_event(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "x"), (1, "y")], "event long, payload string")
    with pytest.raises(RandomnessReuseError, match="event 1 occurs 2 times"):
        cs.seal_payloads(df, KEY)


def test_bad_records_name_the_attribute_and_no_value(spark: SparkSession) -> None:
    table = records(5).set_column(2, "price", pa.array([1.0, 2.0, 31415.9, 3.0, 4.0]))
    with pytest.raises(Exception, match="price") as failure:
        event_messages(spark, table).collect()
    assert "EventError" in str(failure.value)
    assert "round=2" in str(failure.value)
    assert "31415" not in str(failure.value)


def test_missing_columns_and_bad_options_are_refused(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", 1)], "subscription string, round long")
    with pytest.raises(ParameterError, match="issue"):
        cs.encode_events(df, BOX, KEY)
    with pytest.raises(ParameterError, match="predicate"):
        cs.encode_interests(df, BOX, KEY)
    with pytest.raises(ParameterError, match="event_message"):
        cs.match(df, df, BOX)
    with pytest.raises(ParameterError, match="on_error"):
        cs.match(df, df, BOX, on_error="ignore")  # type: ignore[arg-type]


def test_columns_on_both_sides_are_refused(stages: Stages) -> None:
    _, events, interests = stages
    with pytest.raises(ParameterError, match="'note'"):
        cs.match(events.withColumn("note", F.lit(1)), interests.withColumn("note", F.lit(2)), BOX)


def test_a_key_itself_is_refused(spark: SparkSession, seed: SharedSeed) -> None:
    with pytest.raises(ParameterError, match="KeySource"):
        event_messages(spark, records(2), seed)  # type: ignore[arg-type]


def test_a_missing_key_says_which(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="CCBPS_NO_SUCH_SEED"):
        event_messages(spark, records(2), cs.EnvKey("CCBPS_NO_SUCH_SEED")).collect()
    with pytest.raises(Exception, match="no-such-file"):
        event_messages(spark, records(2), cs.FileKey(str(tmp_path / "no-such-file"))).collect()


def test_key_sources_load_and_refuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seed = SharedSeed.generate()
    monkeypatch.setenv("CCBPS_ONE", seed.to_text())
    assert cs.EnvKey("CCBPS_ONE").load() == seed
    path = tmp_path / "two"
    path.write_text("not a seed")
    with pytest.raises(KeyMismatchError, match="ccbps-seed-1"):
        cs.FileKey(str(path)).load()


def test_workers_use_one_thread_for_numpy(spark: SparkSession) -> None:
    @F.arrow_udf("string")
    def threads(column: pa.Array) -> pa.Array:
        return pa.array([os.environ.get("OMP_NUM_THREADS")] * len(column))

    assert spark.range(1).select(threads("id").alias("n")).collect()[0]["n"] == "1"


def test_payloads_reach_the_matched_and_open_for_them_alone(
    spark: SparkSession, stages: Stages
) -> None:
    table, events, interests = stages
    payloads = spark.createDataFrame(table).select(
        "event", F.concat(F.lit("quote "), F.col("event")).alias("payload")
    )
    sealed = cs.seal_payloads(payloads, KEY)
    matches = cs.match(cs.wrap_keys(events, KEY), interests, BOX)
    delivered = cs.deliver(matches, sealed).cache()
    assert set(delivered.columns) == {"event", "subscription", "round", "wrapped_key", "sealed"}
    opened = cs.open_payloads(delivered, KEY)
    got = {(r["subscription"], r["event"]): bytes(r["payload"]) for r in opened.collect()}
    wanted = {
        (f"s{i}", n)
        for i, text in enumerate(PREDICATES)
        for n in np.flatnonzero(QUOTES.parse(text).evaluate(table)).tolist()
    }
    assert got == {(name, n): f"quote {n}".encode() for name, n in wanted}
    others = delivered.withColumn("subscription", F.lit("somebody else"))
    with pytest.raises(Exception, match="not a payload for this pair"):
        cs.open_payloads(others, KEY).collect()


def test_payload_null_in_gives_null_out(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "x"), (2, None)], "event long, payload string")
    rows = cs.seal_payloads(df, KEY).collect()
    assert [row["sealed"] is None for row in rows] == [False, True]


def test_streaming_frames_are_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    df = stream.select(
        F.lit("a").alias("subscription"),
        F.col("value").alias("round"),
        F.lit("price < 3").alias("predicate"),
    )
    with pytest.raises(ParameterError, match="foreachBatch"):
        cs.encode_interests(df, BOX, KEY)
    messages = df.withColumn("event_message", F.lit(b"")).drop("predicate")
    with pytest.raises(ParameterError, match=r"events is a streaming DataFrame.*foreachBatch"):
        cs.match(messages, messages.withColumnRenamed("event_message", "interest_message"), BOX)


@pytest.fixture
def with_locals(spark: SparkSession) -> Iterator[None]:
    """Spark prints the locals of every frame of a worker's traceback."""
    name = "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


def test_locals_in_tracebacks_hold_no_key_and_no_constant(
    spark: SparkSession, seed: SharedSeed, tmp_path: Path, with_locals: None
) -> None:
    text = seed.to_text()
    for name, content in (("short", text[:-1].encode()), ("binary", b"\xff" + text.encode())):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Exception, match="KeyMismatchError") as failure:
            event_messages(spark, records(3), cs.FileKey(str(tmp_path / name))).collect()
        assert text[20:60] not in str(failure.value)
    wrong = spark.createDataFrame(
        [("s0", 1, "IBMSECRET")], "subscription string, round long, w string"
    )
    matcher = BranchingMatch(QUOTES, "price < :w")
    with pytest.raises(Exception, match="subscription='s0', round=1") as failure:
        cs.encode_interests(wrong, matcher, KEY).collect()
    frames = str(failure.value).split('ccbps/spark/encoding.py"')
    assert len(frames) > 1, "where it failed is still told"
    # What Spark's own frames print is not in this package's hands: the batch.
    assert not any("IBMSECRET" in part.split("pyspark/")[0] for part in frames[1:])


def test_no_secret_in_plans_errors_logs_or_files(
    spark: SparkSession, seed: SharedSeed, places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    events = event_messages(spark, records(20))
    events.explain(extended=True)
    text = capsys.readouterr().out
    assert "event_message" in text
    with pytest.raises(Exception, match="price") as failure:
        event_messages(spark, records(3).set_column(2, "price", pa.array([9e9] * 3))).collect()
    text += str(failure.value)
    secret = seed.export_secret()
    needles = [secret, secret.hex().encode(), seed.pair("s0").export_secret()]
    assert not any(needle in text.encode() for needle in needles)
    files = [p for root in (places.event_log, places.local) for p in root.rglob("*") if p.is_file()]
    if MODE == "classic":
        assert any(p.is_relative_to(places.event_log) for p in files)
    for path in files:
        content = path.read_bytes()
        assert not any(needle in content for needle in needles), path.name
