"""Stores that grow: generations, streams that append exactly once, compaction, the data source."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching import BroadcastMatch
from ccbps.spark import stores
from ccbps.spark.source import MessageSource
from ccbps.store import commit
from ccbps.store.folder import Folder
from ccbps.store.versions import WriterRun
from tests.support.meanwhile import Meanwhile
from tests.support.message_stores import compact, written
from tests.support.spark_session import answers, drained, rows_by
from tests.support.stored_pairs import BOX, Rounds, append, frame, rows_of, wanted, write

pytestmark = pytest.mark.spark


def pairs(df: DataFrame) -> set[tuple[str, int]]:
    return {*rows_by(df, "subscription", "round")}


def joined(*several: Rounds) -> Rounds:
    return {
        label: sorted(n for one in several for n in one.get(label, []))
        for label in {label for one in several for label in one}
    }


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> None:
    cs.register_source(spark)


@pytest.mark.slow
def test_subscribers_write_ahead_and_the_broker_matches_all_their_stores(
    spark: SparkSession, tmp_path: Path
) -> None:
    own = {
        "s0": [{"s0": list(range(40))}, {"s0": list(range(40, 80))}],
        "s1": [{"s1": [5, 9, 13]}, {"s1": [4, 10]}, {"s1": list(range(20, 60))}],
    }
    for label, generations in own.items():
        for rounds in generations:
            append(spark, rounds, tmp_path / label, "interest")
    stores = [tmp_path / "s0", tmp_path / "s1"]
    events = {"s0": list(range(60)), "s1": list(range(0, 60, 2)), "s2": [1]}
    for third in range(3):
        some = {label: numbers[third::3] for label, numbers in events.items() if numbers[third::3]}
        append(spark, some, tmp_path / "events", "event")
    expected = wanted(events, joined(*own["s0"], *own["s1"]))
    paths = tmp_path / "events", stores
    assert answers(cs.match_messages(spark, *paths, BOX)) == expected

    cs.compact_messages(spark, tmp_path / "s1", BOX, kind="interest", partitions=2)
    cs.compact_messages(spark, tmp_path / "events", BOX, kind="event")
    assert len(list((tmp_path / "events").iterdir())) == 2
    assert answers(cs.match_messages(spark, *paths, BOX)) == expected

    assert cs.drop_rounds(tmp_path / "s0", BOX, kind="interest", before=45) == 45
    got = answers(cs.match_messages(spark, *paths, BOX))
    assert got == {key: value for key, value in expected.items() if key[0] != "s0" or key[1] >= 45}
    with pytest.raises(ParameterError, match="round 3 is below 45, and rounds below that were dr"):
        append(spark, {"s0": [3]}, tmp_path / "s0", "interest")
    other = {("s0", 79): bytes(BOX.interest_bytes)}
    with pytest.raises(RandomnessReuseError, match="subscription='s0', round=79 has a message alr"):
        append(spark, other, tmp_path / "s0", "interest")
    assert answers(cs.match_messages(spark, *paths, BOX)) == got
    write(spark, {"s0": [79]}, tmp_path / "again", "interest")
    with pytest.raises(RandomnessReuseError, match="'s0', round=79 has a message in two stores"):
        cs.match_messages(spark, paths[0], [*stores, tmp_path / "again"], BOX)
    with pytest.raises(ParameterError, match="interests names the same store twice"):
        cs.match_messages(spark, paths[0], [stores[0], stores[0]], BOX)


def test_a_batch_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events"
    for name, number, rounds in [
        ("quotes", 0, [1]),
        ("quotes", 1, [2]),
        ("quotes", 1, [3]),
        ("trades", 0, [5]),
    ]:
        batch = (name, number)
        append(spark, {"s0": rounds}, path, "event", batch=batch)
    names = sorted(path.iterdir())
    # A batch of nothing is remembered, too.
    append(spark, {}, path, "event", batch=("quotes", 7))
    append(spark, {}, path, "event")
    # A checkpoint that was begun anew has numbers that were used, and other content for them.
    with pytest.raises(ParameterError, match=r"'quotes', 6.* comes after number 7 of that stream"):
        append(spark, {"s0": [6]}, path, "event", batch=("quotes", 6))
    assert len(list(path.iterdir())) == len(names)
    write(spark, {"s0": list(range(9))}, tmp_path / "interests", "interest")
    got = answers(cs.match_messages(spark, path, tmp_path / "interests", BOX))
    assert {number for _, number in got} == {1, 2, 5}


def test_an_append_that_a_compaction_overtakes_is_written_once_more(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "events", Folder.of(tmp_path / "events", "path")
    append(spark, {"s0": [1]}, path, "event")
    write(spark, {"s0": [*range(9)]}, tmp_path / "interests", "interest")
    planned = cs.match_messages(spark, path, tmp_path / "interests", BOX)

    def overtake() -> None:
        for number in (2, 3):
            run = WriterRun(number)
            new = written(folder, run, "event", [rows_of({"s0": [number]}, "event")], BOX)
            commit.add_generation(folder, run, new, BOX, None)
        compact(folder, 1, BOX)

    meanwhile = Meanwhile(monkeypatch, stores, "add_generation", before=True)
    meanwhile.todo = [overtake]
    append(spark, {"s0": [4]}, path, "event", batch=("quotes", 0))
    assert not meanwhile.todo
    with pytest.raises(Exception, match=r"compacted or .* after this was planned .* Nothing is"):
        planned.collect()
    found = answers(cs.match_messages(spark, path, tmp_path / "interests", BOX))
    assert {number for _, number in found} == {1, 2, 3, 4}


@pytest.mark.slow
def test_events_of_a_broadcast_come_in_generations_too(
    spark: SparkSession, tmp_path: Path, source: None
) -> None:
    schema, seed = Schema(a=UInt(4)), SharedSeed.generate()
    box = BroadcastMatch.box(schema)
    # A ledger allots rounds to several jobs in turn, so their generations alternate; and what a
    # source sends again comes with what is new.
    mixed = [*range(61, 80, 2), 3], [*range(60, 80, 2), 77]
    for numbers in (range(20), range(20, 40), range(40, 60), *mixed):
        sent = box.publisher(seed).encode([{"a": n % 16} for n in numbers], numbers)
        df = spark.createDataFrame(
            [(n, bytes(m)) for n, m in zip(numbers, sent, strict=True)],
            "round long, event_message binary",
        )
        cs.write_messages(df, tmp_path / "events", box, kind="event", mode="append")
    other = df.withColumn("event_message", F.lit(bytearray(box.event_bytes)))
    with pytest.raises(RandomnessReuseError, match=r"round=\d+ has a message already, and this is"):
        cs.write_messages(other, tmp_path / "events", box, kind="event", mode="append")
    labels = [f"s{i}" for i in range(3) for _ in range(80)]
    made = box.subscriber(seed).encode(
        [f"a >= {3 * int(label[1:])}" for label in labels], [*range(80)] * 3, pairs=labels
    )
    wants = spark.createDataFrame(
        [(s, n, bytes(m)) for s, n, m in zip(labels, [*range(80)] * 3, made, strict=True)],
        "subscription string, round long, interest_message binary",
    )
    cs.write_messages(wants, tmp_path / "interests", box, kind="interest")
    expected = {(f"s{i}", n): n % 16 >= 3 * i for i in range(3) for n in range(80)}
    paths = tmp_path / "events", tmp_path / "interests"
    assert answers(cs.match_messages(spark, *paths, box)) == expected
    cs.compact_messages(spark, paths[0], box, kind="event", partitions=1)
    assert len(list(paths[0].iterdir())) == 2
    assert answers(cs.match_messages(spark, *paths, box)) == expected
    table = spark.read.format("ccbps").load(str(paths[0]))
    assert table.columns == ["round", "event_message"]
    assert sorted(row["round"] for row in table.collect()) == list(range(80))


@pytest.mark.slow
def test_the_data_source_reads_what_was_written(
    spark: SparkSession, tmp_path: Path, source: None
) -> None:
    path = tmp_path / "events"
    every = [{"s0": [1, 2, 3], "s1": [7]}, {"s0": [9], "s2": list(range(30))}]
    for rounds in every:
        append(spark, rounds, path, "event")
    table = spark.read.format("ccbps").option("verify", "true").load(str(path))
    assert table.dtypes == [
        ("subscription", "string"),
        ("round", "bigint"),
        ("event_message", "binary"),
    ]
    assert len(pairs(table)) == 35
    assert pairs(table) == {(s, n) for one in every for s, numbers in one.items() for n in numbers}
    interests = {"s0": list(range(10)), "s2": [3, 40]}
    found = cs.match(table, frame(spark, interests, "interest"), BOX)
    assert answers(found) == wanted(joined(*every), interests)
    for condition, expected in {
        "subscription = 's2' AND round >= 28": {("s2", 28), ("s2", 29)},
        "subscription IN ('s1', 's9')": {("s1", 7)},
        "round = 9": {("s0", 9), ("s2", 9)},
        "round < 2 AND subscription != 's2'": {("s0", 1)},
        "round <= 1 OR subscription = 's1'": {("s0", 1), ("s2", 0), ("s2", 1), ("s1", 7)},
        "round > 100": set(),
    }.items():
        assert pairs(table.where(condition)) == expected
    with pytest.raises(Exception, match=r"takes a path, of one store, and verify"):
        spark.read.format("ccbps").option("paths", "x").load().collect()
    with pytest.raises(Exception, match="no message store is there"):
        spark.read.format("ccbps").load(str(tmp_path / "nowhere")).collect()


@pytest.mark.slow
def test_a_stream_reads_each_generation_once(
    spark: SparkSession, tmp_path: Path, source: None
) -> None:
    path = tmp_path / "events"

    def run() -> list[int]:
        def batch(df: DataFrame, _: int) -> None:
            df.selectExpr("round").write.mode("append").parquet(str(tmp_path / "seen"))

        drained(spark.readStream.format("ccbps").load(str(path)), tmp_path, batch)
        return sorted(r["round"] for r in spark.read.parquet(str(tmp_path / "seen")).collect())

    append(spark, {"s0": [1, 2]}, path, "event")
    append(spark, {"s0": [3]}, path, "event")
    assert run() == [1, 2, 3]
    cs.compact_messages(spark, path, BOX, kind="event")
    append(spark, {"s0": [4]}, path, "event")
    assert run() == [1, 2, 3, 4]
    append(spark, {"s0": [5]}, path, "event")
    cs.compact_messages(spark, path, BOX, kind="event")
    with pytest.raises(Exception, match="were compacted into one; this stream is at"):
        run()
    write(spark, {"s0": [6]}, path, "event", mode="overwrite")
    run()  # what it had begun
    assert run() == [1, 2, 3, 4, 6]
    # Another store in its place has versions that were read, and other messages.
    shutil.rmtree(path)
    append(spark, {"s0": [7]}, path, "event")
    with pytest.raises(Exception, match="of another store than the one that is there now"):
        run()


def test_a_stream_reads_generations_between_two_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        append(spark, {"s0": [10 * number]}, tmp_path, "event")
    names = Mock(names=["subscription", "round", "event_message"])
    reader = MessageSource({"path": str(tmp_path)}).streamReader(names)
    for low, high, expected in ((0, 3, [10, 20, 30]), (1, 3, [20, 30]), (1, 2, [20]), (2, 2, [])):
        pieces = reader.partitions({"version": low}, {"version": high})
        batches = [batch for piece in pieces for batch in reader.read(piece)]
        assert sorted(n for batch in batches for n in batch["round"].to_pylist()) == expected


def test_arguments_of_generations_are_checked(spark: SparkSession, tmp_path: Path) -> None:
    for bad in (("x", -1), ("", 1), ("x", "y"), "x", ("x", 1.0), ("x",)):
        with pytest.raises(ParameterError, match="batch must be a stream's name and the number"):
            append(spark, {"s0": [1]}, tmp_path, "event", batch=bad)
    with pytest.raises(ParameterError, match="batch= is for mode='append'"):
        write(spark, {"s0": [1]}, tmp_path, "event", batch=("x", 1))
    (tmp_path / "note.txt").write_text("of somebody else")
    with pytest.raises(ParameterError, match="holds files, and no store to append to"):
        append(spark, {"s0": [1]}, tmp_path, "event")
    with pytest.raises(ParameterError, match="no message store is there"):
        cs.compact_messages(spark, tmp_path, BOX, kind="event")
    with pytest.raises(ParameterError, match="no message store is there"):
        cs.drop_rounds(tmp_path, BOX, kind="event", before=3)
    for number in (-1, 1.5, True, 1 << 63):
        with pytest.raises(ParameterError, match="before must be a whole number from 0"):
            cs.drop_rounds(tmp_path, BOX, kind="event", before=number)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="kind must be"):
        cs.drop_rounds(tmp_path, BOX, kind="both", before=1)  # type: ignore[arg-type]
