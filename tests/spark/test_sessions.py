"""ObliviousTopicMatch through Spark: publish to all, open what is one's own, keys by name.

What happens to rows within a batch is tested without Spark, in `tests/columnar/test_sessions.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.keys.role_key import RoleKey
from ccbps.matching import ObliviousTopicMatch
from tests.support.spark_session import Keys, Places, damaged, rows_by, save
from tests.support.topic_strategies import introduce

pytestmark = pytest.mark.spark

NAMES = ["AAPL", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(NAMES), price=UInt(12))
MATCHER = ObliviousTopicMatch(SCHEMA, ["issue"], payload_bytes=16, group="toy64")
TOPICS = [f"issue = '{name}'" for name in NAMES]
WISHES = ["issue = 'IBM'", "issue = 'AAPL'", "issue = 'IBM'"]
COUNT = 60


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Roles after the handshake."""
    folder = tmp_path_factory.mktemp("keys")
    publisher = MATCHER.new_publisher(TOPICS)
    alice, bob = MATCHER.new_subscriber(), MATCHER.new_subscriber()
    introduce(publisher, alice, bob)
    alice.accept(publisher.answer(alice.encode(WISHES)))
    bob.accept(publisher.answer(bob.encode("issue = 'GOOG'")))
    return {
        "publisher": save(folder / "publisher", publisher.key),
        "alice": save(folder / "alice", alice.key),
        "bob": save(folder / "bob", bob.key),
    }


def table(count: int = COUNT) -> pa.Table:
    rng = np.random.default_rng(4)
    return pa.table(
        {
            "event": np.arange(count),
            "number": rng.permutation(count) + 2**40,
            "issue": rng.choice(NAMES, count).tolist(),
            "price": rng.integers(0, 4096, count),
            "payload": [b"event %d" % i for i in range(count)],
        }
    )


def published(df: DataFrame, key: cs.KeySource, **options: str) -> DataFrame:
    return cs.encode_events(
        df, MATCHER, key, round="number", payload="payload", keep=["event"], **options
    )


@pytest.fixture(scope="module")
def events(spark: SparkSession, keys: Keys) -> DataFrame:
    """Of the table; those numbered NULL have no message."""
    number = F.when(F.col("event") != 5, F.col("number"))
    df = spark.createDataFrame(table()).coalesce(1).withColumn("number", number)
    sent = published(df, keys["publisher"])
    assert sent.columns == ["event", "number", "event_message"]
    return spark.createDataFrame(sent.toArrow()).coalesce(1)


def rows_of(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted((r["event"], r["interest"], bytes(r["payload"])) for r in df.collect())


def wanted(wishes: list[str]) -> list[tuple[object, ...]]:
    every = table()
    return sorted(
        (int(n), place, b"event %d" % n)
        for place, text in enumerate(wishes)
        for n in np.flatnonzero(SCHEMA.parse(text).evaluate(every))
        if n != 5
    )


def test_subscribers_open_what_the_plaintext_filter_finds(events: DataFrame, keys: Keys) -> None:
    opened = cs.match(events, None, MATCHER, keys["alice"])
    assert opened.dtypes == [
        ("event", "bigint"),
        ("number", "bigint"),
        ("interest", "bigint"),
        ("payload", "binary"),
    ]
    assert rows_of(opened) == wanted(WISHES)
    assert rows_of(cs.match(events, None, MATCHER, keys["bob"])) == wanted(["issue = 'GOOG'"])


def test_columns_have_any_names(events: DataFrame, keys: Keys) -> None:
    odd = events.toDF("an.event", "a`number", ".message")
    opened = cs.match_own(odd, MATCHER, keys["alice"], event=".message")
    assert opened.columns == ["an.event", "a`number", "interest", "payload"]
    assert rows_of(opened.withColumnRenamed("an.event", "event")) == wanted(WISHES)


def test_without_payloads_there_are_answers_only(spark: SparkSession, tmp_path: Path) -> None:
    matcher = ObliviousTopicMatch(SCHEMA, ["issue"], group="toy64")
    publisher, alice = matcher.new_publisher(TOPICS), matcher.new_subscriber()
    introduce(publisher, alice)
    alice.accept(publisher.answer(alice.encode(WISHES)))
    df = spark.createDataFrame(table()).withColumnRenamed("number", "round")
    key = save(tmp_path / "p", publisher.key)
    sent = cs.encode_events(df, matcher, key, keep=["event"], output="m")
    opened = cs.match_own(sent, matcher, save(tmp_path / "s", alice.key), event="m")
    assert opened.columns == ["event", "round", "interest"]
    found = rows_by(opened.where("event <> 5"), "event", "interest")
    assert sorted(found) == [row[:2] for row in wanted(WISHES)]


def test_a_number_that_occurs_twice_is_refused_before_anything_is_encoded(
    spark: SparkSession, keys: Keys
) -> None:
    df = spark.createDataFrame(table(20))
    twice = df.union(df.where("event = 7").withColumn("event", F.lit(99).cast("long")))
    number = table(20)["number"][7].as_py()
    with pytest.raises(RandomnessReuseError, match=f"number {number} occurs 2 times: each number"):
        published(twice, keys["publisher"])


def test_malformed_events_fail_the_job_or_match_nothing(events: DataFrame, keys: Keys) -> None:
    here = next(int(str(row[0])) for row in wanted(WISHES) if row[0])
    bad = damaged(events, "event_message", {f"event = {here}": b"short"})
    named = f"event={here}, number={table()['number'][here].as_py()}: events have"
    with pytest.raises(Exception, match=named + ".*on_error='reject'"):
        cs.match(bad, None, MATCHER, keys["alice"]).collect()
    kept = cs.match(bad, None, MATCHER, keys["alice"], on_error="drop")
    assert rows_of(kept) == [row for row in wanted(WISHES) if row[0] != here]
    told = cs.match(bad, None, MATCHER, keys["alice"], on_error="reject")
    assert told.columns == ["event", "number", "interest", "payload", "rejected"]
    good = told.where("rejected IS NULL").drop("rejected")
    assert rows_of(good) == rows_of(kept)
    (row,) = told.where("rejected IS NOT NULL").collect()
    assert (row["event"], row["interest"], row["payload"]) == (here, None, None)
    assert "events have" in row["rejected"]


def test_rows_that_cannot_be_published_are_set_aside(spark: SparkSession, keys: Keys) -> None:
    price = F.when(F.col("event") == 2, F.lit(5000)).otherwise(F.col("price"))
    df = spark.createDataFrame(table(4)).withColumn("price", price)
    aside = published(df, keys["publisher"], on_error="reject")
    assert aside.columns == ["event", "number", "event_message", "rejected"]
    found = rows_by(aside, "event")
    assert [n for n, row in found.items() if row["event_message"] is None] == [2]
    assert [n for n, row in found.items() if row["rejected"] is not None] == [2]


def test_columns_that_do_not_fit_are_refused(
    spark: SparkSession, events: DataFrame, keys: Keys
) -> None:
    df, key = spark.createDataFrame(table(5)), keys["publisher"]
    role = MATCHER.new_publisher(TOPICS)
    good = {"payload": "payload", "round": "number"}
    for frame, given, options, problem in (
        (df, key, good | {"payload": "price"}, "'price' must be binary"),
        (df, key, good | {"round": "price"}, "'price' is also a column to be encoded"),
        (df, key, good | {"round": "payload"}, "'payload' is also a column to be encoded"),
        (df, key, good | {"round": "issue"}, "'issue' is also a column"),
        (df, key, good | {"output": "event", "keep": ["event"]}, "output='event'"),
        (df, key, good | {"keep": ["price"]}, "keep names 'price'"),
        (df, key, good | {"keep": ["payload"]}, "keep names 'payload'"),
        (df.withColumn("price", F.lit(1.0).cast("float")), key, good, "'price' is FLOAT"),
        (df.drop("issue"), key, good, "'issue' is missing"),
        (df, role.key, good, "key must be a KeySource"),
    ):
        with pytest.raises(ParameterError, match=problem):
            cs.encode_events(frame, MATCHER, given, **options)  # type: ignore[arg-type]
    for taken in ("interest", "payload"):
        with pytest.raises(ParameterError, match=f"'{taken}' would be there twice"):
            cs.match(events.withColumn(taken, F.lit(1)), None, MATCHER, key)


def test_no_key_enters_a_plan_an_error_or_a_file(
    events: DataFrame,
    keys: Keys,
    places: Places,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened = cs.match(events, None, MATCHER, keys["alice"])
    opened.explain(extended=True)
    assert rows_of(opened)
    text = capsys.readouterr().out
    assert "event_message" in text
    bad = events.withColumn("event_message", F.lit(b"short"))
    with pytest.raises(Exception, match="got 5") as failure:
        cs.match(bad, None, MATCHER, keys["alice"]).collect()
    text += str(failure.value)
    needles: list[bytes] = []
    for file in keys.values():
        secret = Path(file.path).read_text()
        data = RoleKey.from_text(secret).export_secret_data()
        digits = [secret.partition(":")[2][200:264]]
        digits.append(data["signing"])
        if "payload" in data:
            digits += [data["payload"], data["answers"], *(key[:64] for key in data["keys"])]
        else:
            digits += [session[3][:64] for session in data["sessions"]]
        needles += [part.encode() for part in digits] + [bytes.fromhex(part) for part in digits]
    assert len(needles) > 20
    places.check_hidden(needles, text)
