"""Rounds that a ledger allots: one pass, the same messages again, no round with two contents."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.delivery import SimpleCache
from ccbps.errors import LedgerError, ParameterError, RandomnessReuseError
from ccbps.matching import BroadcastMatch, FormulaMatch, TagMatch
from ccbps.spark import encoding
from tests.support import effort
from tests.support.spark_session import KEY, MODE, drained, rows_by, save, wishes

pytestmark = pytest.mark.spark

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(16))
MATCHER = FormulaMatch.box(SCHEMA)
PREDICATES = {"alice": "issue = 'IBM'", "bob": "price < 30000", "carol": "price > 10 AND price < 9"}
ISSUES = ["AAPL", "GOOG", "IBM"]


def quotes(spark: SparkSession, ids: list[Any], *, step: int = 1) -> DataFrame:
    kind = "string" if isinstance(ids[0], str) else "long"
    rows = [(one, ISSUES[n % 3], step * 991 * n % 65536) for n, one in enumerate(ids)]
    return spark.createDataFrame(rows, f"id {kind}, issue string, price int").repartition(3)


def encode(df: DataFrame, ledger: cs.EventLedger | cs.RemoteLedger, **options: Any) -> DataFrame:
    options = {"labels": [*PREDICATES], "event": "id", "keep": ["id"], **options}
    return cs.encode_events(df, MATCHER, KEY, ledger=ledger, **options)


def found(df: DataFrame) -> dict[tuple[str, Any], tuple[int, bytes]]:
    rows = rows_by(df, "subscription", "id")
    return {at: (row.round, bytes(row.event_message)) for at, row in rows.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.ledger"


@pytest.mark.slow
def test_a_server_in_place_of_the_file(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """It allots what the file does, to workers that have the seed, and refuses others' keys."""
    first = cs.EventLedger(path)
    other = save(tmp_path / "other.key", SharedSeed.generate().ledger_key())
    with cs.LedgerServer(first, KEY) as server:
        remote = cs.RemoteLedger(server.address, first.identity())
        made = found(encode(quotes(spark, [*range(40)]), remote))
    assert first.used() == 40
    assert made == found(encode(quotes(spark, [*range(40)]), first))
    with cs.LedgerServer(first, KEY) as server:
        remote = cs.RemoteLedger(server.address)
        changed = quotes(spark, [*range(41)], step=2)
        with pytest.raises(Exception, match="was used for an event with other content"):
            encode(changed, remote).collect()
        assert first.used() == 40
        apart = encode(changed, remote, on_error="reject")
        assert apart.where("rejected IS NULL").select("id").distinct().count() == 2
    with (
        cs.LedgerServer(first, other) as server,
        pytest.raises(Exception, match="does not know the ledger key of this seed"),
    ):
        encode(quotes(spark, [1]), cs.RemoteLedger(server.address)).collect()


def test_answers_are_the_plaintext_ones(spark: SparkSession, path: Path) -> None:
    df = quotes(spark, [*range(40)])
    events = encode(df, cs.EventLedger(path))
    assert events.columns == ["subscription", "round", "id", "event_message"]
    interests = cs.encode_interests(wishes(spark, PREDICATES), MATCHER, KEY, rounds=range(45))
    matched = cs.match(events, interests, MATCHER).where("matched")
    got = {(row.subscription, row.id) for row in matched.collect()}
    records = df.collect()
    codes = SCHEMA.encode([{"issue": row.issue, "price": row.price} for row in records])
    assert got == {
        (label, row.id)
        for label, predicate in PREDICATES.items()
        for row, answer in zip(records, SCHEMA.parse(predicate).evaluate(codes), strict=True)
        if answer
    }
    assert len(got) > 20


@pytest.mark.slow
def test_two_jobs_at_once_share_a_ledger_and_read_their_input_once(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    """Each has events that the other has, too."""
    ledger, both = cs.EventLedger(path), threading.Barrier(2)
    records = quotes(spark, [*range(900)]).toArrow().to_pylist()

    def job(number: int) -> dict[tuple[str, Any], tuple[int, bytes]]:
        seen = tmp_path / f"seen {number}"
        seen.mkdir()

        def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                (seen / uuid4().hex).write_text("\n".join(map(str, batch["id"].to_pylist())))
                yield batch

        rows = [row for row in records if 300 * number <= row["id"] < 300 * number + 600]
        df = spark.createDataFrame(rows, "id long, issue string, price int").repartition(4)
        both.wait(60)
        made = found(encode(df.mapInArrow(note, df.schema), ledger))
        read = [line for file in seen.iterdir() for line in file.read_text().split()]
        assert sorted(map(int, read)) == sorted(row["id"] for row in rows)
        return made

    with ThreadPoolExecutor(2) as jobs:
        one, other = jobs.map(job, range(2))
    assert len(one) == len(other) == 600 * len(PREDICATES)
    shared = one.keys() & other.keys()
    assert len(shared) == 300 * len(PREDICATES)
    assert {key: one[key] for key in shared} == {key: other[key] for key in shared}
    rounds = {key[1]: number for key, (number, _) in (one | other).items()}
    assert sorted(rounds.values()) == [*range(900)] and ledger.used() == 900


@pytest.mark.slow
def test_interests_are_encoded_ahead(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_TOGETHER", 16)
    wanted = wishes(spark, PREDICATES).withColumn("owner", F.lit("x"))
    numbers = spark.range(7, 60).withColumnRenamed("id", "turn")
    options: dict[str, Any] = {"round": "turn", "keep": ["owner"]}
    by_hand = cs.encode_interests(wanted.crossJoin(numbers), MATCHER, KEY, **options)
    by_hand = by_hand.select("subscription", "turn", "owner", "interest_message")
    expected = sorted(map(tuple, by_hand.collect()))
    options["rounds"] = range(7, 60)
    for partitions in (None, 1, 12) if effort.everything else (4,):
        made = cs.encode_interests(wanted, MATCHER, KEY, partitions=partitions, **options)
        assert made.columns == ["subscription", "turn", "owner", "interest_message"]
        assert made.dtypes == by_hand.dtypes
        rows = made.withColumn("task", F.spark_partition_id()).collect()
        assert sorted(tuple(row)[:-1] for row in rows) == expected
        tasks = len({row.task for row in rows})
        assert tasks <= (partitions or tasks) and (tasks > 1 or partitions in (None, 1))
    name = min(PREDICATES)
    twice = wanted.union(wanted.where(F.col("subscription") == name))
    with pytest.raises(RandomnessReuseError, match=f"subscription '{name}' occurs 2 times"):
        cs.encode_interests(twice, MATCHER, KEY, rounds=range(9))
    aside = cs.encode_interests(twice, MATCHER, KEY, rounds=range(9), on_error="reject")
    counts = aside.where("rejected IS NOT NULL").groupBy("subscription").count().collect()
    assert [tuple(row) for row in counts] == [(name, 18)]
    for bad in (9, range(0), range(-1, 5), range(0, 9, 2), [1, 2]):
        with pytest.raises(ParameterError, match="rounds must be a range of rounds from 0 on"):
            cs.encode_interests(wanted, MATCHER, KEY, rounds=bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="partitions= is for rounds="):
        cs.encode_interests(wanted, MATCHER, KEY, partitions=3)


@pytest.mark.slow
def test_what_is_encoded_again_is_the_same_and_new_events_get_new_rounds(
    spark: SparkSession, path: Path
) -> None:
    ledger = cs.EventLedger(path)
    ids = [f"q{n}" for n in range(30)]
    first = found(encode(quotes(spark, ids), ledger))
    assert {turn for turn, _ in first.values()} == {*range(30)}
    # Later, from another process, other partitions, with more events and one more label.
    again = quotes(spark, [*ids, "new", "newer"]).repartition(1)
    more = found(encode(again, cs.EventLedger(path), labels=[*PREDICATES, "dave"]))
    assert {key: value for key, value in more.items() if key in first} == first
    assert {more["dave", one] for one in ids}.isdisjoint(first.values())
    assert {more[label, "new"][0] for label in PREDICATES} <= {30, 31}
    assert ledger.used() == 32
    # NULL in, NULL out; and twice in one batch is once.
    twice = quotes(spark, ["q0"]).union(quotes(spark, ["q0"])).coalesce(1)
    rows = encode(twice, ledger, labels=["alice"]).collect()
    assert {(row.round, bytes(row.event_message)) for row in rows} == {first["alice", "q0"]}
    nothing = quotes(spark, ["q0"]).withColumn("id", F.lit(None).cast("string"))
    (row,) = encode(nothing, ledger, labels=["alice"]).collect()
    assert (row.round, row.event_message) == (None, None)
    assert ledger.used() == 32


def test_an_id_with_other_content_is_refused_before_anything_is_encoded(
    spark: SparkSession, path: Path
) -> None:
    ledger = cs.EventLedger(path)
    found(encode(quotes(spark, [*range(9)]), ledger))
    changed = quotes(spark, [*range(20)], step=2).coalesce(1)
    with pytest.raises(
        Exception, match=r"id='[1-8]': its id was used for an event with other content"
    ):
        encode(changed, ledger).collect()
    assert ledger.used() == 9
    rows = encode(changed, ledger, on_error="reject").collect()
    refused = [row for row in rows if row.rejected is not None]
    assert {row.id for row in refused} == {*range(1, 9)}  # the first price is 0 in both
    assert all(row.event_message is row.round is row.subscription is None for row in refused)
    assert len(refused) == 8
    assert len(rows) == 8 + 12 * len(PREDICATES)
    assert ledger.used() == 20


@pytest.mark.slow
def test_rows_that_do_not_fit_are_set_aside_and_take_no_round(
    spark: SparkSession, path: Path
) -> None:
    ledger = cs.EventLedger(path)
    bad = quotes(spark, [*range(9)]).withColumn(
        "issue", F.when(F.col("id") == 4, "MSFT").otherwise(F.col("issue"))
    )
    with pytest.raises(Exception, match="id='4': attribute 'issue'"):
        encode(bad.coalesce(1), ledger).collect()
    rows = encode(bad, ledger, on_error="reject").collect()
    (refused,) = [row for row in rows if row.rejected is not None]
    assert refused.id == 4
    assert "attribute 'issue'" in refused.rejected
    assert len(rows) == 1 + 8 * len(PREDICATES)
    assert ledger.used() == 8


def test_broadcasts_have_a_round_and_no_labels(spark: SparkSession, path: Path) -> None:
    matcher, df = BroadcastMatch.box(SCHEMA), quotes(spark, [*range(9)])
    ledger = cs.EventLedger(path)
    events = cs.encode_events(df, matcher, KEY, ledger=ledger, event="id")
    assert events.columns == ["round", "event_message"]
    assert {row.round for row in events.collect()} == {*range(9)}
    # Of another matcher, rounds are others.
    assert {turn for turn, _ in found(encode(df, ledger)).values()} == {*range(9)}
    with pytest.raises(ParameterError, match="labels= does not apply to BroadcastMatch"):
        cs.encode_events(df, matcher, KEY, ledger=ledger, event="id", labels=["alice"])


@pytest.mark.slow
def test_rounds_run_out_with_a_word(
    spark: SparkSession, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = cs.EventLedger(path, rounds=10)
    found(encode(quotes(spark, [*range(8)]), ledger))
    with pytest.raises(Exception, match="8 of 10 rounds are used, and"):
        encode(quotes(spark, [*range(11)]).coalesce(1), ledger).collect()
    assert ledger.used() == 8
    found(encode(quotes(spark, [*range(9)]), ledger))
    assert "rounds are used" not in caplog.text  # the worker has said it
    encode(quotes(spark, [0]), ledger)
    assert "9 of 10 rounds are used (" in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(MODE == "connect", reason="there foreachBatch runs in another process")
def test_streams_go_on_where_they_were(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """Killed before their commit, they write the same messages."""
    ledger, source = cs.EventLedger(path), tmp_path / "source"
    source.mkdir()
    for part in range(3):
        rows = quotes(spark, [*range(10 * part, 10 * part + 10)]).coalesce(1).toPandas()
        rows.to_json(source / f"{part}.json", orient="records", lines=True)
    written: list[dict[tuple[str, Any], tuple[int, bytes]]] = []

    def write(batch: DataFrame, number: int) -> None:
        written.append(found(batch))
        if len(written) == 2:
            raise OSError("dies before its commit")

    for life in range(2):
        stream = (
            spark.readStream.schema("id long, issue string, price int")
            .option("maxFilesPerTrigger", 1)
            .json(str(source))
        )
        encoded = encode(stream, ledger)
        if life == 0:
            with pytest.raises(Exception, match="dies before its commit"):
                drained(encoded, tmp_path, write)
        else:
            drained(encoded, tmp_path, write)
    assert len(written) == 4
    assert written[1] == written[2]
    everything = {key: value for batch in written for key, value in batch.items()}
    assert len(everything) == 30 * len(PREDICATES)
    assert {turn for turn, _ in everything.values()} == {*range(30)}


def unstable(df: DataFrame, name: str) -> list[Callable[[], DataFrame]]:
    number = F.monotonically_increasing_id()
    wide = [number.alias("x0"), *[F.lit(n).alias(f"x{n}") for n in range(1, 40)]]
    return [
        lambda: df.withColumn(name, number),
        lambda: df.withColumn(name, (F.rand(3) * 1000).cast("long")),
        lambda: df.withColumn(name, F.explode(F.array(number))),
        lambda: df.select("*", *wide).distinct().withColumn(name, F.col("x0")),
        lambda: df.withColumn("s", F.struct(*wide)).withColumn(name, F.col("s.x0")),
        lambda: df.withColumn(name, F.concat_ws(")\n", F.lit("(\n["), number)),
        lambda: df.withColumn(name, F.row_number().over(Window.orderBy(F.rand()))),
        lambda: df.withColumn(name, F.lit(1)).union(df.withColumn(name, number)),
        lambda: df.withColumn("x", F.uuid()).withColumn(name, F.col("x")).drop("x"),
        lambda: df.withColumn("y", F.monotonically_increasing_id()).select(
            F.col("y").alias(name), "issue", "price"
        ),
        *on_the_clock(df, name),
        lambda: df.sample(0.9).withColumn(name, F.row_number().over(Window.orderBy("price"))),
        lambda: df.where(F.rand() < 0.9).withColumn(
            name, F.row_number().over(Window.orderBy("price"))
        ),
    ]


def on_the_clock(df: DataFrame, name: str) -> list[Callable[[], DataFrame]]:
    """Ids that a job has another time, because it runs at another time."""
    day = F.concat(F.current_date().cast("string"), F.col("issue"))
    return [
        lambda: df.withColumn(name, F.unix_micros(F.current_timestamp()) + F.col("price")),
        lambda: df.withColumn(name, day),
        lambda: df.withColumn(name, F.expr("unix_timestamp() DIV 3600")),
        lambda: df.withColumn("at", F.expr("now()")).withColumn(name, F.col("at").cast("long")),
    ]


@pytest.mark.slow
def test_ids_that_change_when_a_task_runs_again_are_refused(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    df, ledger = quotes(spark, [*range(9)]).drop("id"), cs.EventLedger(path)
    views = spark.catalog.listTables()
    for make in unstable(df, "id"):
        with pytest.raises(ParameterError, match=r"event=.id. comes from .* number rows once"):
            encode(make(), ledger)
    addressed = unstable(df, "round")[1]().withColumn("subscription", F.lit("alice"))
    news = addressed.select("subscription", "round", F.col("round").alias("event"), "issue")
    numbered = news.withColumn("number", F.lit(1))
    members = news.select("event", F.lit(0).alias("members"), F.col("issue").alias("payload"))
    grouped = addressed.groupBy("issue").agg(F.min("round").alias("round"))
    grouped = grouped.selectExpr("*", "1 AS price", "'alice' AS subscription")
    wide = addressed.select("*", *[F.lit(n).alias(f"column {n}") for n in range(40)])
    wanted = wide.withColumn("predicate", F.lit("price > 3"))
    calls: list[tuple[str, Callable[[], DataFrame]]] = [
        ("round", lambda: cs.encode_events(addressed, MATCHER, KEY)),
        ("event", lambda: cs.seal_payloads(news, KEY, payload="issue")),
        ("round", lambda: cs.wrap_keys(news, KEY)),
        ("event", lambda: cs.wrap_keys(numbered, KEY, round="number")),
        ("event", lambda: cs.seal_for_groups(members, SimpleCache(2, 2), KEY)),
        ("round", lambda: cs.encode_events(grouped, MATCHER, KEY)),
        ("round", lambda: cs.encode_interests(wanted, MATCHER, KEY)),
    ]
    for name, call in calls:
        with pytest.raises(ParameterError, match=f"{name}='{name}' comes from"):
            call()
    # In a table they are what they are; and what else is random does no harm.
    unstable(df, "id")[0]().write.parquet(str(tmp_path / "numbered"))
    numbered = spark.read.parquet(str(tmp_path / "numbered")).withColumn("noise", F.rand())
    loaded = numbered.withColumn("loaded", F.current_timestamp()).where("loaded > '2020-01-01'")
    assert len(found(encode(loaded, ledger, labels=["alice"]))) == 9
    encode(loaded.sample(0.5), ledger, labels=["alice"])
    assert spark.catalog.listTables() == views


@pytest.mark.slow
def test_ids_of_streams_that_change_are_refused(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    quotes(spark, [*range(3)]).write.parquet(str(tmp_path / "quotes"))
    schema, ledger = "id long, issue string, price int", cs.EventLedger(path)
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "quotes"))
    assert encode(stream, ledger).isStreaming
    noted = stream.withColumn("loaded", F.current_timestamp()).withColumn("noise", F.rand())
    assert encode(noted, ledger).isStreaming
    for make in [*unstable(stream.drop("id"), "id")[:3], *on_the_clock(stream.drop("id"), "id")]:
        with pytest.raises(ParameterError, match=r"event='id' comes from .*\(\)"):
            encode(make(), ledger)


def test_ids_are_looked_through_in_threads(
    spark: SparkSession, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    df, ledger, output = quotes(spark, [*range(9)]).drop("id"), cs.EventLedger(path), sys.stdout
    changing = unstable(df, "id")[0]()

    def refused(_: int) -> bool:
        print("a line of the caller's")
        try:
            encode(changing, ledger)
        except ParameterError:
            return True
        return False

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(refused, range(12)))
    assert sys.stdout is output
    # Lines of several threads may stand in one; none is lost, and nothing else is there.
    shown = capfd.readouterr().out
    assert shown.count("a line of the caller's") == 12
    assert not shown.replace("a line of the caller's", "").strip()
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == "25"


def test_arguments_are_checked(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    df, ledger = quotes(spark, [*range(3)]), cs.EventLedger(path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ledger": str(path)}, "ledger must be an EventLedger"),
        ({"event": "nothing"}, "event='nothing' must be a column .* not there"),
        ({"event": None}, "event='event' must be a column"),
        ({"labels": None}, "labels must name the subscriptions"),
        ({"labels": []}, "labels must name"),
        ({"labels": "alice"}, "labels must name"),
        ({"labels": ["\ud800"]}, "labels must name"),
        ({"labels": ["x" * (2 << 20)]}, "labels must name"),
        (
            {"labels": [f"{n:03d}" + "\u00fc" * (99 << 10) for n in range(171)]},
            "at most 32 MiB of names, got 33 MiB: they travel",
        ),
        ({"keep": ["price"]}, "keep names 'price'"),
        ({"round": "price"}, "round='price' is also a column to be encoded"),
    ]
    for options, said in wrong:
        with pytest.raises(ParameterError, match=said):
            encode(df, **{"ledger": ledger, **options})
    with pytest.raises(ParameterError, match="labels= is for a ledger"):
        cs.encode_events(df, MATCHER, KEY, labels=["alice"])
    with pytest.raises(ParameterError, match="ledger= does not apply to TagMatch"):
        cs.encode_events(df, TagMatch(SCHEMA), KEY, ledger=ledger, event="id")
    with pytest.raises(ParameterError, match="rounds must be"):
        cs.EventLedger(path, rounds=0)
    (tmp_path / "text").write_text("no ledger")
    with pytest.raises(LedgerError):
        cs.EventLedger(tmp_path / "text")
