"""ObliviousTopicMatch through Spark: publish to all, open what is one's own, keys by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.keys.role_key import RoleKey
from ccbps.matching import ObliviousTopicMatch
from tests.spark.conftest import MODE, Places
from tests.topic_strategies import introduce

pytestmark = pytest.mark.spark

NAMES = ["AAPL", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(NAMES), price=UInt(12))
MATCHER = ObliviousTopicMatch(SCHEMA, ["issue"], payload_bytes=16, group="toy64")
TOPICS = [f"issue = '{name}'" for name in NAMES]
WISHES = ["issue = 'IBM'", "issue = 'AAPL'", "issue = 'IBM'"]
COUNT = 200


def keep(path: Path, key: RoleKey) -> cs.FileKey:
    path.write_text(key.to_text())
    return cs.FileKey(str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def keys(folder: Path) -> dict[str, cs.FileKey]:
    """Roles after the handshake; "early" is the publisher's key before others asked, too."""
    publisher, subscriber, bob = (
        MATCHER.publisher(TOPICS),
        MATCHER.subscriber(),
        MATCHER.subscriber(),
    )
    introduce(publisher, subscriber, bob)
    subscriber.accept(publisher.answer(subscriber.encode(WISHES)))
    found = {"early": keep(folder / "early", publisher.key)}
    bob.accept(publisher.answer(bob.encode("issue = 'GOOG'")))
    for name, key in (
        ("publisher", publisher.key),
        ("subscriber", subscriber.key),
        ("bob", bob.key),
    ):
        found[name] = keep(folder / name, key)
    return found


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


def published(df: DataFrame, key: cs.KeySource) -> DataFrame:
    return cs.publish_events(df, MATCHER, key, payload="payload", keep=["event"])


@pytest.fixture(scope="module")
def events(spark: SparkSession, keys: dict[str, cs.FileKey]) -> DataFrame:
    return published(spark.createDataFrame(table()), keys["publisher"])


def rows_of(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted((r["event"], r["interest"], bytes(r["payload"])) for r in df.collect())


def wanted(wishes: list[str]) -> list[tuple[object, ...]]:
    every = table()
    return sorted(
        (int(n), place, b"event %d" % n)
        for place, text in enumerate(wishes)
        for n in np.flatnonzero(SCHEMA.parse(text).evaluate(every))
    )


def test_subscribers_open_what_the_plaintext_filter_finds(
    events: DataFrame, keys: dict[str, cs.FileKey]
) -> None:
    assert events.columns == ["event", "number", "event_message"]
    opened = cs.open_events(events, MATCHER, keys["subscriber"])
    assert opened.columns == ["event", "number", "interest", "payload"]
    assert dict(opened.dtypes) == {
        "event": "bigint",
        "number": "bigint",
        "interest": "bigint",
        "payload": "binary",
    }
    assert rows_of(opened) == wanted(WISHES)
    assert rows_of(cs.open_events(events, MATCHER, keys["bob"])) == wanted(["issue = 'GOOG'"])


def test_without_payloads_there_are_answers_only(spark: SparkSession, tmp_path: Path) -> None:
    matcher = ObliviousTopicMatch(SCHEMA, ["issue"], group="toy64")
    publisher, subscriber = matcher.publisher(TOPICS), matcher.subscriber()
    introduce(publisher, subscriber)
    subscriber.accept(publisher.answer(subscriber.encode(WISHES)))
    df = spark.createDataFrame(table().drop_columns(["payload"]))
    sent = cs.publish_events(
        df, matcher, keep(tmp_path / "p", publisher.key), keep=["event"], output="m"
    )
    opened = cs.open_events(sent, matcher, keep(tmp_path / "s", subscriber.key), event="m")
    assert opened.columns == ["event", "number", "interest"]
    assert sorted((r["event"], r["interest"]) for r in opened.collect()) == [
        row[:2] for row in wanted(WISHES)
    ]


def test_messages_are_the_same_when_they_are_computed_again_and_the_roles_own(
    spark: SparkSession, events: DataFrame, keys: dict[str, cs.FileKey]
) -> None:
    found = [
        {r["event"]: bytes(r["event_message"]) for r in df.collect()}
        for df in (events, events, published(spark.createDataFrame(table()).repartition(3),
                                             keys["publisher"]))
    ]  # fmt: skip
    role = MATCHER.publisher_from(RoleKey.from_text(Path(keys["publisher"].path).read_text()))
    own = role.encode(table(), table()["payload"].to_pylist(), table()["number"].to_numpy())
    assert found == [{n: own[n].tobytes() for n in range(COUNT)}] * 3


def test_messages_of_different_widths_and_publishers_are_opened_together(
    spark: SparkSession, folder: Path, keys: dict[str, cs.FileKey]
) -> None:
    # One more publisher, and the first one at a time when bob had not yet asked.
    key = RoleKey.from_text(Path(keys["subscriber"].path).read_text())
    subscriber = MATCHER.subscriber_from(key)
    requests = subscriber.encode(["issue = 'MSFT'"])
    other = MATCHER.publisher(TOPICS[3:])
    more = [MATCHER.subscriber() for _ in range(2)]
    introduce(other, subscriber, *more)
    other.answer(np.vstack([one.encode(TOPICS) for one in more]))
    assert subscriber.accept(other.answer(requests)) == 1
    files = [keys["publisher"], keys["early"], keep(folder / "other", other.key)]
    df = spark.createDataFrame(table())
    parts = [df.where("event % 2 = 0"), df.where("event % 2 = 1"), df.where("issue = 'MSFT'")]
    frames = [published(part, file) for part, file in zip(parts, files, strict=True)]
    sent = frames[0].union(frames[1]).union(frames[2]).orderBy("event").coalesce(1)
    assert sent.select(F.length("event_message")).distinct().count() == 3
    own = cs.open_events(sent, MATCHER, keep(folder / "both", subscriber.key))
    assert rows_of(own) == wanted([*WISHES, "issue = 'MSFT'"])
    # Bob has no session with the other publisher, and none of the time before he asked.
    with pytest.raises(Exception, match="of a publisher whose sessions were not accepted"):
        cs.open_events(sent, MATCHER, keys["bob"]).collect()
    late = [row for row in wanted(["issue = 'GOOG'"]) if int(str(row[0])) % 2 == 0]
    assert rows_of(cs.open_events(sent, MATCHER, keys["bob"], on_error="drop")) == late


def test_a_number_that_occurs_twice_is_refused_before_anything_is_encoded(
    spark: SparkSession, keys: dict[str, cs.FileKey]
) -> None:
    df = spark.createDataFrame(table(20))
    twice = df.union(df.where("event = 7").withColumn("event", F.lit(99).cast("long")))
    number = table(20)["number"][7].as_py()
    with pytest.raises(RandomnessReuseError, match=f"number {number} occurs 2 times: each number"):
        published(twice, keys["publisher"])
    renamed = twice.withColumnRenamed("number", "n")
    with pytest.raises(RandomnessReuseError, match=f"n {number} occurs 2 times"):
        cs.publish_events(renamed, MATCHER, keys["publisher"], number="n", payload="payload")


def test_null_numbers_and_payloads_have_no_message_and_null_messages_match_nothing(
    spark: SparkSession, keys: dict[str, cs.FileKey]
) -> None:
    gone = spark.createDataFrame(table()).select(
        "event",
        "issue",
        "price",
        F.when(~F.col("event").isin(3, 5), F.col("number")).alias("number"),
        F.when(F.col("event") != 4, F.col("payload")).alias("payload"),
    )
    sent = published(gone, keys["publisher"])
    assert sorted(r["event"] for r in sent.where("event_message IS NULL").collect()) == [3, 4, 5]
    assert rows_of(cs.open_events(sent, MATCHER, keys["subscriber"])) == [
        row for row in wanted(WISHES) if row[0] not in (3, 4, 5)
    ]
    none = published(gone.where("number IS NULL"), keys["publisher"])
    assert rows_of(cs.open_events(none, MATCHER, keys["subscriber"])) == []


def test_malformed_events_fail_the_job_or_match_nothing(
    events: DataFrame, keys: dict[str, cs.FileKey]
) -> None:
    here = next(int(str(row[0])) for row in wanted(WISHES) if row[0])
    head, tail = F.expr("substring(event_message, 1, 24)"), F.expr("substring(event_message, 29)")
    wrong = {
        "events have 60 bytes and a multiple of 32, got 5": F.lit(b"short"),
        "no event of this version and matcher": F.lit(bytearray(MATCHER.event_bytes(4))),
        "the payload was altered": F.concat(head, F.lit(b"\0\0\0\0"), tail),
    }
    expected = [row for row in wanted(WISHES) if row[0] not in (0, here)]
    for cause, value in wrong.items():
        # NULL in front of it: rows are not those of what is opened.
        message = F.when(F.col("event") == here, value).when(
            F.col("event") != 0, F.col("event_message")
        )
        bad = events.withColumn("event_message", message)
        named = f"event={here}, number={table()['number'][here].as_py()}: {cause}"
        with pytest.raises(Exception, match=named + "; with on_error='drop'"):
            cs.open_events(bad, MATCHER, keys["subscriber"]).collect()
        kept = cs.open_events(bad, MATCHER, keys["subscriber"], on_error="drop")
        assert rows_of(kept) == expected


def test_records_payloads_and_numbers_that_do_not_fit_fail_the_job(
    spark: SparkSession, folder: Path, keys: dict[str, cs.FileKey]
) -> None:
    df = spark.createDataFrame(table(20)).coalesce(1)
    number = table(20)["number"][7].as_py()
    here = F.col("event") == 7

    def when(name: str, value: object) -> DataFrame:
        return df.withColumn(name, F.when(here, F.lit(value)).otherwise(F.col(name)))

    narrow = MATCHER.publisher([t for t in TOPICS if table(20)["issue"][7].as_py() not in t])
    counted = MATCHER.publisher(TOPICS)
    counted.encode(table(1), [b""], [2**40 + 10])
    for bad, key, problem in (
        (when("price", 5000), keys["publisher"], rf"number={number}: .*price"),
        (when("payload", b"x" * 17), keys["publisher"], f"number={number}: the payload is longer"),
        (when("number", -4), keys["publisher"], "numbers must not be negative, got -4"),
        (df, keep(folder / "narrow", narrow.key), r"number=\d+: row \d+ is of none of this pub"),
        (df, keep(folder / "counted", counted.key), rf"may have been used.* from {2**40 + 11} on"),
    ):
        with pytest.raises(Exception, match=problem):
            published(bad, key).collect()


def test_rows_that_cannot_be_published_are_set_aside(spark: SparkSession, folder: Path) -> None:
    rows = table(20)
    foreign = rows["issue"][3].as_py()
    narrow = MATCHER.publisher([topic for topic in TOPICS if foreign not in topic])
    at = pc.equal  # rows by their number
    events = rows.column("event")
    prices = pc.if_else(at(events, 5), 5000, rows.column("price"))
    payloads = pc.if_else(at(events, 7), b"x" * 17, rows.column("payload"))
    numbers = pc.if_else(at(events, 9), None, rows.column("number"))
    bad = pa.table(
        {
            "event": events,
            "number": numbers,
            "issue": rows["issue"],
            "price": prices,
            "payload": payloads,
        }
    )
    df = spark.createDataFrame(bad)
    found = cs.publish_events(
        df,
        MATCHER,
        keep(folder / "narrow2", narrow.key),
        payload="payload",
        keep=["event"],
        on_error="reject",
    ).orderBy("event")
    reasons = {row.event: (row.event_message is None, row.rejected) for row in found.collect()}
    for event, issue in zip(range(20), rows["issue"].to_pylist(), strict=True):
        missing, reason = reasons[event]
        if event == 5:
            assert missing
            assert "price" in reason
            assert "5000" not in reason
        elif event == 9:
            assert missing
            assert reason is None
        elif issue == foreign:
            assert (missing, reason) == (True, "none of the publisher's topics")
        elif event == 7:
            assert missing
            assert "payload is longer" in reason
        else:
            assert (missing, reason) == (False, None)


def test_columns_and_keys_that_do_not_fit_are_refused(
    spark: SparkSession, events: DataFrame, keys: dict[str, cs.FileKey]
) -> None:
    df, key = spark.createDataFrame(table(5)), keys["publisher"]
    plain = ObliviousTopicMatch(SCHEMA, ["issue"], group="toy64")
    role = MATCHER.publisher(TOPICS)
    for arguments, problem in (
        ((df, MATCHER, key, {}), "payload must be a binary column.* got None"),
        ((df, plain, key, {"payload": "payload"}), "payload must be None"),
        ((df, MATCHER, key, {"payload": "price"}), "'price' must be binary"),
        ((df, MATCHER, key, {"payload": "payload", "number": "price"}), "is also an attribute"),
        ((df, MATCHER, key, {"payload": "payload", "number": "payload"}), "must be a whole number"),
        (
            (df, MATCHER, key, {"payload": "payload", "output": "event", "keep": ["event"]}),
            "output='event'",
        ),
        ((df, MATCHER, key, {"payload": "payload", "keep": ["price"]}), "keep names 'price'"),
        ((df, MATCHER, key, {"payload": "payload", "keep": ["payload"]}), "keep names 'payload'"),
        (
            (
                df.withColumn("price", F.col("price").cast("float")),
                MATCHER,
                key,
                {"payload": "payload"},
            ),
            "'price' is FLOAT",
        ),
        ((df.drop("issue"), MATCHER, key, {"payload": "payload"}), "'issue' is missing"),
        ((df, MATCHER, role.key, {"payload": "payload"}), "key must be a KeySource"),
    ):
        frame, matcher, given, options = arguments
        with pytest.raises(ParameterError, match=problem):
            cs.publish_events(frame, matcher, given, **options)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="on_error must be"):
        cs.open_events(events, MATCHER, key, on_error="x")  # type: ignore[arg-type]
    for taken in ("interest", "payload"):
        with pytest.raises(ParameterError, match=f"'{taken}' would be there twice"):
            cs.open_events(events.withColumn(taken, F.lit(1)), MATCHER, key)
    with pytest.raises(Exception, match="the key of a publisher, wanted a subscriber's"):
        cs.open_events(events, MATCHER, key).collect()
    with pytest.raises(Exception, match="the key of a subscriber, wanted a publisher's"):
        published(df, keys["subscriber"]).collect()
    with pytest.raises(Exception, match="belongs to another matcher"):
        cs.open_events(events, plain, keys["subscriber"]).collect()


def test_no_key_enters_a_plan_an_error_or_a_file(
    events: DataFrame,
    keys: dict[str, cs.FileKey],
    places: Places,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened = cs.open_events(events, MATCHER, keys["subscriber"])
    opened.explain(extended=True)
    assert rows_of(opened)
    text = capsys.readouterr().out
    assert "event_message" in text
    bad = events.withColumn("event_message", F.lit(b"short"))
    with pytest.raises(Exception, match="got 5") as failure:
        cs.open_events(bad, MATCHER, keys["subscriber"]).collect()
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
    assert not any(needle in text.encode() for needle in needles)
    files = [p for root in (places.event_log, places.local) for p in root.rglob("*") if p.is_file()]
    if MODE == "classic":
        assert any(p.is_relative_to(places.event_log) for p in files)
    for path in files:
        content = path.read_bytes()
        assert not any(needle in content for needle in needles), path.name
