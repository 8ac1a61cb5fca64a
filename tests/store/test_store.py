"""Files, indexes and plans of message stores, without Spark: damage, writers at once, layouts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.errors import DecodeError, ParameterError
from ccbps.store import files as storefiles
from ccbps.store import plan as storeplan
from ccbps.store.commit import renew
from ccbps.store.folder import Folder
from ccbps.store.index import FORMAT, About, Index, StoreKind
from ccbps.store.versions import WriterRun
from tests.support.message_stores import (
    ROUNDS,
    SPELT,
    Rounds,
    about,
    named,
    read_index,
    refused,
    retold,
    sizes,
    spelt,
    spelt_rows,
    store,
    told,
    works,
    write_index,
)

KINDS: list[StoreKind] = ["event", "interest"]


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
    store(
        tmp_path, "event", [spelt_rows({"s0": [1, 2, 5], "s1": [0], "s2": list(range(9))})], cut=4
    )
    write_index(tmp_path, damage(read_index(tmp_path)))
    with pytest.raises(DecodeError, match=rf"index-\d+\.arrow is damaged: .*({cause})"):
        Index.read(Folder.of(tmp_path, "events"), SPELT, "event")


def test_an_index_of_another_format_says_so(tmp_path: Path) -> None:
    store(tmp_path, "event", [spelt_rows({"s0": [1]})])
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
    for version in (1, 2):
        store(tmp_path, "event", [spelt_rows({"s0": [version]})], run=WriterRun(version))
    with pytest.raises(ParameterError, match=r"another call .*index-00000002"):
        store(tmp_path, "event", [spelt_rows({"s0": [9]})])
    assert Index.read(Folder.of(tmp_path, "path"), SPELT, "event").first.tolist() == [2]
    assert not (tmp_path / WriterRun(1).index).exists()


def test_a_writer_whose_parts_were_removed_fails(tmp_path: Path) -> None:
    folder, run = Folder.of(tmp_path, "path"), WriterRun(1)
    index = Index.of(folder, About.of(SPELT, "event"), storefiles.MANIFEST.empty_table())
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


def test_rows_that_are_no_messages_are_named() -> None:
    good, text = (6, b"x" * 12, "s0"), "; messages of this matcher have 12"
    cases: list[tuple[list[tuple[Any, ...]], str]] = [
        ([good, (6, b"y" * 12, "s0")], "subscription='s0', round=6 occurs twice; a pair and round"),
        ([good, (None, b"x" * 12, "s0")], "the round is NULL; leave such rows out"),
        ([(-1, b"x" * 12, "s0"), good], "subscription='s0', round=-1: the round is negative"),
        ([(7, b"x" * 12, None), good], "the subscription is NULL"),
        ([good, (8, None, "s2")], "subscription='s2', round=8: the message is NULL"),
        ([good, (8, b"short", "s2")], f"round=8: the message has 5 bytes{text}"),
    ]
    for rows, said in cases:
        assert said in refused(12, *rows)


@given(
    sides=st.lists(
        st.dictionaries(st.sampled_from(["s0", "s1", "s2", "s3", "s4"]), ROUNDS, min_size=1),
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
    some = {"BATCH_BYTES": 12 * batch, "PIECE_ROWS": piece, "VIEW_BYTES": view}
    with sizes(local=local, BLOCK_BYTES=12 * 5, **some):
        indexes = [
            store(tmp_path_factory.mktemp("layout"), kind, [spelt_rows(rounds)], cut=cut)
            for kind, rounds in zip(KINDS, sides, strict=True)
        ]
        found = []
        for work in works(indexes, storeplan.plan(*indexes), verify=verify):
            texts, done = [spelt(*name) for name in named(work)], 0
            for at, *messages in work.blocks:
                assert isinstance(at, slice)
                assert at.start == done
                for side in messages:
                    assert [*map(bytes, side)] == texts[at]
                done = at.stop
            assert done == len(texts)
            found += texts
    events, interests = (spelt_rows(rounds) for rounds in sides)
    assert sorted(found) == sorted(spelt(*key) for key in events.keys() & interests.keys())


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
        "checksums": [b""] + [None] * (count - 1),
        "problem": pa.nulls(count),
    }
    sides = [
        Index.of(Folder.of(tmp_path, "path"), About.of(SPELT, kind), pa.table(runs))
        for kind in KINDS
    ]
    for tasks, least, most in ((0, 256, 300), (2, 96, 110), (50, 200, 220), (500, 2000, 2050)):
        pieces = storeplan.plan(*sides, tasks=tasks).to_pylist()
        assert least <= len(pieces) <= most
        found = sum(
            int((runs["event_stop"].to_numpy() - runs["event_start"].to_numpy()).sum())
            for runs in (storeplan.runs_of(piece["runs"]) for piece in pieces)
        )
        assert found == count * rounds
