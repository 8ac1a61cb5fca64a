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

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import DecodeError, ParameterError, RandomnessReuseError
from ccbps.matching import BroadcastMatch, FormulaMatch
from ccbps.spark import stores
from ccbps.store import plan
from ccbps.store.folder import Folder
from ccbps.store.index import Index
from ccbps.store.versions import WriterRun

pytestmark = pytest.mark.spark

SCHEMA = Schema(a=UInt(8), b=UInt(6))
BOX = FormulaMatch.box(SCHEMA)
INDEX = "index-00000001.arrow"
SEED = SharedSeed.generate()
KINDS = "subscription string, round long, {} binary"
Rows = dict[tuple[str, int], Any]
Rounds = dict[str, list[int]]


def predicate(label: str) -> str:
    return f"a >= {3 * int(label[1:])} AND b < {60 - int(label[1:])}"


def record(label: str, number: int) -> dict[str, int]:
    return {"a": (37 * number + int(label[1:])) % 256, "b": number * number % 64}


def event_rows(rounds: Rounds) -> Rows:
    """Event messages by pair and round, in no order."""
    keys = [(label, number) for label, numbers in rounds.items() for number in numbers]
    messages = BOX.publisher(SEED).encode(
        [record(*key) for key in keys], [n for _, n in keys], pairs=[label for label, _ in keys]
    )
    return dict(zip(keys, map(bytes, messages), strict=True))


def interest_rows(rounds: Rounds) -> Rows:
    keys = [(label, number) for label, numbers in rounds.items() for number in numbers]
    messages = BOX.subscriber(SEED).encode(
        [predicate(label) for label, _ in keys],
        [n for _, n in keys],
        pairs=[label for label, _ in keys],
    )
    return dict(zip(keys, map(bytes, messages), strict=True))


def frame(spark: SparkSession, rows: Rows, kind: str) -> DataFrame:
    mixed = [(*key, value) for key, value in rows.items()]
    np.random.default_rng(5).shuffle(mixed)  # type: ignore[arg-type]
    return spark.createDataFrame([(s, int(r), m) for s, r, m in mixed], KINDS.format(kind))


def write(spark: SparkSession, rows: Rows, path: Path, kind: str, **options: Any) -> None:
    df = frame(spark, rows, f"{kind}_message")
    cs.write_messages(df, path, BOX, kind=kind, **options)  # type: ignore[arg-type]


def wanted(events: Rounds, interests: Rounds) -> dict[tuple[str, int], bool]:
    out = {}
    for label in events.keys() & interests.keys():
        plain = SCHEMA.parse(predicate(label))
        for number in set(events[label]) & set(interests[label]):
            out[label, number] = bool(plain.evaluate([record(label, number)])[0])
    return out


def answers(df: DataFrame) -> dict[tuple[str, int], bool | None]:
    rows = df.collect()
    out = {(r["subscription"], r["round"]): r["matched"] for r in rows}
    assert len(out) == len(rows)
    return out


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


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, sides: tuple[Rounds, Rounds], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    write(spark, event_rows(sides[0]), folder / "events", "event", partitions=3)
    write(spark, interest_rows(sides[1]), folder / "interests", "interest", partitions=2)
    return folder


def test_answers_equal_match_and_the_plaintext(
    spark: SparkSession, sides: tuple[Rounds, Rounds], written: Path
) -> None:
    decided = cs.match_messages(spark, written / "events", written / "interests", BOX)
    assert decided.columns == ["subscription", "round", "matched"]
    got = answers(decided)
    assert got == wanted(*sides)
    assert set(got.values()) == {True, False}
    events = frame(spark, event_rows(sides[0]), "event_message")
    interests = frame(spark, interest_rows(sides[1]), "interest_message")
    assert got == answers(cs.match(events, interests, BOX))


def test_answers_spread_over_any_number_of_tasks(
    spark: SparkSession, sides: tuple[Rounds, Rounds], written: Path
) -> None:
    paths = written / "events", written / "interests"
    decided = cs.match_messages(spark, *paths, BOX, partitions=3)
    assert answers(decided) == wanted(*sides)
    assert 1 < decided.select(F.spark_partition_id().alias("task")).distinct().count() <= 3
    matches = answers(decided.where("matched"))
    assert matches == {key: True for key, value in wanted(*sides).items() if value}
    only = cs.match_messages(spark, *paths, BOX, matches_only=True)
    assert only.columns == decided.columns
    assert answers(only) == matches


def test_parts_hold_sorted_messages_of_fixed_width(written: Path) -> None:
    parts = sorted((written / "events").glob("part-*.arrow"))
    assert 1 < len(parts) <= 3
    for path in parts:
        schema = pa.ipc.open_file(path).schema
        assert schema.field("message").type == pa.binary(BOX.event_bytes)


def test_a_uri_is_a_path(spark: SparkSession, sides: tuple[Rounds, Rounds], written: Path) -> None:
    uris = [(written / side).as_uri() for side in ("events", "interests")]
    assert answers(cs.match_messages(spark, *uris, BOX)) == wanted(*sides)


def test_malformed_messages_are_named_or_set_aside(
    spark: SparkSession, sides: tuple[Rounds, Rounds], written: Path, tmp_path: Path
) -> None:
    rows, causes = event_rows(sides[0]), {}
    changes: list[tuple[int, Callable[[bytes], bytes], str]] = [
        (120, lambda m: b"\7" + m[1:], "not an event message"),
        (121, lambda m: m[:1] + bytes([m[1] ^ 1]) + m[2:], "another matcher"),
        (122, lambda m: m[:1] + bytes(7) + m[8:], "different matchers, pairs, rounds or seeds"),
    ]
    for number, change, cause in changes:
        rows["s1", number], causes["s1", number] = change(rows["s1", number]), cause
    write(spark, rows, tmp_path / "events", "event")
    paths = tmp_path / "events", written / "interests"
    with pytest.raises(Exception, match=r"subscription='s1', round=120: .*not an event message"):
        cs.match_messages(spark, *paths, BOX).collect()
    rejected = cs.match_messages(spark, *paths, BOX, on_error="reject").collect()
    texts = {(r["subscription"], r["round"]): r["rejected"] for r in rejected if r["rejected"]}
    assert texts.keys() == causes.keys()
    assert all(cause in texts[key] for key, cause in causes.items())
    found = {(r["subscription"], r["round"]): r["matched"] for r in rejected}
    assert found == {**wanted(*sides), **dict.fromkeys(causes)}
    few = cs.match_messages(spark, *paths, BOX, on_error="reject", matches_only=True).collect()
    assert sorted(few) == sorted(row for row in rejected if row["matched"] is not False)


def test_a_store_of_nothing_gives_no_answers(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    write(spark, {}, tmp_path / "events", "event")
    assert cs.match_messages(spark, tmp_path / "events", written / "interests", BOX).count() == 0


def test_stores_of_another_matcher_are_refused(spark: SparkSession, written: Path) -> None:
    other = FormulaMatch.box(Schema(a=UInt(8), b=UInt(5)))
    with pytest.raises(ParameterError, match=r"events=.*another matcher"):
        cs.match_messages(spark, written / "events", written / "interests", other)


def test_folders_without_a_complete_store_are_refused(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ParameterError, match=r"interests=.*no message store"):
            cs.match_messages(spark, written / "events", path, BOX)
    content = (written / "events" / INDEX).read_bytes()
    for damaged in (content[:-9], content[:-1], b"", content[:700] + b"?" + content[701:]):
        (tmp_path / INDEX).write_bytes(damaged)
        with pytest.raises(DecodeError, match=r"index-00000001\.arrow is damaged: .*checksum"):
            cs.match_messages(spark, written / "events", tmp_path, BOX)
    (tmp_path / INDEX).unlink()
    (tmp_path / "index.arrow").touch()
    with pytest.raises(DecodeError, match="has an older format; write it again"):
        cs.match_messages(spark, written / "events", tmp_path, BOX)
    (tmp_path / "file").write_text("x")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(ParameterError, match=r"events=.* must be a folder"):
        cs.match_messages(spark, tmp_path / "file", tmp_path, BOX)
    for path in (link, tmp_path / "file" / "below"):
        with pytest.raises(ParameterError, match=r"path=.* (must be a folder|cannot be made)"):
            write(spark, event_rows({"s0": [0]}), path, "event")
    for nothing in (None, b"x", "a\0b", ""):
        with pytest.raises(ParameterError, match="events must be a path or a URI as text"):
            cs.match_messages(spark, nothing, tmp_path, BOX)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"pyarrow\.fs understands"):
        cs.match_messages(spark, "nothing://here", tmp_path, BOX)


@pytest.mark.parametrize("damage", ["cut", "missing", "swapped"])
def test_damaged_files_are_named(
    spark: SparkSession, written: Path, tmp_path: Path, damage: str
) -> None:
    rounds = {"s0": list(range(40)), "s1": [1, 3]}
    write(spark, event_rows(rounds), tmp_path / "events", "event", partitions=1)
    (part,) = (tmp_path / "events").glob("part-*.arrow")
    content = part.read_bytes()
    part.unlink()
    if damage == "cut":
        part.write_bytes(content[: len(content) // 2])
    elif damage == "swapped":
        write(spark, event_rows({"s0": [0]}), tmp_path / "other", "event", partitions=1)
        (other,) = (tmp_path / "other").glob("part-*.arrow")
        part.write_bytes(other.read_bytes())
    decided = cs.match_messages(spark, tmp_path / "events", written / "interests", BOX)
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


@pytest.mark.parametrize(
    ("numbers", "column"), [(range(0, 80, 2), "round"), (range(40), "message")]
)
def test_a_flipped_bit_loses_no_pair_and_changes_no_answer(
    spark: SparkSession, tmp_path: Path, numbers: range, column: str
) -> None:
    rounds = {"s0": list(numbers)}
    write(spark, event_rows(rounds), tmp_path / "events", "event")
    write(spark, interest_rows(rounds), tmp_path / "interests", "interest")
    paths = tmp_path / "events", tmp_path / "interests"
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
    rows = [(*key, m) for key, m in event_rows({"s0": list(range(20)), "s1": [3]}).items()]
    df = spark.createDataFrame([*rows, extra], KINDS.format("event_message"))
    with pytest.raises(ParameterError, match=problem):
        cs.write_messages(df, tmp_path / "store", BOX, kind="event")
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").iterdir())
    write(spark, event_rows({"s0": [1]}), tmp_path / "store", "event")


def test_a_failed_job_leaves_no_store_and_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    path, before = tmp_path / "store", event_rows({"s0": [0, 1]})
    write(spark, before, path, "event")
    bad = frame(spark, before, "event_message").selectExpr(
        "subscription",
        "CASE WHEN round = 1 THEN CAST(raise_error('gone') AS long) ELSE round END AS round",
        "event_message",
    )
    names = sorted(path.iterdir())
    with pytest.raises(Exception, match="gone"):
        cs.write_messages(bad, path, BOX, kind="event", mode="overwrite")
    assert sorted(path.iterdir()) == names


def test_folders_in_use_are_refused_or_replaced(spark: SparkSession, tmp_path: Path) -> None:
    path, interests = tmp_path / "events", {"s0": list(range(20))}
    write(spark, interest_rows(interests), tmp_path / "interests", "interest")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "part-00000.parquet").write_text("of somebody else")
    with pytest.raises(ParameterError, match=r"not empty; .*mode='overwrite'"):
        write(spark, event_rows({"s0": [0]}), tmp_path / "taken", "event")
    for numbers in ([1, 2, 3], [2, 3, 4, 5]):
        write(spark, event_rows({"s0": numbers}), path, "event", mode="overwrite")
        got = answers(cs.match_messages(spark, path, tmp_path / "interests", BOX))
        assert got == wanted({"s0": numbers}, interests)
        assert len(list(path.iterdir())) == 2


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_of_two_writers_the_later_one_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    path, interests = tmp_path / "events", {"s0": list(range(40))}
    write(spark, interest_rows(interests), tmp_path / "interests", "interest")
    if mode == "overwrite":
        write(spark, event_rows({"s0": [39]}), path, "event")
    commit, first, second = (
        stores.renew,
        {"s0": list(range(20))},
        {"s0": list(range(20, 40))},
    )

    def late(*arguments: Any, **options: Any) -> None:
        # All parts of the one are written; the other comes and goes, and then it would commit.
        monkeypatch.setattr(stores, "renew", commit)
        write(spark, event_rows(second), path, "event", mode=mode)
        commit(*arguments, **options)

    monkeypatch.setattr(stores, "renew", late)
    with pytest.raises(ParameterError, match=r"another call finished there .*index-0"):
        write(spark, event_rows(first), path, "event", mode=mode)
    got = answers(cs.match_messages(spark, path, tmp_path / "interests", BOX))
    assert got == wanted(second, interests)
    assert len(got) == 20
    assert len(list(path.iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_of_two_writers_at_once_one_has_written_the_store(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    rounds = {"s0": list(range(40))}
    write(spark, interest_rows(rounds), tmp_path / "interests", "interest")
    halves = [{"s0": list(range(20))}, {"s0": list(range(20, 40))}]
    problems: list[str] = []
    for turn in range(3):
        path = tmp_path / f"events{turn}"

        def attempt(half: Rounds, path: Path = path) -> bool:
            try:
                write(spark, event_rows(half), path, "event", mode=mode)
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
    spark: SparkSession, tmp_path: Path
) -> None:
    path, rounds = tmp_path / "events", {"s0": list(range(20))}
    path.mkdir()
    write(spark, interest_rows(rounds), tmp_path / "interests", "interest")
    run, folder = WriterRun(1), Folder.of(path, "path")
    for name in (f"{run.stem}-{'0' * 32}.arrow", run.draft):  # as SIGKILL leaves them
        with folder.create(name) as file:
            file.write(b"cut off")
    with pytest.raises(ParameterError, match="no message store is there, or one that was never"):
        cs.match_messages(spark, path, tmp_path / "interests", BOX)
    write(spark, event_rows(rounds), path, "event")
    assert answers(cs.match_messages(spark, path, tmp_path / "interests", BOX)) == wanted(
        rounds, rounds
    )
    assert len(list(path.iterdir())) == 2
    with pytest.raises(ParameterError, match=r"not empty; .*mode='overwrite'"):
        write(spark, event_rows(rounds), path, "event")


def test_columns_that_are_not_kept_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    df = frame(spark, event_rows({"s0": [1, 2]}), "event_message")
    both = df.selectExpr("*", "1 AS x", "2 AS x", "3 AS X")
    cs.write_messages(both, tmp_path / "store", BOX, kind="event")
    twice = df.selectExpr("*", "5 AS round")
    with pytest.raises(ParameterError, match="2 columns named 'round'"):
        cs.write_messages(twice, tmp_path / "other", BOX, kind="event")


def test_bad_arguments_are_refused(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a", 1, "m")], "subscription string, round long, message string")
    with pytest.raises(ParameterError, match="'message' must be binary, got string"):
        cs.write_messages(df, tmp_path / "x", BOX, kind="event", message="message")
    with pytest.raises(ParameterError, match="'event_message' is missing"):
        cs.write_messages(df, tmp_path / "x", BOX, kind="event")
    with pytest.raises(ParameterError, match="mode must be"):
        cs.write_messages(df, tmp_path / "x", BOX, kind="event", mode="x")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="kind must be 'event' or 'interest'"):
        cs.write_messages(df, tmp_path / "x", BOX, kind="events")  # type: ignore[arg-type]
    paths = written / "events", written / "interests"
    with pytest.raises(ParameterError, match="on_error must be"):
        cs.match_messages(spark, *paths, BOX, on_error="ignore")  # type: ignore[arg-type]
    for number in (0, -1, 1.5):
        with pytest.raises(ParameterError, match="partitions must be a whole number, at least 1"):
            cs.match_messages(spark, *paths, BOX, partitions=number)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="holds interest messages, not event messages"):
        cs.match_messages(spark, *paths[::-1], BOX)


@pytest.mark.slow
def test_all_tasks_have_as_much_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = {f"s{i}": list(range(40)) for i in range(3)}
    write(spark, event_rows(rounds), tmp_path / "e", "event", partitions=1)
    write(spark, interest_rows(rounds), tmp_path / "i", "interest", partitions=1)
    monkeypatch.setattr(plan, "PIECE_ROWS", 4)
    for partitions, share in ((10, {12}), (30, {4}), (7, {16, 20})):
        answers = cs.match_messages(
            spark, tmp_path / "e", tmp_path / "i", BOX, partitions=partitions
        )
        tasks = answers.groupBy(F.spark_partition_id()).count().collect()
        assert len(tasks) == partitions
        assert {row["count"] for row in tasks} == share


@pytest.fixture
def spread(
    spark: SparkSession,
    sides: tuple[Rounds, Rounds],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Path, Path]:
    """Stores of both sides; sixteen rounds of a subscription are in one part."""
    monkeypatch.setattr(stores, "SPAN_BITS", 4)
    paths = tmp_path / "events", tmp_path / "interests"
    write(spark, event_rows(sides[0]), paths[0], "event", partitions=4)
    write(spark, interest_rows(sides[1]), paths[1], "interest", partitions=3)
    return paths


def test_several_tasks_write_a_subscription_that_has_most_messages(
    spark: SparkSession, sides: tuple[Rounds, Rounds], spread: tuple[Path, Path], tmp_path: Path
) -> None:
    paths = spread
    for path, count in zip(paths, (4, 3), strict=True):
        index = Index.read(Folder.of(path, "path"))
        hot = [label == "s0" for label in index.subscription.to_pylist()]
        assert len({*index.part[hot].tolist()}) == count
    assert answers(cs.match_messages(spark, *paths, BOX)) == wanted(*sides)

    some = {key: row for key, row in event_rows(sides[0]).items() if key[0] == "s0"}
    df = frame(spark, some, "event_message")
    other = df.where("round = 78").withColumn("round", F.lit(77).cast("long"))
    with pytest.raises(ParameterError, match="subscription='s0', round=77 occurs twice"):
        cs.write_messages(df.union(other), tmp_path / "other", BOX, kind="event", partitions=4)
    with pytest.raises(RandomnessReuseError, match="'s0', round=77 has a message already, and"):
        cs.write_messages(other, paths[0], BOX, kind="event", mode="append")


def test_what_is_sent_again_is_kept_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a source does that delivers at least once, in the same batch or a later one."""
    monkeypatch.setattr(stores, "SPAN_BITS", 4)
    path, append = tmp_path / "events", {"mode": "append", "partitions": 3}
    first, second = ({"s0": [*range(low, low + 60)], "s1": [7]} for low in (0, 40))
    df = frame(spark, event_rows(first), "event_message")
    again = df.union(df.where("round % 9 = 7"))
    cs.write_messages(again, path, BOX, kind="event", **append)
    write(spark, event_rows(second), path, "event", **append)
    write(spark, event_rows(first), path, "event", batch=("quotes", 3), **append)
    index = Index.read(Folder.of(path, "path"))
    assert (index.stop - index.start).sum() == 101
    assert index.about.batches == {"quotes": 3}
    parts = {name for name in Folder.of(path, "path").names() if name.startswith("part")}
    assert parts == {*index.parts}
    interests = {"s0": [*range(120)], "s1": [7]}
    write(spark, interest_rows(interests), tmp_path / "interests", "interest")
    found = answers(cs.match_messages(spark, path, tmp_path / "interests", BOX, verify=True))
    assert found == wanted({"s0": [*range(100)], "s1": [7]}, interests)


@pytest.mark.slow
def test_a_store_that_several_tasks_wrote_is_compacted_by_several(
    spark: SparkSession, sides: tuple[Rounds, Rounds], spread: tuple[Path, Path]
) -> None:
    paths = spread
    cs.compact_messages(spark, paths[0], BOX, kind="event", partitions=2)
    assert len(Index.read(Folder.of(paths[0], "path")).parts) == 2
    assert answers(cs.match_messages(spark, *paths, BOX)) == wanted(*sides)


BAD_WIDTH = "the {0} message has the wrong number of bytes"
BAD: dict[str, Callable[[bytes], Any]] = {
    "column '{0}_message' is NULL": lambda message: None,
    BAD_WIDTH: lambda message: message[:-1],
    "the {0} bytes are not an {0} message of this version": lambda message: (
        bytes([message[0] ^ 1]) + message[1:]
    ),
}


@pytest.mark.parametrize("kind", [pytest.param("event", marks=pytest.mark.slow), "interest"])
def test_rows_that_are_no_messages_are_set_aside(
    spark: SparkSession, tmp_path: Path, kind: Any
) -> None:
    """A batch after the other, as of a stream that goes on; each has all that can be wrong."""
    names = f"subscription string, round long, {kind}_message binary, note string"
    rounds = {f"s{i}": list(range(40)) for i in range(3)}
    rows = {"event": event_rows, "interest": interest_rows}[kind](rounds)
    batches: list[list[tuple[str | None, int | None, Any, str | None]]] = []
    for number in range(2):
        batch: list[tuple[str | None, int | None, Any, str | None]] = [
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
        assert told.where("NOT (rejected <=> note)").collect() == []
        assert told.count() == len(batch)
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
    with pytest.raises(ParameterError, match="subscription= does not apply"):
        cs.check_messages(sent, box, kind="event", subscription="round")
    with pytest.raises(ParameterError, match="a column 'rejected' already"):
        cs.check_messages(sent.selectExpr("*", "1 AS rejected"), box, kind="event")
    with pytest.raises(ParameterError, match="kind must be"):
        cs.check_messages(sent, box, kind="events")  # type: ignore[arg-type]
