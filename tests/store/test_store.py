"""Files, indexes and plans of message stores, without Spark: damage, writers at once, layouts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from ccbps.errors import DecodeError, ParameterError
from ccbps.matching import Answers
from ccbps.records import read, write
from ccbps.store import files as storefiles
from ccbps.store import plan as storeplan
from ccbps.store.commit import renew
from ccbps.store.folder import Folder
from ccbps.store.index import FORMAT, About, Index, StoreKind
from ccbps.store.versions import WriterRun

Rounds = dict[str, list[int]]
# All that a store knows of a matcher.
SPELT: Any = SimpleNamespace(
    fingerprint=bytes(32), event_bytes=12, interest_bytes=12, answers=Answers.PAIRS
)
INDEX = "index-00000001.arrow"


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
            pa.array([n for _, n in chosen], pa.int64()),
            pa.array([f"{label:>4}{n:08d}".encode() for label, n in chosen], pa.binary()),
            pa.array([label for label, _ in chosen]),
        )
    runs = pa.table(part.finish())
    renew(
        folder,
        run,
        Index.of(folder, About.of(SPELT, kind), runs, {part.name: part.checksums}),
        before=run.version + 1,
    )
    return Index.read(folder, SPELT, kind)


def read_index(store: Path) -> pa.Table:
    return pa.ipc.open_file((store / INDEX).read_bytes()[:-32]).read_all()


def write_index(store: Path, table: pa.Table) -> None:
    """An index that says something else, and whose own checksum is right."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    content = sink.getvalue().to_pybytes()
    (store / INDEX).write_bytes(content + sha256(content).digest())


def told(table: pa.Table) -> list[Any]:
    found: list[Any] = read(list, table.schema.metadata[b"ccbps"], refusal="not metadata")
    return found


def retold(table: pa.Table, content: Any, form: str = FORMAT) -> pa.Table:
    return table.replace_schema_metadata({"format": form, "ccbps": write(content)})


def about(table: pa.Table, **changes: Any) -> pa.Table:
    whose, batch_rows, parts = told(table)
    return retold(table, [[*About(*whose)._replace(**changes)], batch_rows, parts])


def changed_parts(table: pa.Table, change: Callable[[list[Any]], list[Any]]) -> pa.Table:
    whose, batch_rows, parts = told(table)
    return retold(table, [whose, batch_rows, {name: change(part) for name, part in parts.items()}])


def shifted(table: pa.Table) -> pa.Table:
    return table.set_column(2, "start", pc.add(table["start"], 1000))


def elsewhere(table: pa.Table) -> pa.Array:
    return pa.array(["../part-0.arrow"] * table.num_rows).dictionary_encode()


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (shifted, "runs do not follow one another"),
        (lambda t: t.slice(0, 0), "lacks checksums"),
        (lambda t: t.set_column(3, "stop", t["start"]), "runs do not follow one another"),
        (lambda t: t.set_column(5, "last_round", t["first_round"]), "fewer rounds than rows"),
        (
            lambda t: t.set_column(1, "subscription", pa.array(["s"] * len(t))),
            "rounds go back within a part",
        ),
        (lambda t: t.set_column(1, "subscription", pa.nulls(len(t), pa.string())), "missing"),
        (lambda t: t.set_column(4, "first_round", pc.subtract(t["first_round"], 9)), "rounds"),
        (lambda t: about(t, width=0), "malformed"),
        (lambda t: about(t, width=12.0), "malformed"),
        (lambda t: about(t, width=SPELT.event_bytes << 9), "do not go together"),
        (lambda t: about(t, kind="x"), "malformed"),
        (lambda t: retold(t, [*told(t)[:2], {}]), "lacks checksums"),
        (lambda t: changed_parts(t, lambda p: [p[0], p[1] + b"\0", *p[2:]]), "lacks checksums"),
        (lambda t: changed_parts(t, lambda p: [p[0] - 1, *p[1:]]), "runs do not follow one anoth"),
        (lambda t: changed_parts(t, lambda p: p[:2]), "malformed"),
        (lambda t: about(t, floor=-1), "malformed"),
        (lambda t: about(t, batches={"x": "y"}), "malformed"),
        (lambda t: t.set_column(0, "part", elsewhere(t)), "not parts of a store"),
        (lambda t: t.drop_columns(["stop"]), "stop"),
        (lambda t: t.set_column(2, "start", pa.array(["x"] * len(t))), "start|parse|cast|x"),
        (lambda t: retold(t, []), "malformed"),
        (lambda t: retold(t, [*told(t), 0]), "malformed"),
        (lambda t: retold(t, {"about": 1}), "malformed"),
        (lambda t: t.replace_schema_metadata({"format": FORMAT, "ccbps": b"[]"}), "malformed"),
        (lambda t: t.replace_schema_metadata({"format": FORMAT}), "KeyError"),
        (lambda t: t.replace_schema_metadata({}), "KeyError"),
    ],
)
def test_a_damaged_index_is_named(
    tmp_path: Path, damage: Callable[[pa.Table], pa.Table], cause: str
) -> None:
    folder = Folder.of(tmp_path, "events")
    small_store(folder, "event", {"s0": [1, 2, 5], "s1": [0], "s2": list(range(9))}, 4)
    write_index(tmp_path, damage(read_index(tmp_path)))
    with pytest.raises(DecodeError, match=rf"index-\d+\.arrow is damaged: .*({cause})"):
        Index.read(folder, SPELT, "event")


def test_an_index_of_another_format_says_so(tmp_path: Path) -> None:
    small_store(Folder.of(tmp_path, "events"), "event", {"s0": [1]}, 4)
    table = read_index(tmp_path)
    write_index(tmp_path, retold(table, told(table), "ccbps messages 3"))
    with pytest.raises(DecodeError, match=f"has format 'ccbps messages 3'; this reads '{FORMAT}'"):
        Index.read(Folder.of(tmp_path, "events"))


def test_a_commit_leaves_the_parts_of_runs_that_began_later() -> None:
    mine, rival, later, before = WriterRun(3), WriterRun(3), WriterRun(4), WriterRun(2)
    names = [f"{run.stem}-{'0' * 32}.arrow" for run in (mine, rival, later, before)]
    spare = f"{mine.stem}-{'1' * 32}.arrow"
    others = ["notes.txt", later.draft, mine.index, "index-00000004.arrow"]
    old = ["index.arrow", f"part-{'0' * 32}.arrow", before.index, rival.draft]
    every = [*names, spare, *others, *old]
    gone = mine.replaced(every, [names[0]], before=4)
    assert sorted(gone) == sorted([names[1], names[3], spare, *old])
    # A compaction leaves what was begun beside it, and who appends what was begun before it.
    assert sorted(mine.replaced(every, [names[0]], before=3)) == sorted(
        [names[3], spare, *[name for name in old if name != rival.draft]]
    )
    assert sorted(mine.replaced(every, [names[0]], before=0)) == sorted([spare, before.index])
    assert sorted(mine.left([*names, spare, *others])) == sorted([names[0], spare])


def test_a_late_writer_of_an_old_version_fails_too(tmp_path: Path) -> None:
    folder = Folder.of(tmp_path, "path")
    for version in (1, 2):
        small_store(folder, "event", {"s0": [version]}, 1, WriterRun(version))
    with pytest.raises(ParameterError, match=r"another call .*index-00000002"):
        small_store(folder, "event", {"s0": [9]}, 1, WriterRun(1))
    assert Index.read(folder, SPELT, "event").first.tolist() == [2]
    assert not (tmp_path / WriterRun(1).index).exists()


def test_a_writer_whose_parts_were_removed_fails(tmp_path: Path) -> None:
    folder, run = Folder.of(tmp_path, "path"), WriterRun(1)
    runs = pa.table({field.name: pa.nulls(0, field.type) for field in storefiles.RUNS})
    index = Index.of(folder, About.of(SPELT, "event"), runs, {})
    gone = storefiles.PartFile(folder, 0, b"", (0, 0))
    files = replace(index.files, parts={f"{run.stem}-{'0' * 32}.arrow": gone})
    with pytest.raises(ParameterError, match="parts of this one are gone"):
        renew(folder, run, replace(index, files=files), before=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_at_most_one_of_many_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    folder = Folder.of(tmp_path, "path")
    if not links:
        monkeypatch.setattr(
            "os.link", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOTSUP, "no links"))
        )
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


def test_a_file_system_that_fails_is_not_one_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that link ignore the claims of those that cannot."""
    folder, link = Folder.of(tmp_path, "path"), os.link
    for name in ("draft0", "draft1", "draft2"):
        (tmp_path / name).write_text(name)

    def lost(old: str, new: str) -> None:
        link(old, new)
        raise FileExistsError

    def failing(old: str, new: str) -> None:
        raise OSError(errno.EIO, "a disk")

    monkeypatch.setattr("os.link", failing)
    with pytest.raises(OSError, match="a disk"):
        folder.publish("draft0", "index")
    assert "index" not in folder.names()
    monkeypatch.setattr("os.link", lost)
    assert folder.publish("draft1", "index") is None
    assert folder.publish("draft2", "index") == "index"
    assert folder.publish("draft3", "index4") == "draft3"
    assert folder.names() == ["index"] and (tmp_path / "index").read_text() == "draft1"


def refused(*rows: tuple[str | None, int | None, bytes | None]) -> str:
    """What a writer of parts says about rows."""
    part = storefiles.PartWriter(Folder.of("/nowhere", "path"), "part", 12)
    labels, numbers, messages = zip(*rows, strict=True)
    columns = pa.array(numbers, pa.int64()), pa.array(messages, pa.binary()), pa.array(labels)
    with pytest.raises(storefiles.Refused) as failure:
        part.append(*columns)
    return str(failure.value)


def test_rows_that_are_no_messages_are_named() -> None:
    good = ("s0", 6, b"x" * 12)
    assert refused(good, ("s0", 6, b"y" * 12)).startswith("subscription='s0', round=6 occurs twice")
    assert "the round is NULL" in refused(good, ("s0", None, b"x" * 12))
    assert "subscription='s0', round=-1: the round is neg" in refused(("s0", -1, b"x" * 12), good)
    assert "the subscription is NULL" in refused((None, 7, b"x" * 12), good)
    assert "subscription='s2', round=8: the message is NULL" in refused(good, ("s2", 8, None))
    assert "round=8: the message has 5 bytes; messages of this matcher have 12" in refused(
        good, ("s2", 8, b"short")
    )


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
        found = []

        @cache
        def part(side: int, name: str) -> storefiles.PartReader:
            return indexes[side].files.reader(name, verify=verify)

        for piece in storeplan.plan(*indexes).to_pylist():
            work = storeplan.open_piece(piece, part)
            labels, numbers = (names.to_pylist() for names in storeplan.pair_names(work))
            texts = [f"{s:>4}{n:08d}" for s, n in zip(labels, numbers, strict=True)]
            done = 0
            for at, *messages in work.blocks:
                assert isinstance(at, slice)
                assert at.start == done
                for side in messages:
                    assert [bytes(m).decode() for m in side] == texts[at]
                done = at.stop
            assert done == len(texts)
            found += texts
    events, interests = sides
    assert sorted(found) == sorted(
        f"{label:>4}{n:08d}"
        for label in events.keys() & interests.keys()
        for n in set(events[label]) & set(interests[label])
    )


def test_each_of_many_tasks_has_something_to_do(tmp_path: Path) -> None:
    """Of 1,000 subscriptions with 100,000 rounds each."""
    count, rounds = 1000, 100_000
    starts = [rounds * n for n in range(count)]
    runs = {
        "part": ["p"] * count,
        "subscription": [str(n) for n in range(count)],
        "start": starts,
        "stop": [start + rounds for start in starts],
        "first_round": [0] * count,
        "last_round": [rounds - 1] * count,
    }
    kinds: list[StoreKind] = ["event", "interest"]
    sides = [
        Index.of(Folder.of(tmp_path, "path"), About.of(SPELT, kind), pa.table(runs), {"p": b""})
        for kind in kinds
    ]
    for tasks, least, most in ((0, 256, 300), (2, 96, 110), (50, 200, 220), (500, 2000, 2050)):
        pieces = storeplan.plan(*sides, tasks=tasks).to_pylist()
        assert least <= len(pieces) <= most
        found = sum(
            int((runs["event_stop"].to_numpy() - runs["event_start"].to_numpy()).sum())
            for runs in map(storeplan.runs_of, pieces)
        )
        assert found == count * rounds
