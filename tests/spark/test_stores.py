"""Message stores: answers as `match` gives them, whatever the layout; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching import BranchingMatch
from ccbps.store import files as storefiles
from ccbps.store import plan as storeplan
from ccbps.store.folder import Folder
from ccbps.store.index import Index, StoreKind, WriterRun

pytestmark = pytest.mark.spark

SCHEMA = Schema(a=UInt(8), b=UInt(6))
BOX = BranchingMatch.box(SCHEMA)
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


def test_parts_hold_sorted_messages_of_fixed_width(written: Path) -> None:
    about = json.loads(read_index(written / "events").schema.metadata[b"ccbps"])
    assert about["matcher"] == BOX.fingerprint.hex()
    parts = sorted((written / "events").glob("part-*.arrow"))
    assert 1 < len(parts) <= 3
    for path in parts:
        schema = pa.ipc.open_file(path).schema
        assert schema.field("message").type == pa.binary(BOX.event_bytes)


def test_a_uri_is_a_path(spark: SparkSession, sides: tuple[Rounds, Rounds], written: Path) -> None:
    uris = [(written / side).as_uri() for side in ("events", "interests")]
    assert answers(cs.match_messages(spark, *uris, BOX)) == wanted(*sides)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda m: b"\7" + m[1:], "not an event message"),
        (lambda m: m[:2] + bytes([m[2] ^ 1]) + m[3:], "another matcher"),
        (lambda m: m[:8] + bytes(8) + m[16:], "different pairs, rounds or seeds"),
    ],
)
def test_malformed_messages_are_named_or_set_aside(
    spark: SparkSession,
    sides: tuple[Rounds, Rounds],
    written: Path,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    cause: str,
) -> None:
    rows, bad = event_rows(sides[0]), ("s1", 120)
    rows[bad] = change(rows[bad])
    write(spark, rows, tmp_path / "events", "event")
    paths = tmp_path / "events", written / "interests"
    with pytest.raises(Exception, match=cause) as failure:
        cs.match_messages(spark, *paths, BOX).collect()
    assert "subscription='s1', round=120" in str(failure.value)
    good = wanted(*sides)
    rejected = cs.match_messages(spark, *paths, BOX, on_error="reject")
    texts = {(r["subscription"], r["round"]): r["rejected"] for r in rejected.collect()}
    assert [key for key, text in texts.items() if text] == [bad]
    assert cause in texts[bad]
    assert answers(rejected) == {**good, bad: None}


def test_a_store_of_nothing_gives_no_answers(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    write(spark, {}, tmp_path / "events", "event")
    assert cs.match_messages(spark, tmp_path / "events", written / "interests", BOX).count() == 0


def test_stores_of_another_matcher_are_refused(spark: SparkSession, written: Path) -> None:
    other = BranchingMatch.box(Schema(a=UInt(8), b=UInt(5)))
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
    table = read_index(written / "interests")
    elsewhere = pa.array(["../part-0.arrow"] * table.num_rows).dictionary_encode()
    write_index(tmp_path, table.set_column(0, "part", elsewhere))
    with pytest.raises(DecodeError, match="not parts of a store"):
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


INDEX = "index-00000001.arrow"


def read_index(store: Path) -> pa.Table:
    return pa.ipc.open_file((store / INDEX).read_bytes()[:-32]).read_all()


def write_index(store: Path, table: pa.Table) -> None:
    """An index that says something else, and whose own checksum is right."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    content = sink.getvalue().to_pybytes()
    (store / INDEX).write_bytes(content + sha256(content).digest())


def about(table: pa.Table, **changes: Any) -> pa.Table:
    return table.replace_schema_metadata({"ccbps": json.dumps(told(table) | changes)})


def told(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema.metadata[b"ccbps"])
    return found


def shifted(table: pa.Table) -> pa.Table:
    return table.set_column(2, "start", pc.add(table["start"], 1000))


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (shifted, "runs do not follow one another"),
        (lambda t: t.slice(1), "runs do not follow one another"),
        (lambda t: t.set_column(3, "stop", t["start"]), "runs do not follow one another"),
        (lambda t: t.set_column(5, "last_round", t["first_round"]), "fewer rounds than rows"),
        (lambda t: t.set_column(1, "subscription", pa.array(["s"] * len(t))), "has two runs"),
        (lambda t: t.set_column(1, "subscription", pa.nulls(len(t), pa.string())), "missing"),
        (lambda t: t.set_column(4, "first_round", pc.subtract(t["first_round"], 9)), "rounds"),
        (lambda t: about(t, width=0), "do not go together"),
        (lambda t: about(t, width=float(BOX.event_bytes)), "do not go together"),
        (lambda t: about(t, kind="x"), "whose messages"),
        (lambda t: about(t, checksums={}), "lacks checksums"),
        (
            lambda t: about(t, checksums={n: s + "00" for n, s in told(t)["checksums"].items()}),
            "lack",
        ),
        (lambda t: t.drop_columns(["stop"]), "stop"),
        (lambda t: t.set_column(2, "start", pa.array(["x"] * len(t))), "start|parse|cast|x"),
        (lambda t: t.replace_schema_metadata({"ccbps": b"[]"}), "TypeError"),
        (lambda t: t.replace_schema_metadata({"ccbps": b'{"format": "ccbps messages 2"}'}), "kind"),
        (lambda t: t.replace_schema_metadata({}), "KeyError"),
    ],
)
def test_a_damaged_index_is_named(
    written: Path, tmp_path: Path, damage: Callable[[pa.Table], pa.Table], cause: str
) -> None:
    write_index(tmp_path, damage(read_index(written / "events")))
    with pytest.raises(DecodeError, match=rf"index-\d+\.arrow is damaged: .*({cause})"):
        Index.read(Folder.of(tmp_path, "events"), BOX, "event")


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
        (("s0", None, bytes(BOX.event_bytes)), "the round is NULL"),
        (("s0", -1, bytes(BOX.event_bytes)), r"subscription='s0', round=-1: the round is negative"),
        ((None, 7, bytes(BOX.event_bytes)), "the subscription is NULL"),
        (("s2", 8, None), r"subscription='s2', round=8: the message is NULL"),
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
    commit, first, second = Index.write, {"s0": list(range(20))}, {"s0": list(range(20, 40))}

    def late(*arguments: Any) -> None:
        # All parts of the one are written; the other comes and goes, and then it would commit.
        monkeypatch.setattr(Index, "write", commit)
        write(spark, event_rows(second), path, "event", mode=mode)
        commit(*arguments)

    monkeypatch.setattr(Index, "write", late)
    with pytest.raises(ParameterError, match=r"another write_messages finished there .*index-0"):
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
    assert all("another write_messages" in text or "is not empty" in text for text in problems)


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


def test_a_commit_leaves_the_parts_of_runs_that_began_later() -> None:
    mine, rival, later, before = WriterRun(3), WriterRun(3), WriterRun(4), WriterRun(2)
    names = [f"{run.stem}-{'0' * 32}.arrow" for run in (mine, rival, later, before)]
    spare = f"{mine.stem}-{'1' * 32}.arrow"
    others = ["notes.txt", later.draft, mine.index, "index-00000004.arrow"]
    old = ["index.arrow", f"part-{'0' * 32}.arrow", before.index, rival.draft]
    gone = mine.replaced([*names, spare, *others, *old], [names[0]])
    assert sorted(gone) == sorted([names[1], names[3], spare, *old])
    assert sorted(mine.left([*names, spare, *others])) == sorted([names[0], spare])


def test_a_late_writer_of_an_old_version_fails_too(tmp_path: Path) -> None:
    folder = Folder.of(tmp_path, "path")
    for version in (1, 2):
        small_store(folder, "event", {"s0": [version]}, 1, WriterRun(version))
    (tmp_path / WriterRun(1).index).unlink()  # as the second's commit does
    with pytest.raises(ParameterError, match=r"another write_messages .*index-00000002"):
        small_store(folder, "event", {"s0": [9]}, 1, WriterRun(1))
    assert Index.read(folder, SPELT, "event").first.tolist() == [2]
    assert not (tmp_path / WriterRun(1).index).exists()


def test_a_writer_whose_parts_were_removed_fails(tmp_path: Path) -> None:
    folder, run = Folder.of(tmp_path, "path"), WriterRun(1)
    runs = pa.table({field.name: pa.nulls(0, field.type) for field in storefiles.RUNS})
    with pytest.raises(ParameterError, match="parts of this one are gone"):
        Index.write(folder, run, SPELT, "event", runs, {f"{run.stem}-{'0' * 32}.arrow": b""})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_at_most_one_of_many_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    folder = Folder.of(tmp_path, "path")
    if not links:
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
    for turn in range(10):
        drafts = [f"draft{i}" for i in range(8)]
        for name in drafts:
            (tmp_path / name).write_text(name)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda d, t=turn: folder.publish(d, f"index{t}"), drafts))
        won = [name for name, obstacle in zip(drafts, found, strict=True) if obstacle is None]
        assert len(won) == 1 if links else len(won) <= 1
        published = [path.read_text() for path in tmp_path.glob(f"index{turn}")]
        assert published == won
        assert all(obstacle.startswith("index") for obstacle in found if obstacle)
    assert set(tmp_path.iterdir()) == set(tmp_path.glob("index?"))
    (tmp_path / "draft").write_text("alone")
    assert folder.publish("draft", "alone") is None
    (tmp_path / "draft").write_text("late")
    assert folder.publish("draft", "alone") == "alone"
    assert (tmp_path / "alone").read_text() == "alone"


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


SPELT: Any = SimpleNamespace(fingerprint=bytes(32), event_bytes=12, interest_bytes=12)


# Files and plans without Spark: small batches and pieces, so that every boundary is crossed.


def small_store(
    folder: Folder, kind: StoreKind, rounds: Rounds, cut: int, run: WriterRun | None = None
) -> Index:
    """A store of one part with messages that spell their subscription and round."""
    keys = [(label, n) for label in sorted(rounds) for n in sorted(rounds[label])]
    run = run or WriterRun(1)
    part = storefiles.PartWriter(folder, run.stem, 12)
    for start in range(0, len(keys), cut):
        chosen = keys[start : start + cut]
        part.append(
            pa.array([label for label, _ in chosen]),
            pa.array([n for _, n in chosen], pa.int64()),
            pa.array([f"{label:>4}{n:08d}".encode() for label, n in chosen], pa.binary()),
        )
    runs = pa.table(part.finish())
    Index.write(folder, run, SPELT, kind, runs, {part.name: part.checksums})
    return Index.read(folder, SPELT, kind)


@given(
    sides=st.lists(
        st.dictionaries(
            st.sampled_from(["s0", "s1", "s2", "s3", "s4"]),
            st.one_of(
                st.tuples(st.integers(0, 9), st.integers(1, 30)).map(
                    lambda x: list(range(x[0], x[0] + x[1]))
                ),
                st.lists(st.integers(0, 40), min_size=1, unique=True),
            ),
            min_size=1,
        ),
        min_size=2,
        max_size=2,
    ),
    cut=st.integers(1, 9),
    batch=st.integers(1, 9),
    piece=st.integers(1, 20),
    view=st.sampled_from([12, 60, 10**9]),
    local=st.booleans(),
    verify=st.booleans(),
)
def test_every_layout_finds_every_pair(
    sides: list[Rounds],
    cut: int,
    batch: int,
    piece: int,
    view: int,
    local: bool,
    verify: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storefiles, "BATCH_BYTES", 12 * batch)
        patch.setattr(storeplan, "PIECE_ROWS", piece)
        patch.setattr(storeplan, "VIEW_BYTES", view)
        patch.setattr(storeplan, "BLOCK_BYTES", 12 * 5)
        if not local:  # a file system that cannot map files
            remote = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
            patch.setattr(Folder, "_found", property(lambda self: (remote, self.path)))
        kinds: list[StoreKind] = ["event", "interest"]
        indexes = [
            small_store(Folder.of(tmp_path_factory.mktemp("layout"), "path"), kind, rounds, cut)
            for kind, rounds in zip(kinds, sides, strict=True)
        ]
        readers: dict[tuple[int, str], storefiles.PartReader] = {}
        found = []
        for row in storeplan.plan(*indexes).to_pylist():
            pair = [
                readers.setdefault(
                    (side, name),
                    index.files.reader(name, verify=verify),
                )
                for side, (index, name) in enumerate(
                    zip(indexes, (row["event_part"], row["interest_part"]), strict=True)
                )
            ]
            runs = pa.ipc.open_stream(row["runs"]).read_next_batch()
            pairs = storeplan.pair_rows(runs, *pair)
            labels, numbers = (names.to_pylist() for names in storeplan.pair_names(runs, pairs))
            texts = [f"{s:>4}{n:08d}" for s, n in zip(labels, numbers, strict=True)]
            blocks = list(storeplan.pairs_of_blocks(pairs.segments, *pair))
            for side in range(2):
                assert [bytes(m).decode() for block in blocks for m in block[side]] == texts
            found += texts
    events, interests = sides
    assert sorted(found) == sorted(
        f"{label:>4}{n:08d}"
        for label in events.keys() & interests.keys()
        for n in set(events[label]) & set(interests[label])
    )
