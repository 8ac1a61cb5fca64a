"""Rounds end to end: answers equal the plaintext, bad input, secrets, delivery.

What happens to rows within a batch is tested without Spark, in `tests/columnar/test_columnar.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Decimal, Schema, SeedRing, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching import BranchingMatch, FormulaMatch
from tests.support.spark_session import (
    KEY,
    Pairs,
    Places,
    answers,
    changed,
    explained,
    reasons,
    rows_by,
    save,
    stored,
    wishes,
)

pytestmark = pytest.mark.spark

Stages = tuple[pa.Table, DataFrame, DataFrame, Pairs]
QUOTES = Schema(
    issue=Category(["AAPL", "GOOG", "IBM"]),
    price=Decimal(0, "655.35", step="0.01"),
    volume=UInt(20, nullable=True),
)
BOX = FormulaMatch.box(QUOTES)
PREDICATES = [
    "issue = 'IBM'",
    "issue LIKE 'G%' AND price < 300",
    "price BETWEEN 100 AND 400 AND volume > 500000",
    "volume IS NULL",
    "price < 0",
]
COUNT = 60


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
    return wishes(spark, {f"s{i}": predicate for i, predicate in enumerate(predicates)})


def events_of(spark: SparkSession, table: pa.Table, label: str = "s") -> DataFrame:
    """Rows for one subscription, whose rounds are the events' numbers."""
    numbered = spark.createDataFrame(table).withColumn("round", F.col("event"))
    return numbered.withColumn("subscription", F.lit(label))


def event_messages(spark: SparkSession, table: pa.Table, key: cs.KeySource = KEY) -> DataFrame:
    events = events_of(spark, table).drop("subscription")
    addressed = events.crossJoin(subscriptions(spark).select("subscription"))
    return cs.encode_events(addressed, BOX, key, keep=["event"])


@pytest.fixture(scope="module")
def stages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    """Events for 5 subscriptions, both sides' messages through Parquet, and the answers."""
    table, folder = records(COUNT), tmp_path_factory.mktemp("messages")
    numbers = spark.range(COUNT).withColumnRenamed("id", "round")
    interests = cs.encode_interests(subscriptions(spark).crossJoin(numbers), BOX, KEY)
    events = stored(event_messages(spark, table).coalesce(1), folder / "events")
    interests = stored(interests.coalesce(1), folder / "interests")
    return table, events, interests, answers(cs.match(events, interests, BOX))


def test_match_equals_the_plaintext_filter(stages: Stages) -> None:
    table, _, _, got = stages
    assert len(got) == table.num_rows * len(PREDICATES)
    for i, text in enumerate(PREDICATES):
        wanted = QUOTES.parse(text).evaluate(table)
        assert [got[f"s{i}", n] for n in range(table.num_rows)] == wanted.tolist(), text
    assert any(got.values())


def functions_called(df: DataFrame) -> int:
    """How often Python is called for a row."""
    return explained(df).count("ArrowEvalPython")


def test_what_is_filtered_by_its_result_is_computed_once(
    spark: SparkSession, stages: Stages
) -> None:
    """Spark pushes a filter below a function, and would call it again above the filter."""
    table, events, interests, answered = stages
    matched = cs.match(events, interests, BOX).where("matched")
    sorted_out = cs.match(events, interests, BOX, on_error="reject").where("rejected IS NULL")
    addressed = events_of(spark, table, "s0")
    encoded = cs.encode_events(addressed, BOX, KEY, on_error="reject").where("rejected IS NULL")
    for df in (matched, matched.drop("matched"), sorted_out, encoded):
        assert functions_called(df) == 1
    plain = cs.match_udf(BOX)("event_message", "interest_message")
    both = events.join(interests, ["subscription", "round"]).withColumn("matched", plain)
    assert functions_called(both.where("matched")) == 2
    assert {(r["subscription"], r["round"]) for r in matched.collect()} == {
        pair for pair, answer in answered.items() if answer
    }


def test_columns_travel_when_they_are_asked_for(spark: SparkSession, stages: Stages) -> None:
    _, sent, asked, _ = stages
    assert set(sent.columns) == {"event", "subscription", "round", "event_message"}
    assert set(asked.columns) == {"subscription", "round", "interest_message"}
    events = events_of(spark, records(3)).withColumn("client", F.lit("ACME"))
    wanted = subscriptions(spark).withColumns({"round": F.lit(1), "owner": F.lit("Alice")})
    payloads = events.select("event", "client", F.lit("x").alias("payload"))
    bare = cs.encode_events(events, BOX, KEY)
    assert bare.columns == ["round", "subscription", "event_message"]
    kept = cs.encode_events(events, BOX, KEY, keep=["client", "event"])
    assert set(kept.columns) == {"subscription", "round", "client", "event", "event_message"}
    assert {row["client"] for row in kept.collect()} == {"ACME"}
    kept = cs.encode_interests(wanted, BOX, KEY, keep=["owner"])
    assert kept.columns == ["subscription", "round", "owner", "interest_message"]
    assert cs.seal_payloads(payloads, KEY, keep=["client"]).columns == ["event", "client", "sealed"]
    encode: Any = partial(cs.encode_events, events, BOX, KEY)
    for call, keep, problem in (
        (encode, ["price"], "'price', which is"),
        (partial(cs.encode_interests, wanted, BOX, KEY), ["predicate"], "encoded"),
        (partial(cs.seal_payloads, payloads, KEY), ["payload"], "encoded because"),
        (encode, ["clint"], "'clint' is missing"),
        (encode, "client", "must be a list"),
    ):
        with pytest.raises(ParameterError, match=problem):
            call(keep=keep)
    with pytest.raises(ParameterError, match=r"'event' is missing.*keep=\[\.\.\.\]"):
        cs.wrap_keys(bare, KEY)


def test_rows_that_cannot_be_encoded_are_set_aside(spark: SparkSession) -> None:
    price = pa.array([1.0, 31415.25, 2.345678])
    frame = events_of(spark, records(3).set_column(2, "price", price))
    aside = cs.encode_events(frame, BOX, KEY, on_error="reject")
    assert aside.columns == ["round", "subscription", "event_message", "rejected"]
    rows = rows_by(aside, "round")
    assert [rows[n]["event_message"] is None for n in range(3)] == [False, True, True]
    assert [rows[n]["rejected"] is None for n in range(3)] == [True, False, False]
    texts = ["price < 3", "pryce < 31415", None]
    wanted = subscriptions(spark, texts).withColumn("round", F.lit(1))
    aside = cs.encode_interests(wanted, BOX, KEY, on_error="reject")
    assert aside.columns == ["subscription", "round", "interest_message", "rejected"]
    rows = rows_by(aside, "subscription")
    assert [n for n, row in rows.items() if row["interest_message"] is None] == ["s1", "s2"]
    assert [n for n, row in rows.items() if row["rejected"]] == ["s1", "s2"]
    assert rows["s2"]["rejected"] == "the predicate is NULL"
    for call in (cs.encode_events, cs.encode_interests):
        with pytest.raises(ParameterError, match="must be 'raise' or 'reject', got 'drop'"):
            call(frame, BOX, KEY, on_error="drop")  # type: ignore[operator]


def test_rows_without_a_pair_and_round_say_why(
    spark: SparkSession, seed: SharedSeed, tmp_path: Path
) -> None:
    ring = save(tmp_path / "ring", SeedRing.of(seed, ["s0"]))
    ids = [("s0", 1), (None, 2), ("s0", None), ("s0", -3), (None, -3), ("s1", 4)]
    rows = spark.createDataFrame(
        [(*one, "price < 3") for one in ids], "subscription string, round long, predicate string"
    )
    made = cs.encode_interests(rows, BOX, ring, on_error="reject")
    found = rows_by(made, "subscription", "round")
    assert [at for at, row in found.items() if row["interest_message"] is not None] == [("s0", 1)]
    assert {at: row["rejected"] for at, row in found.items()} == {
        ("s0", 1): None,
        (None, 2): "column 'subscription' is NULL",
        ("s0", None): "column 'round' is NULL",
        ("s0", -3): "column 'round' is negative",
        (None, -3): "column 'subscription' is NULL",
        ("s1", 4): "column 'subscription' is of a pair for which the key has no seed",
    }
    events = spark.createDataFrame(records(1)).crossJoin(rows.drop("predicate"))
    made = cs.encode_events(events, BOX, KEY, on_error="reject").collect()
    assert [r["subscription"] for r in made if not r["rejected"]] == ["s0", "s1"]
    assert {r["rejected"] for r in made if r["round"] == -3} == {
        "column 'round' is negative",
        "column 'subscription' is NULL",
    }


def test_float_columns_are_refused_whatever_they_hold(
    spark: SparkSession, seed: SharedSeed
) -> None:
    frame = events_of(spark, records(2)).withColumn("price", F.lit(1.0).cast("float"))
    with pytest.raises(ParameterError, match=r"'price' is FLOAT.*cast\('decimal"):
        cs.encode_events(frame, BOX, KEY)
    template = FormulaMatch(QUOTES, "price < :limit")
    with pytest.raises(ParameterError, match="'price' is FLOAT"):
        cs.encode_interests(frame, template, KEY, constants={"limit": "price"})
    price = F.lit(0.1).cast("float").cast("decimal(12,2)")
    first = cs.encode_events(frame.limit(1).withColumn("price", price), BOX, KEY).first()
    own = records(2).slice(0, 1).set_column(2, "price", pa.array([0.1]))
    wanted = BOX.publisher(seed).encode(own.drop_columns(["event"]), [0], pairs=["s"])
    assert bytes(first["event_message"]) == wanted[0].tobytes()


def test_a_function_decides_within_a_row(stages: Stages) -> None:
    _, events, interests, good = stages
    joined = events.join(interests, ["subscription", "round"])
    here = F.expr("CASE WHEN round <> 3 THEN interest_message END")
    column = cs.match_udf(BOX)("event_message", here).alias("matched")
    got = answers(joined.select("subscription", "round", column))
    assert got == {key: None if key[1] == 3 else answer for key, answer in good.items()}


def test_sql_matches_null_with_nothing_and_names_what_is_not_binary(spark: SparkSession) -> None:
    """Also a NULL without a type."""
    spark.udf.register("ccbps_match", cs.match_udf(BOX))
    found = spark.sql("SELECT ccbps_match(NULL, X'00') AS one, ccbps_match(NULL, NULL) AS both")
    assert [tuple(row) for row in found.collect()] == [(None, None)]
    with pytest.raises(Exception, match="interest messages must be a binary column, got int64"):
        spark.sql("SELECT ccbps_match(X'00', id) FROM range(2)").collect()


def test_empty_frames_give_empty_frames(stages: Stages) -> None:
    _, events, interests, _ = stages
    assert cs.match(events.where("false"), interests, BOX).count() == 0


CHANGES = {
    2: ("substring(event_message, 1, 40)", "wrong number of bytes"),
    4: ("concat(unhex('07'), substring(event_message, 2))", "not an event message"),
    5: (
        # Any other byte than is there.
        "concat(substring(event_message, 1, 1), "
        "IF(substring(event_message, 2, 1) = unhex('FF'), unhex('00'), unhex('FF')), "
        "substring(event_message, 3))",
        "another matcher",
    ),
    7: (
        "concat(substring(event_message, 1, 1), unhex('01020304050607'), "
        "substring(event_message, 9))",
        "different matchers, pairs, rounds or seeds",
    ),
}


def test_malformed_messages_are_named_or_set_aside(stages: Stages) -> None:
    _, events, interests, good = stages
    cases = " ".join(f"WHEN round = {n} THEN {change}" for n, (change, _) in CHANGES.items())
    damage = F.expr(
        f"CASE WHEN subscription <> 's1' THEN event_message {cases} ELSE event_message END"
    )
    damaged = events.withColumn("event_message", damage)
    few = damaged.where("subscription = 's1' AND round IN (6, 7)")
    with pytest.raises(Exception, match=r"subscription='s1', round=7: .*different matchers, pairs"):
        cs.match(few, interests, BOX).collect()
    decided = cs.match(damaged, interests, BOX, on_error="reject").persist()
    rejected = reasons(decided, "subscription", "round")
    assert sorted(rejected) == [("s1", n) for n in CHANGES]
    for n, (_, cause) in CHANGES.items():
        assert cause in rejected["s1", n]
    assert answers(decided) == {**good, **dict.fromkeys(rejected)}


@pytest.mark.parametrize(("side", "again"), [("events", "same"), ("interests", "other")])
def test_a_pair_and_round_that_occurs_twice_is_not_counted_twice(
    stages: Stages, side: str, again: str
) -> None:
    _, *frames, good = stages
    place = ("events", "interests").index(side)
    message = f"{side[:-1]}_message"
    hit = frames[place].where("subscription = 's1' AND round IN (5, 6)")
    if again == "other":  # a message of another round under these: not what was encoded for them
        other = frames[place].where("subscription = 's1' AND round = 7").first()[message]
        hit = hit.withColumn(message, F.lit(other))
    twice = list(frames)
    twice[place] = frames[place].unionByName(hit)
    # Of what came twice, nobody can tell in which side, once it is joined.
    where = "events and one in interests" if again == "same" else side
    wanted = rf"Reuse.*'s1', round=[56] occurs more than once: .*one message in {where}\."
    with pytest.raises(PySparkException, match=wanted):
        cs.match(*twice, BOX).collect()
    decided = cs.match(*twice, BOX, on_error="reject")
    assert decided.columns[-2:] == ["matched", "rejected"]
    rows = decided.collect()
    bad = [r for r in rows if r["rejected"] is not None]
    assert sorted(r["round"] for r in bad) == [5, 5, 6, 6]
    assert {r["rejected"] for r in bad} == {"the pair and round occurs more than once"}
    assert {r["matched"] for r in bad} == {None}
    left = {(r["subscription"], r["round"]): r["matched"] for r in rows if not r["rejected"]}
    assert left == {key: good[key] for key in good if key not in {("s1", 5), ("s1", 6)}}


def test_match_sorts_each_side_once(stages: Stages) -> None:
    """That joined rows are together and in order is asked for again, and costs nothing."""
    _, events, interests, _ = stages
    for on_error in ("raise", "reject"):
        plan = explained(cs.match(events, interests, BOX, on_error=on_error))
        counts = {what: plan.count(what) for what in ("Exchange ", "Sort [", "SortMergeJoin")}
        assert counts == {"Exchange ": 2, "Sort [": 2, "SortMergeJoin": 1}


# By default one side of each.
@pytest.mark.parametrize(
    ("how", "side"),
    [
        pytest.param(how, side, marks=[pytest.mark.slow] * (side == place % 2))
        for place, how in enumerate(["broadcast", "constant", "narrow", "repartitioned"])
        for side in (0, 1)
    ],
)
def test_rows_that_occur_twice_are_found_however_they_are_joined(
    stages: Stages, side: int, how: str
) -> None:
    _, *frames, good = stages
    twice = [df.where("subscription = 's1'") for df in frames]
    whole = twice[side].repartition(3)
    twice[side] = whole.unionByName(whole.where("round IN (5, 6)")).repartition(5)
    other = 1 - side
    if how == "broadcast":  # the side that is streamed has no order of its own
        twice[other] = F.broadcast(twice[other])
    elif how == "constant":  # Spark then leaves it out of the join
        twice[other] = twice[other].withColumn("subscription", F.lit("s1"))
    elif how == "repartitioned":
        twice = [df.repartition(2, "subscription", "round").sort("round") for df in twice]
    else:
        twice[other] = twice[other].withColumn("round", F.col("round").cast("int"))
    with pytest.raises(PySparkException, match=r"round=[56] occurs more than once"):
        cs.match(*twice, BOX).collect()
    rows = cs.match(*twice, BOX, on_error="reject").collect()
    assert sorted(r["round"] for r in rows if r["rejected"]) == [5, 5, 6, 6]
    left = {("s1", r["round"]): r["matched"] for r in rows if not r["rejected"]}
    wanted = {key: value for key, value in good.items() if key[0] == "s1"}
    assert left == {key: value for key, value in wanted.items() if key[1] not in (5, 6)}


def test_no_partition_is_split_between_rows_of_a_pair_and_round(
    spark: SparkSession, stages: Stages
) -> None:
    """Spark splits large partitions of a join by the files that rows come from, and batches end
    anywhere: rows that occur twice are still seen."""
    _, events, interests, good = stages
    skewed = {
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "0.1",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1b",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1kb",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
        "spark.sql.shuffle.partitions": "2",
    }
    with changed(spark, skewed):
        decided = cs.match(events.unionByName(events), interests, BOX, on_error="reject")
        rows = decided.collect()
        assert answers(cs.match(events, interests, BOX, on_error="reject")) == good
    assert Counter((r["subscription"], r["round"]) for r in rows) == dict.fromkeys(good, 2)
    assert {(r["matched"], r["rejected"]) for r in rows} == {
        (None, "the pair and round occurs more than once")
    }


def test_duplicates_are_refused_before_anything_is_encoded(spark: SparkSession) -> None:
    twice = spark.createDataFrame(
        [("a", 7, "price < 3"), ("b", 7, "price < 3"), ("a", 7, "price < 4")],
        "subscription string, round long, predicate string",
    )
    with pytest.raises(RandomnessReuseError, match=r"subscription 'a', round 7 occurs 2 times"):
        cs.encode_interests(twice, BOX, KEY)
    news = spark.createDataFrame([(1, "x"), (1, "y")], "event long, payload string")
    with pytest.raises(RandomnessReuseError, match="event 1 occurs 2 times"):
        cs.seal_payloads(news, KEY)


@pytest.mark.parametrize("side", ["events", "interests"])
def test_encoders_set_aside_all_rows_of_a_pair_and_round_that_comes_twice(
    spark: SparkSession, side: str
) -> None:
    rows = [("a", 7), ("b", 7), ("a", 8), ("a", 7), (None, 7), (None, 7), ("c", None), ("c", None)]
    addressed = spark.createDataFrame(rows, "subscription string, round long").repartition(3)
    values = {"issue": F.lit("IBM"), "price": F.lit(3), "volume": F.lit(9)}
    df = addressed.withColumns(values | {"predicate": F.lit("price < 3")})
    encode: Any = cs.encode_events if side == "events" else cs.encode_interests
    encoded = encode(df, BOX, KEY, on_error="reject")
    alone = encode(df.where("subscription = 'b' OR round = 8"), BOX, KEY)
    assert encoded.columns == ["subscription", "round", f"{side[:-1]}_message", "rejected"]
    found = Counter(tuple(row) for row in encoded.collect())
    again = "the pair and round occurs more than once"
    assert found == {
        ("a", 7, None, again): 2,
        (None, 7, None, "column 'subscription' is NULL"): 2,
        ("c", None, None, "column 'round' is NULL"): 2,
        **{(*row, None): 1 for row in alone.collect()},
    }


def test_columns_that_do_not_fit_are_refused(
    spark: SparkSession, stages: Stages, seed: SharedSeed
) -> None:
    df = subscriptions(spark).withColumns({"round": F.lit(1), "pair": F.lit(1.5)})
    template = FormulaMatch(QUOTES, "issue = :who")
    wrong: list[tuple[FormulaMatch, dict[str, Any], str]] = [
        (BOX, {"subscription": "pair"}, "'pair' must be a string"),
        (BOX, {"output": "round"}, "column of that name"),
        (BOX, {"predicate": "subscription"}, "also a column to be encoded"),
        (template, {"constants": {"whom": "predicate"}}, "'whom'"),
    ]
    for matcher, options, problem in wrong:
        with pytest.raises(ParameterError, match=problem):
            cs.encode_interests(df, matcher, KEY, **options)
    for kind in ("string", "double"):
        with pytest.raises(ParameterError, match="'round' must be a whole number"):
            cs.encode_interests(df.withColumn("round", F.lit(1).cast(kind)), BOX, KEY)
    bare = df.drop("predicate", "pair")
    for call, sides, problem in (
        (cs.encode_events, [bare], "issue"),
        (cs.encode_interests, [bare], "predicate"),
        (cs.match, [bare, bare], "event_message"),
    ):
        key = [] if call is cs.match else [KEY]
        with pytest.raises(ParameterError, match=problem):
            call(*sides, BOX, *key)  # type: ignore[operator]
    with pytest.raises(ParameterError, match="key must be a KeySource"):
        event_messages(spark, records(2), seed)  # type: ignore[arg-type]
    _, events, interests, _ = stages
    text, note = events.withColumn("event_message", F.lit(5)), {"note": F.lit(1)}
    for left, right, problem in (
        (text, interests, "'event_message' must be binary, got"),
        (events.withColumns(note), interests.withColumns(note), "'note'"),
    ):
        with pytest.raises(ParameterError, match=problem):
            cs.match(left, right, BOX)
    with pytest.raises(ParameterError, match="on_error"):
        cs.match(events, interests, BOX, on_error="ignore")  # type: ignore[arg-type]


def test_any_column_name_will_do(spark: SparkSession) -> None:
    df = subscriptions(spark, PREDICATES[:1]).withColumn("round", F.lit(1))
    odd = df.toDF("a.b", "c`d", "e f")
    got = cs.encode_interests(odd, BOX, KEY, subscription="a.b", predicate="c`d", round="e f")
    assert got.collect()[0][2] == cs.encode_interests(df, BOX, KEY).collect()[0][2]


@pytest.mark.parametrize(
    "scheme", [FormulaMatch, pytest.param(BranchingMatch, marks=pytest.mark.slow)]
)
def test_constants_come_from_columns_and_one_may_fill_several(
    spark: SparkSession, scheme: type[FormulaMatch] | type[BranchingMatch]
) -> None:
    template = "issue = :who AND (price BETWEEN :low AND :high OR volume IS NULL)"
    matcher, table = scheme(QUOTES, template), records(20)
    events = events_of(spark, table).drop("subscription")
    rows = [("a", "IBM", 20.5, 400), ("b", "GOOG", 100.0, 300)]
    wanted = spark.createDataFrame(
        [*rows, ("c", "AAPL", table["price"][0].as_py(), None)],
        "subscription string, who string, low double, cap int",
    ).crossJoin(events.select("round"))
    addressed = events.crossJoin(wanted.select("subscription").distinct())
    several = cs.encode_interests(wanted, matcher, KEY, constants={"low": "low", "high": "low"})
    interests = cs.encode_interests(wanted, matcher, KEY, constants={"high": "cap"})
    encoded = cs.encode_events(addressed, matcher, KEY)
    mixed = interests.where("subscription <> 'c'").union(several.where("subscription = 'c'"))
    got = answers(cs.match(encoded, mixed, matcher))
    for name, who, low, high in [*rows, ("c", "AAPL", *[table["price"][0].as_py()] * 2)]:
        plain = QUOTES.parse(template).bind(who=who, low=low, high=high).evaluate(table)
        assert [got[name, n] for n in range(table.num_rows)] == plain.tolist()


def test_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    table = events_of(spark, records(3))
    for other, df in (
        ("price", table.select("*", F.lit(1.0).alias("price"))),
        ("PRICE", table.select("*", F.lit(1.0).alias("PRICE"))),
    ):
        with pytest.raises(ParameterError, match=rf"2 columns named 'price' \(and '{other}'\)"):
            cs.encode_events(df, BOX, KEY)


def test_workers_use_one_thread_for_numpy(spark: SparkSession) -> None:
    @F.arrow_udf("string")
    def threads(column: pa.Array) -> pa.Array:
        return pa.array([os.environ.get("OMP_NUM_THREADS")] * len(column))

    assert spark.range(1).select(threads("id").alias("n")).collect()[0]["n"] == "1"


@pytest.mark.slow
def test_payloads_reach_the_matched_and_open_for_them_alone(
    spark: SparkSession, stages: Stages
) -> None:
    table, events, interests, _ = stages
    payloads = spark.createDataFrame(table).select(
        "event", F.concat(F.lit("quote "), F.col("event")).alias("payload")
    )
    sealed = cs.seal_payloads(payloads, KEY)
    matches = cs.match(cs.wrap_keys(events, KEY), interests, BOX)
    delivered = cs.deliver(matches, sealed).cache()
    assert set(delivered.columns) == {"event", "subscription", "round", "wrapped_key", "sealed"}
    null = spark.createDataFrame([(1, None)], "event long, payload string")
    assert cs.seal_payloads(null, KEY).first()["sealed"] is None
    opened = cs.open_payloads(delivered, KEY)
    got = {(r["subscription"], r["event"]): bytes(r["payload"]) for r in opened.collect()}
    wanted = {
        (f"s{i}", n)
        for i, text in enumerate(PREDICATES)
        for n in np.flatnonzero(QUOTES.parse(text).evaluate(table)).tolist()
    }
    assert got == {(name, n): f"quote {n}".encode() for name, n in wanted}
    others = delivered.limit(1).withColumn("subscription", F.lit("somebody else"))
    with pytest.raises(Exception, match=r"subscription='somebody else', .*not a payload for this"):
        cs.open_payloads(others, KEY).collect()


@pytest.mark.slow
def test_payloads_that_cannot_be_sealed_wrapped_or_opened_say_why(spark: SparkSession) -> None:
    def told(df: DataFrame, output: str, *names: str) -> dict[Any, Any]:
        """Why there is no output, by names; of rows that have one, None."""
        rows = df.collect()
        assert all((row[output] is None) == (row["rejected"] is not None) for row in rows)
        return {tuple(row[name] for name in names): row["rejected"] for row in rows}

    events = [(0, b"a"), (1, b"b"), (1, b"c"), (-2, b"d"), (None, b"e"), (3, None)]
    news = spark.createDataFrame(events, "event long, payload binary")
    sealed = cs.seal_payloads(news, KEY, on_error="reject")
    assert sealed.columns == ["event", "sealed", "rejected"]
    assert told(sealed, "sealed", "event") == {
        (0,): None,
        (1,): "the number occurs more than once",
        (-2,): "column 'event' is negative",
        (None,): "column 'event' is NULL",
        (3,): "the payload is NULL",
    }
    rows = [(0, "a", 0), (0, "a", 1), (0, "a", 1), (0, None, 2), (0, "a", -3), (-1, "a", 4)]
    pairs = spark.createDataFrame(rows, "event long, subscription string, round long")
    wrapped = cs.wrap_keys(pairs, KEY, on_error="reject")
    assert wrapped.columns == [*pairs.columns, "wrapped_key", "rejected"]
    assert told(wrapped, "wrapped_key", "subscription", "round") == {
        ("a", 0): None,
        ("a", 1): "the pair and round occurs more than once",
        (None, 2): "column 'subscription' is NULL",
        ("a", -3): "column 'round' is negative",
        ("a", 4): "column 'event' is negative",
    }
    whole = wrapped.where("round = 0").drop("rejected").join(sealed.drop("rejected"), "event")
    one = whole.first()
    bad = [(one["sealed"], one["wrapped_key"]), (one["sealed"], b"short"), (b"?", None)]
    bad += [(b"not one at all, however long it may be", one["wrapped_key"])]
    numbers = [0, 1, 2, 3]
    damaged = spark.createDataFrame(
        [("a", n, *two) for n, two in zip(numbers, bad, strict=True)],
        "subscription string, round long, sealed binary, wrapped_key binary",
    )
    opened = cs.open_payloads(damaged, KEY, on_error="reject")
    assert opened.columns == ["subscription", "round", "payload", "rejected"]
    assert told(opened, "payload", "round") == {
        (0,): None,
        (1,): "a wrapped key has 32 bytes, this one has not",
        (2,): "column 'wrapped_key' is NULL",
        (3,): "not a sealed payload of this version",
    }
    assert bytes(opened.where("round = 0").first()["payload"]) == b"a"
    with pytest.raises(Exception, match=r"subscription='a', round=1: a wrapped key has 32 bytes"):
        cs.open_payloads(damaged.coalesce(1), KEY).collect()


def test_interests_are_not_encoded_in_streams(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    df = stream.select(
        F.lit("a").alias("subscription"),
        F.col("value").alias("round"),
        F.lit("price < 3").alias("predicate"),
    )
    with pytest.raises(ParameterError, match="foreachBatch"):
        cs.encode_interests(df, BOX, KEY)


def test_locals_in_tracebacks_hold_no_key_and_no_constant(
    spark: SparkSession, seed: SharedSeed, tmp_path: Path
) -> None:
    text = seed.to_text()
    (tmp_path / "short").write_text(text[:-1])
    wrong = spark.createDataFrame(
        [("s0", 1, "IBMSECRET")], "subscription string, round long, w string"
    )
    matcher = FormulaMatch(QUOTES, "price < :w")
    # Spark prints the locals of every frame of a worker's traceback.
    with changed(spark, {"spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true"}):
        with pytest.raises(Exception, match="KeyMismatchError") as failure:
            event_messages(spark, records(1), cs.FileKey(tmp_path / "short")).collect()
        assert text[20:60] not in str(failure.value)
        with pytest.raises(Exception, match="subscription='s0', round=1") as failure:
            cs.encode_interests(wrong, matcher, KEY).collect()
    frames = str(failure.value).split('ccbps/columnar/encoding.py"')
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
    places.check_hidden(needles, text)
