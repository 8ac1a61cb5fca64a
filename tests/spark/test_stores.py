"""Message stores: answers as `match` gives them, whatever the layout; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, UInt
from ccbps import spark as cs
from ccbps.errors import DecodeError, ParameterError, RandomnessReuseError
from ccbps.matching import BroadcastMatch, FormulaMatch
from ccbps.spark import stores
from ccbps.store import plan
from ccbps.store.folder import Folder
from ccbps.store.index import Index
from ccbps.store.versions import WriterRun
from tests.support.spark_session import answers, reasons
from tests.support.stored_pairs import (
    BOX,
    KINDS,
    SCHEMA,
    SEED,
    Rounds,
    append,
    frame,
    rows_of,
    wanted,
    write,
)

pytestmark = pytest.mark.spark

INDEX = "index-00000001.arrow"
Sides = tuple[Rounds, Rounds]


@pytest.fixture(scope="module")
def sides() -> tuple[Rounds, Rounds]:
    """Consecutive and sparse rounds, equal, overlapping and apart; labels of one side only."""
    few = sorted(np.random.default_rng(1).choice(500, 150, replace=False).tolist())
    events = {
        "s0": list(range(200)),
        "s1": list(range(50, 150)),
        "s2": few,
        "s3": list(range(0, 300, 3)),
        "s4": [5],
        "s5": list(range(10)),
        "s6": [0, 2**40, 2**62],
        "s7": list(range(30)),
    }
    interests = {
        "s0": list(range(200)),
        "s1": list(range(100, 260)),
        "s2": list(range(600)),
        "s3": list(range(0, 300, 2)),
        "s4": [4, 5, 6],
        "s5": list(range(10, 20)),
        "s6": [2**40, 2**40 + 1, 2**62],
        "s8": list(range(30)),
    }
    return events, interests


Paths = tuple[Path, Path]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Of events and interests, where no stores are yet."""
    return tmp_path / "events", tmp_path / "interests"


@pytest.fixture(scope="module")
def written(spark: SparkSession, sides: Sides, tmp_path_factory: pytest.TempPathFactory) -> Paths:
    folder = tmp_path_factory.mktemp("stores")
    write(spark, sides[0], folder / "events", "event", partitions=3)
    write(spark, sides[1], folder / "interests", "interest", partitions=2)
    return folder / "events", folder / "interests"


def test_answers_equal_match_and_the_plaintext(
    spark: SparkSession, sides: Sides, written: Paths
) -> None:
    decided = cs.match_messages(spark, *written, BOX)
    assert decided.columns == ["subscription", "round", "matched"]
    got = answers(decided)
    assert got == wanted(*sides)
    assert set(got.values()) == {True, False}
    frames = frame(spark, sides[0], "event"), frame(spark, sides[1], "interest")
    assert got == answers(cs.match(*frames, BOX))


def test_answers_spread_over_any_number_of_tasks(
    spark: SparkSession, sides: Sides, written: Paths
) -> None:
    decided = cs.match_messages(spark, *written, BOX, partitions=3)
    assert answers(decided) == wanted(*sides)
    assert 1 < decided.select(F.spark_partition_id().alias("task")).distinct().count() <= 3
    matches = answers(decided.where("matched"))
    assert matches == {key: True for key, value in wanted(*sides).items() if value}
    uris = [path.as_uri() for path in written]
    only = cs.match_messages(spark, *uris, BOX, matches_only=True)
    assert only.columns == decided.columns
    assert answers(only) == matches


def test_parts_hold_sorted_messages_of_fixed_width(written: Paths) -> None:
    parts = sorted(written[0].glob("part-*.arrow"))
    assert 1 < len(parts) <= 3
    for path in parts:
        schema = pa.ipc.open_file(path).schema
        assert schema.field("message").type == pa.binary(BOX.event_bytes)


def test_malformed_messages_are_named_or_set_aside(
    spark: SparkSession, sides: Sides, written: Paths, tmp_path: Path
) -> None:
    rows, causes = rows_of(sides[0], "event"), {}
    changes: list[tuple[int, Callable[[bytes], bytes], str]] = [
        (120, lambda m: b"\7" + m[1:], "not an event message"),
        (121, lambda m: m[:1] + bytes([m[1] ^ 1]) + m[2:], "another matcher"),
        (122, lambda m: m[:1] + bytes(7) + m[8:], "different matchers, pairs, rounds or seeds"),
    ]
    for number, change, cause in changes:
        rows["s1", number], causes["s1", number] = change(rows["s1", number]), cause
    write(spark, rows, tmp_path / "events", "event")
    paths = tmp_path / "events", written[1]
    with pytest.raises(Exception, match=r"subscription='s1', round=120: .*not an event message"):
        cs.match_messages(spark, *paths, BOX).collect()
    rejected = cs.match_messages(spark, *paths, BOX, on_error="reject").persist()
    texts = reasons(rejected, "subscription", "round")
    assert texts.keys() == causes.keys()
    assert all(cause in texts[key] for key, cause in causes.items())
    assert answers(rejected) == {**wanted(*sides), **dict.fromkeys(causes)}
    few = cs.match_messages(spark, *paths, BOX, on_error="reject", matches_only=True).collect()
    assert sorted(few) == sorted(row for row in rejected.collect() if row["matched"] is not False)


def test_folders_without_a_complete_store_are_refused(
    spark: SparkSession, written: Paths, tmp_path: Path
) -> None:
    events, _ = written
    write(spark, {}, tmp_path / "of nothing", "event")
    assert cs.match_messages(spark, tmp_path / "of nothing", written[1], BOX).count() == 0
    other = FormulaMatch.box(Schema(a=UInt(8), b=UInt(5)))
    with pytest.raises(ParameterError, match=r"events=.*another matcher"):
        cs.match_messages(spark, *written, other)
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ParameterError, match=r"interests=.*no message store"):
            cs.match_messages(spark, events, path, BOX)
    content = (events / INDEX).read_bytes()
    flipped = content[:700] + bytes([content[700] ^ 1]) + content[701:]
    for damaged in (content[:-9], content[:-1], b"", flipped):
        (tmp_path / INDEX).write_bytes(damaged)
        with pytest.raises(DecodeError, match=r"index-00000001\.arrow is damaged: .*checksum"):
            cs.match_messages(spark, events, tmp_path, BOX)
    (tmp_path / INDEX).unlink()
    (tmp_path / "index.arrow").touch()
    with pytest.raises(DecodeError, match="has an older format; write it again"):
        cs.match_messages(spark, events, tmp_path, BOX)
    (tmp_path / "file").write_text("x")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    for path in (link, tmp_path / "file" / "below"):
        with pytest.raises(ParameterError, match=r"path=.* (must be a folder|cannot be made)"):
            write(spark, {"s0": [0]}, path, "event")
    no_path = "events must be a path or a URI as text"
    for path, problem in (
        (tmp_path / "file", r"events=.* must be a folder"),
        *[(nothing, no_path) for nothing in (None, b"x", "a\0b", "")],
        ("nothing://here", r"pyarrow\.fs understands"),
    ):
        with pytest.raises(ParameterError, match=problem):
            cs.match_messages(spark, path, tmp_path, BOX)  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["cut", "missing", "swapped"])
def test_damaged_files_are_named(
    spark: SparkSession, written: Paths, tmp_path: Path, damage: str
) -> None:
    rounds = {"s0": list(range(40)), "s1": [1, 3]}
    write(spark, rounds, tmp_path / "events", "event", partitions=1)
    (part,) = (tmp_path / "events").glob("part-*.arrow")
    content = part.read_bytes()
    part.unlink()
    if damage == "cut":
        part.write_bytes(content[: len(content) // 2])
    elif damage == "swapped":
        write(spark, {"s0": [0]}, tmp_path / "other", "event", partitions=1)
        (other,) = (tmp_path / "other").glob("part-*.arrow")
        part.write_bytes(other.read_bytes())
    decided = cs.match_messages(spark, tmp_path / "events", written[1], BOX)
    with pytest.raises(Exception, match=r"part-[\w-]+\.arrow.* is missing, cut off or damaged"):
        decided.collect()


def flip(part: Path, rounds: bool, row: int) -> None:
    """Flip one bit of a part, in the column of rounds or in the body of a message."""
    batch = pa.ipc.open_file(pa.memory_map(str(part))).get_batch(0)
    rounds_column, messages = batch.columns
    content = bytearray(part.read_bytes())
    width = 8 if rounds else messages.type.byte_width
    data = (rounds_column if rounds else messages).buffers()[1].to_pybytes()
    at = content.index(data[: len(batch) * width]) + row * width + (0 if rounds else width - 9)
    content[at] ^= 8
    part.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("numbers", "column"), [(range(0, 80, 2), "round"), (range(40), "message")]
)
def test_a_flipped_bit_loses_no_pair_and_changes_no_answer(
    spark: SparkSession, paths: Paths, numbers: range, column: str
) -> None:
    rounds = {"s0": list(numbers)}
    for path, kind in zip(paths, ("event", "interest"), strict=True):
        write(spark, rounds, path, kind)
    whole = cs.match_messages(spark, *paths, BOX, verify=True)
    assert answers(whole) == wanted(rounds, rounds)
    for path in paths:
        (part,) = path.glob("part-*.arrow")
        content = part.read_bytes()
        flip(part, column == "round", 17)
        decided = cs.match_messages(
            spark, *paths, BOX, on_error="reject", verify=column == "message"
        )
        with pytest.raises(Exception, match=f"damaged .the {column}s of batch 0 have another"):
            decided.collect()
        part.write_bytes(content)


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        (("s0", 7, bytes(BOX.event_bytes)), r"subscription='s0', round=7 occurs twice"),
        (("s2", 8, b"short"), r"round=8: the message has 5 bytes; .* have \d+"),
    ],
)
def test_rows_that_are_no_messages_leave_no_store(
    spark: SparkSession, tmp_path: Path, extra: tuple[Any, ...], problem: str
) -> None:
    rows = [(*key, m) for key, m in rows_of({"s0": list(range(20)), "s1": [3]}, "event").items()]
    df, path = spark.createDataFrame([*rows, extra], KINDS.format("event")), tmp_path / "store"
    with pytest.raises(ParameterError, match=problem):
        cs.write_messages(df, path, BOX, kind="event")
    assert not path.exists() or not list(path.iterdir())
    write(spark, {"s0": [1]}, path, "event")


def test_a_failed_job_leaves_no_store_and_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    path, before = tmp_path / "store", rows_of({"s0": [0, 1]}, "event")
    write(spark, before, path, "event")
    bad = frame(spark, before, "event").selectExpr(
        "subscription",
        "CASE WHEN round = 1 THEN CAST(raise_error('gone') AS long) ELSE round END AS round",
        "event_message",
    )
    names = sorted(path.iterdir())
    with pytest.raises(Exception, match="gone"):
        cs.write_messages(bad, path, BOX, kind="event", mode="overwrite")
    assert sorted(path.iterdir()) == names


def test_folders_in_use_are_refused_or_replaced(
    spark: SparkSession, paths: Paths, tmp_path: Path
) -> None:
    path, interests = paths[0], {"s0": list(range(20))}
    write(spark, interests, paths[1], "interest")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "part-00000.parquet").write_text("of somebody else")
    with pytest.raises(ParameterError, match=r"not empty; .*mode='overwrite'"):
        write(spark, {"s0": [0]}, tmp_path / "taken", "event")
    for numbers in ([1, 2, 3], [2, 3, 4, 5]):
        write(spark, {"s0": numbers}, path, "event", mode="overwrite")
        got = answers(cs.match_messages(spark, *paths, BOX))
        assert got == wanted({"s0": numbers}, interests)
        assert len(list(path.iterdir())) == 2


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_of_two_writers_the_later_one_fails(
    spark: SparkSession, paths: Paths, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    path, commit = paths[0], stores.renew
    first, second = {"s0": list(range(20))}, {"s0": list(range(20, 40))}
    interests = {"s0": list(range(40))}
    write(spark, interests, paths[1], "interest")
    if mode == "overwrite":
        write(spark, {"s0": [39]}, path, "event")

    def late(*arguments: Any, **options: Any) -> None:
        # All parts of the one are written; the other comes and goes, and then it would commit.
        monkeypatch.setattr(stores, "renew", commit)
        write(spark, second, path, "event", mode=mode)
        commit(*arguments, **options)

    monkeypatch.setattr(stores, "renew", late)
    with pytest.raises(ParameterError, match=r"another call finished there .*index-0"):
        write(spark, first, path, "event", mode=mode)
    got = answers(cs.match_messages(spark, *paths, BOX))
    assert got == wanted(second, interests)
    assert len(got) == 20
    assert len(list(path.iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_of_two_writers_at_once_one_has_written_the_store(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    rounds = {"s0": list(range(40))}
    write(spark, rounds, tmp_path / "interests", "interest")
    halves = [{"s0": list(range(20))}, {"s0": list(range(20, 40))}]
    problems: list[str] = []
    for turn in range(3):
        path = tmp_path / f"events{turn}"

        def attempt(half: Rounds, path: Path = path) -> bool:
            try:
                write(spark, half, path, "event", mode=mode)
            except ParameterError as error:
                problems.append(str(error))
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(attempt, halves))
        # An overwriting writer may also have come after the other had finished.
        assert sum(done) == 1 or (mode == "overwrite" and all(done))
        got = answers(cs.match_messages(spark, path, tmp_path / "interests", BOX))
        assert got in [
            wanted(half, rounds) for half, wrote in zip(halves, done, strict=True) if wrote
        ]
        assert len(list(path.iterdir())) == 2
    assert all("another call finished" in text or "is not empty" in text for text in problems)


def test_what_a_killed_writer_left_is_ignored_and_removed(
    spark: SparkSession, paths: Paths
) -> None:
    path, rounds = paths[0], {"s0": list(range(20))}
    path.mkdir()
    write(spark, rounds, paths[1], "interest")
    run, folder = WriterRun(1), Folder.of(path, "path")
    for name in (f"{run.stem}-{'0' * 32}.arrow", run.draft):  # as SIGKILL leaves them
        with folder.create(name) as file:
            file.write(b"cut off")
    with pytest.raises(ParameterError, match="no message store is there, or one that was never"):
        cs.match_messages(spark, *paths, BOX)
    write(spark, rounds, path, "event")
    assert answers(cs.match_messages(spark, *paths, BOX)) == wanted(rounds, rounds)
    assert len(list(path.iterdir())) == 2
    with pytest.raises(ParameterError, match=r"not empty; .*mode='overwrite'"):
        write(spark, rounds, path, "event")


def test_columns_that_are_not_kept_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    df = frame(spark, {"s0": [1, 2]}, "event")
    both = df.selectExpr("*", "1 AS x", "2 AS x", "3 AS X")
    cs.write_messages(both, tmp_path / "store", BOX, kind="event")
    twice = df.selectExpr("*", "5 AS round")
    with pytest.raises(ParameterError, match="2 columns named 'round'"):
        cs.write_messages(twice, tmp_path / "other", BOX, kind="event")


def test_bad_arguments_are_refused(spark: SparkSession, written: Paths, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a", 1, "m")], "subscription string, round long, message string")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"message": "message"}, "'message' must be binary, got string"),
        ({}, "'event_message' is missing"),
        ({"mode": "x"}, "mode must be"),
        ({"kind": "events"}, "kind must be 'event' or 'interest'"),
    ]
    for options, problem in wrong:
        with pytest.raises(ParameterError, match=problem):
            cs.write_messages(df, tmp_path / "x", BOX, **{"kind": "event"} | options)
    few = "partitions must be a whole number, at least 1"
    wrong = [({"partitions": number}, few) for number in (0, -1, 1.5)]
    for options, problem in [({"on_error": "ignore"}, "on_error must be"), *wrong]:
        with pytest.raises(ParameterError, match=problem):
            cs.match_messages(spark, *written, BOX, **options)
    with pytest.raises(ParameterError, match="holds interest messages, not event messages"):
        cs.match_messages(spark, *written[::-1], BOX)


@pytest.mark.slow
def test_all_tasks_have_as_much_to_do(
    spark: SparkSession, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = {f"s{i}": list(range(40)) for i in range(3)}
    write(spark, rounds, paths[0], "event", partitions=1)
    write(spark, rounds, paths[1], "interest", partitions=1)
    monkeypatch.setattr(plan, "PIECE_ROWS", 4)
    for partitions, share in ((10, {12}), (30, {4}), (7, {16, 20})):
        decided = cs.match_messages(spark, *paths, BOX, partitions=partitions)
        tasks = decided.groupBy(F.spark_partition_id()).count().collect()
        assert len(tasks) == partitions
        assert {row["count"] for row in tasks} == share


@pytest.fixture
def spread(
    spark: SparkSession, sides: Sides, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> Paths:
    """Stores of both sides; sixteen rounds of a subscription are in one part."""
    monkeypatch.setattr(stores, "SPAN_BITS", 4)
    write(spark, sides[0], paths[0], "event", partitions=4)
    write(spark, sides[1], paths[1], "interest", partitions=3)
    return paths


@pytest.mark.slow
def test_several_tasks_write_a_subscription_that_has_most_messages(
    spark: SparkSession, sides: Sides, spread: Paths, tmp_path: Path
) -> None:
    for path, count in zip(spread, (4, 3), strict=True):
        index = Index.read(Folder.of(path, "path"))
        hot = [label == "s0" for label in index.subscription.to_pylist()]
        assert len({*index.part[hot].tolist()}) == count
    assert answers(cs.match_messages(spark, *spread, BOX)) == wanted(*sides)

    df = frame(spark, {"s0": sides[0]["s0"]}, "event")
    other = df.where("round = 78").withColumn("round", F.lit(77).cast("long"))
    with pytest.raises(ParameterError, match="subscription='s0', round=77 occurs twice"):
        cs.write_messages(df.union(other), tmp_path / "other", BOX, kind="event", partitions=4)
    with pytest.raises(RandomnessReuseError, match="'s0', round=77 has a message already, and"):
        cs.write_messages(other, spread[0], BOX, kind="event", mode="append")


def test_what_is_sent_again_is_kept_once(
    spark: SparkSession, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a source does that delivers at least once, in the same batch or a later one."""
    monkeypatch.setattr(stores, "SPAN_BITS", 4)
    path = paths[0]
    first, second = ({"s0": [*range(low, low + 60)], "s1": [7]} for low in (0, 40))
    df = frame(spark, first, "event")
    again = df.union(df.where("round % 9 = 7"))
    cs.write_messages(again, path, BOX, kind="event", mode="append", partitions=3)
    append(spark, second, path, "event", partitions=3)
    append(spark, first, path, "event", batch=("quotes", 3), partitions=3)
    index = Index.read(Folder.of(path, "path"))
    assert (index.stop - index.start).sum() == 101
    assert index.about.batches == {"quotes": 3}
    parts = {name for name in Folder.of(path, "path").names() if name.startswith("part")}
    assert parts == {*index.parts}
    interests = {"s0": [*range(120)], "s1": [7]}
    write(spark, interests, paths[1], "interest")
    found = answers(cs.match_messages(spark, *paths, BOX, verify=True))
    assert found == wanted({"s0": [*range(100)], "s1": [7]}, interests)


@pytest.mark.slow
def test_a_store_that_several_tasks_wrote_is_compacted_by_several(
    spark: SparkSession, sides: Sides, spread: Paths
) -> None:
    cs.compact_messages(spark, spread[0], BOX, kind="event", partitions=2)
    assert len(Index.read(Folder.of(spread[0], "path")).parts) == 2
    assert answers(cs.match_messages(spark, *spread, BOX)) == wanted(*sides)


BAD_WIDTH = "the {0} message has the wrong number of bytes"
BAD: dict[str, Callable[[bytes], Any]] = {
    "column '{0}_message' is NULL": lambda message: None,
    BAD_WIDTH: lambda message: message[:-1],
    "the {0} bytes are not an {0} message of this version": lambda message: (
        bytes([message[0] ^ 1]) + message[1:]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["event", "interest"])
def test_rows_that_are_no_messages_are_set_aside(
    spark: SparkSession, tmp_path: Path, kind: Any
) -> None:
    """A batch after the other, as of a stream that goes on; each has all that can be wrong."""
    names = f"{KINDS.format(kind)}, note string"
    rounds = {f"s{i}": list(range(40)) for i in range(3)}
    rows = rows_of(rounds, kind)
    batches: list[list[tuple[Any, ...]]] = []
    for number in range(2):
        batch: list[tuple[Any, ...]] = [
            (label, at, rows[label, at], None)
            for label in rounds
            for at in range(20 * number, 20 * number + 20)
        ]
        for place, (why, change) in enumerate(BAD.items()):
            label, at, message, _ = batch[7 * place]
            batch[7 * place] = (label, at, change(message), why.format(kind))
        label, at, message, _ = batch[30]
        again = "the pair and round occurs more than once"
        batch[30] = (label, at, message, again)
        # The same once more is kept once; what is no message does not count.
        batch += [batch[31], (*batch[32][:2], message[:-1], BAD_WIDTH.format(kind))]
        batch += [(label, at, rows["s0", 1], again), (label, at, message, again)]
        batch += [
            (None, 3, rows["s0", 3], "column 'subscription' is NULL"),
            ("s1", None, rows["s1", 3], "column 'round' is NULL"),
            ("s1", -3, rows["s1", 3], "column 'round' is negative"),
            (None, -3, rows["s1", 3], "column 'subscription' is NULL"),
        ]
        np.random.default_rng(number).shuffle(batch)  # type: ignore[arg-type]
        batches.append(batch)

    table = spark.createDataFrame([], f"{names}, rejected string")
    for number, batch in enumerate(batches):
        sent = spark.createDataFrame(batch, names)
        told = cs.check_messages(sent, BOX, kind=kind).persist()
        assert told.columns == table.columns
        found = told.collect()
        assert len(found) == len(batch) and all(row["rejected"] == row["note"] for row in found)
        good = told.where("rejected IS NULL")
        cs.write_messages(
            good, tmp_path / "store", BOX, kind=kind, mode="append", batch=("quotes", number)
        )
        told.unpersist()
    cs.register_source(spark)
    kept = spark.read.format("ccbps").load(str(tmp_path / "store")).collect()
    assert {tuple(row) for row in kept} == {
        row[:3] for batch in batches for row in batch if row[3] is None
    }
    assert len({*kept}) == len(kept)


def test_messages_of_a_broadcast_are_checked_by_round(spark: SparkSession) -> None:
    box = BroadcastMatch.box(SCHEMA)
    made = box.publisher(SEED).encode([{"a": 1, "b": n} for n in range(4)], range(4))
    rows = [(n, bytes(message)) for n, message in enumerate(made)]
    rows += [(2, bytes(made[0])), (5, bytes(made[0][1:])), (3, bytes(made[3]))]
    sent = spark.createDataFrame(rows, "round long, event_message binary")
    told = cs.check_messages(sent, box, kind="event").select("round", "rejected").collect()
    again = "the number occurs more than once"
    assert sorted(map(tuple, told)) == [
        (0, None),
        (1, None),
        (2, again),
        (2, again),
        (3, None),
        (3, None),
        (5, "the event message has the wrong number of bytes"),
    ]
    wrong: list[tuple[DataFrame, dict[str, Any], str]] = [
        (sent, {"subscription": "round"}, "subscription= does not apply"),
        (sent.selectExpr("*", "1 AS rejected"), {}, "a column 'rejected' already"),
        (sent, {"kind": "events"}, "kind must be"),
    ]
    for df, options, problem in wrong:
        with pytest.raises(ParameterError, match=problem):
            cs.check_messages(df, box, **{"kind": "event"} | options)
