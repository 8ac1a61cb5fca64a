"""Stores that grow, shrink and are compacted, without Spark: beside a dictionary of messages."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.errors import DecodeError, ParameterError, RandomnessReuseError
from ccbps.store import commit, merging, once
from ccbps.store import files as storefiles
from ccbps.store import plan as storeplan
from ccbps.store.folder import Folder
from ccbps.store.index import Index, StoreKind
from ccbps.store.versions import WriterRun, current
from tests.support.meanwhile import Meanwhile
from tests.support.message_stores import (
    SPELT,
    Rounds,
    batches,
    compact,
    named,
    sizes,
    spelt,
    spelt_rows,
    works,
    written,
)

ROUNDS = st.dictionaries(
    st.sampled_from(["s0", "s1", "s2"]),
    st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True),
    max_size=3,
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.of(tmp_path / "store", "path")


def fresh(
    folder: Folder, run: WriterRun, rounds: Rounds, other: str = "", kind: StoreKind = "event"
) -> Index:
    """Messages in two parts, not yet committed. A part has eight rounds of a subscription, and not
    the next eight."""
    rows = {(s, n): spelt(other or s, n) for s, n in spelt_rows(rounds)}
    halves = [
        {key: rows[key] for key in rows if (int(key[0][1]) + (key[1] >> 3)) % 2 == odd}
        for odd in (0, 1)
    ]
    return written(folder, run, kind, halves)


def add(folder: Folder, rounds: Rounds, other: str = "", kind: StoreKind = "event") -> None:
    run = WriterRun(current(folder)[0] + 1)
    new = fresh(folder, run, rounds, other, kind)
    try:
        commit.add_generation(folder, run, new, SPELT, None)
    except BaseException:
        commit.abandon(folder, run)
        raise


def pairs(events: Index, interests: Index) -> list[tuple[str, int]]:
    """What is matched, as it is spelt on both sides."""
    pairs = []
    for work in works((events, interests), storeplan.plan(events, interests), verify=True):
        names = named(work)
        for at, *messages in work.blocks:
            for side in messages:
                assert [*map(bytes, side)] == [spelt(*name) for name in names[at]]
        pairs += names
    return sorted(pairs)


def held(folder: Folder, rounds: Rounds) -> Index:
    """A store that has exactly these messages, and no other files."""
    index = Index.read(folder, SPELT, "event")
    assert pairs(index, index) == sorted(keys(rounds))
    assert len(folder.names()) == 1 + len(index.files.parts)
    return index


def runs_of(index: Index) -> list[set[tuple[str, int]]]:
    """What each run of a store has."""
    rows = zip(
        index.subscription.to_pylist(),
        [index.files.reader(index.parts[number]).rounds for number in index.part],
        index.start.tolist(),
        index.stop.tolist(),
        strict=True,
    )
    return [{(label, n) for n in rounds[a:b].tolist()} for label, rounds, a, b in rows]


def keys(rounds: Rounds) -> set[tuple[str, int]]:
    return {*spelt_rows(rounds)}


STEPS = st.lists(
    st.one_of(
        ROUNDS.map(lambda rounds: ("add", rounds)),
        ROUNDS.map(lambda rounds: ("alter", rounds)),
        st.tuples(st.just("drop"), st.integers(0, 31)),
        st.tuples(st.just("leave"), st.lists(st.sampled_from(["s0", "s1", "s3"]))),
        st.tuples(st.just("compact"), st.integers(1, 4)),
    ),
    max_size=8,
)


@given(
    steps=STEPS,
    other=ROUNDS,
    piece=st.integers(1, 20),
    at_once=st.sampled_from([1, 7, 1000]),
    run_rows=st.sampled_from([1, 2, 5, 1000]),
)
def test_a_store_holds_what_a_dictionary_would(
    steps: list[tuple[str, Any]],
    other: Rounds,
    piece: int,
    at_once: int,
    run_rows: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("store")
    folder, against = Folder.of(path / "a", "path"), Folder.of(path / "b", "path")
    kept: set[tuple[str, int]] = set()
    floor = 0
    with sizes(BATCH_BYTES=12 * 5, RUN_ROWS=run_rows, PIECE_ROWS=piece, ROWS_AT_ONCE=at_once):
        add(folder, {})
        add(against, other, kind="interest")
        for step, argument in steps:
            if step in ("add", "alter"):
                low = {key for key in keys(argument) if key[1] < floor}
                if low:
                    with pytest.raises((ParameterError, RandomnessReuseError)) as refused:
                        add(folder, argument, "else" * (step == "alter"))
                    assert refused.type is RandomnessReuseError or "were dropped" in str(refused)
                    continue
                clash = keys(argument) & kept
                if clash and step == "alter":
                    with pytest.raises(RandomnessReuseError) as failure:
                        add(folder, argument, "else")
                    assert any(
                        f"subscription={s!r}, round={n} " in str(failure.value) for s, n in clash
                    )
                    continue
                # What is there already comes once more, and is kept once.
                add(folder, argument)
                kept |= keys(argument)
            elif step == "drop":
                floor = max(floor, argument)
                gone = commit.drop_below(folder, SPELT, "event", argument)
                low = {key for key in kept if key[1] < argument}
                assert gone == len(low)
                kept -= low
            elif step == "leave":
                gone = {key for key in kept if key[0] in argument}
                assert commit.drop_labels(folder, SPELT, "event", argument) == len(gone)
                kept -= gone
            else:
                compact(folder, argument)
                assert len(Index.read(folder).parts) <= argument
            events, interests = Index.read(folder), Index.read(against)
            assert pairs(events, interests) == sorted(kept & keys(other))
            runs = runs_of(events)
            assert sorted(key for run in runs for key in run) == sorted(kept)
            assert {len({label for label, _ in run}) for run in runs} <= {1}
            numbers = [sorted(n for _, n in run) for run in runs]
            assert [[n[0], n[-1]] for n in numbers] == np.c_[events.first, events.last].tolist()
            assert pairs(events, events) == sorted(kept)
            assert events.about.floor == floor
            assert {p for p in folder.names() if p.startswith("part")} == set(events.files.parts)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    gaps=st.lists(st.booleans(), min_size=11, max_size=11),
    batch=st.integers(1, 20),
    least=st.integers(1, 12),
)
def test_runs_end_at_gaps_when_they_are_long(
    lengths: list[int],
    gaps: list[bool],
    batch: int,
    least: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Stretches of rounds without gaps, of one or two subscriptions, in batches of some rows."""
    folder = Folder.of(tmp_path_factory.mktemp("part"), "path")
    rows, wanted = list[tuple[str, int]](), list[list[tuple[str, int]]]()
    label, number, new = 0, 0, True
    for length, gap in zip(lengths, [*gaps, False], strict=False):
        here = [(f"s{label:02d}", n) for n in range(number, number + length)]
        rows += here
        if new or len(wanted[-1]) >= least:
            wanted.append(here)
        else:
            wanted[-1] += here
        number, label, new = number + length + 1, label + (not gap), not gap
    with sizes(RUN_ROWS=least):
        messages = {key: spelt(*key) for key in rows}
        runs = storefiles.write_part(folder, WriterRun(1).stem, 12, batches(messages, batch))
    assert runs["start"].to_pylist() == np.cumsum([0, *map(len, wanted[:-1])]).tolist()
    assert runs["stop"].to_pylist() == np.cumsum([*map(len, wanted)]).tolist()
    named = zip(runs["subscription"].to_pylist(), runs["first_round"].to_pylist(), strict=True)
    assert [*named] == [run[0] for run in wanted]
    assert runs["last_round"].to_pylist() == [run[-1][1] for run in wanted]


@given(stores=st.lists(ROUNDS, min_size=1, max_size=4), other=ROUNDS)
def test_several_stores_are_one(
    stores: list[Rounds], other: Rounds, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("stores")
    folders = [Folder.of(path / str(i), "path") for i in range(len(stores))]
    for folder, rounds in zip(folders, stores, strict=True):
        add(folder, rounds, kind="interest")
    add(Folder.of(path / "e", "path"), other)
    several = [Index.read(folder) for folder in folders]
    every = [key for rounds in stores for key in keys(rounds)]
    if len(set(every)) < len(every):
        with pytest.raises(RandomnessReuseError, match="has a message in two stores"):
            once.refuse_twice(several)
        return
    once.refuse_twice(several)
    events = Index.read(Folder.of(path / "e", "path"))
    assert pairs(events, Index.together(several)) == sorted(keys(other) & set(every))


@given(several=st.lists(ROUNDS, max_size=4), floor=st.integers(0, 12))
def test_rounds_are_provided_up_to_the_first_gap(
    several: list[Rounds], floor: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder.of(tmp_path_factory.mktemp("store"), "path")
    with sizes(RUN_ROWS=3):
        for rounds in several:
            add(folder, rounds, kind="interest")
    if not several:
        return
    commit.drop_below(folder, SPELT, "interest", floor)
    index = Index.read(folder)
    left, wanted = dict[str, set[int]](), {}
    for label, number in set().union(*runs_of(index)):
        left.setdefault(label, set()).add(number)
    for label, numbers in left.items():
        first = stop = min(numbers)
        while stop in numbers:
            stop += 1
        wanted[label] = range(first, stop)
    assert commit.without_gaps(index) == wanted


def test_runs_meet_as_intervals_do() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        sides = []
        for count in rng.integers(0, 40, 2):
            first = rng.integers(0, 50, count)
            length = rng.integers(1, 20, count)
            if count:
                first[0], length[0] = 2**63 - 1 - 30, 31
                first[-1], length[-1] = 2**63 - 1, 1
            labels = pa.array([f"s{n}" for n in rng.integers(0, 4, count)], pa.string())
            side = SimpleNamespace(part=first, subscription=labels, first=first)
            side.last = first + (length - 1)
            sides.append(side)
        found = storeplan.meetings(*sides)  # type: ignore[arg-type]
        a, b = ([x.subscription.to_pylist(), x.first, x.last] for x in sides)
        assert set(zip(*(x.tolist() for x in found), strict=True)) == {
            (i, j)
            for i in range(len(a[0]))
            for j in range(len(b[0]))
            if a[0][i] == b[0][j] and a[1][i] <= b[2][j] and b[1][j] <= a[2][i]
        }
        assert len(found[0]) == len(set(zip(*(x.tolist() for x in found), strict=True)))


def test_rounds_below_those_that_were_dropped_do_not_come_back(folder: Folder) -> None:
    add(folder, {"s0": [1, 2]})
    assert commit.drop_below(folder, SPELT, "event", 5) == 2
    with pytest.raises(ParameterError, match="round 4 is below 5"):
        add(folder, {"s0": [4, 5]})
    add(folder, {"s0": [5]})
    held(folder, {"s0": [5]})


def test_rounds_are_dropped_from_a_compacted_store(folder: Folder) -> None:
    """Of a run that goes on, with and without gaps, and from what an earlier drop left."""
    for n in range(3):
        add(folder, {"s0": [*range(10 * n, 10 * n + 10)], "s1": [7 * n, 7 * n + 2]})
    compact(folder, 1)
    assert commit.drop_below(folder, SPELT, "event", 8) == 8 + 3
    left = {"s0": [*range(8, 30)], "s1": [9, 14, 16]}
    held(folder, left)
    assert commit.drop_below(folder, SPELT, "event", 15) == 7 + 2
    held(folder, {"s0": [*range(15, 30)], "s1": [16]})
    compact(folder, 1)
    assert commit.drop_below(folder, SPELT, "event", 15) == 0
    rows = sum(part.rows for part in Index.read(folder).files.parts.values())
    assert rows == 15 + 1
    held(folder, {"s0": [*range(15, 30)], "s1": [16]})


def test_generations_and_dropped_rounds_that_come_while_a_store_is_compacted_count(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (1, 2):
        add(folder, {"s0": [n, n + 4]})

    def others() -> None:
        add(folder, {"s0": [3]})
        commit.drop_below(folder, SPELT, "event", 2)

    meanwhile = Meanwhile(monkeypatch, merging, "plan_merge")
    meanwhile.todo = [others]
    compact(folder, 1)
    index = held(folder, {"s0": [2, 3, 5, 6]})
    assert len(index.parts) == 2
    meanwhile.todo = [lambda: compact(folder, 1)]
    with pytest.raises((ParameterError, DecodeError), match="compacted or"):
        compact(folder, 1)
    held(folder, {"s0": [2, 3, 5, 6]})


def test_subscriptions_that_leave_while_a_store_is_compacted_do_not_come_back(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (1, 2):
        add(folder, {"s0": [n], "s1": [n], "s2": [n]})

    def others() -> None:
        assert commit.drop_labels(folder, SPELT, "event", ["s2", "s3"]) == 2
        add(folder, {"s2": [1]})

    Meanwhile(monkeypatch, merging, "plan_merge").todo = [others]
    compact(folder, 1)
    held(folder, {"s0": [1, 2], "s1": [1, 2], "s2": [1]})


def test_a_reader_is_told_that_the_store_was_compacted(folder: Folder) -> None:
    for n in (1, 2):
        add(folder, {"s0": [n]})
    planned = Index.read(folder)
    compact(folder, 1)
    with pytest.raises(DecodeError, match=r"compacted or .* version 3, and was at 2\)\. Nothing"):
        pairs(planned, planned)
    now = Index.read(folder)
    folder.remove(*now.parts)
    with pytest.raises(DecodeError, match=r"cut off or damaged \(no such file\): write"):
        pairs(now, now)


def test_many_append_at_once_and_none_is_lost(folder: Folder) -> None:
    rounds = [{"s0": [n], "s1": [n, 100 + n]} for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda one: add(folder, one), rounds))
    index = held(folder, {"s0": [*range(12)], "s1": [*range(12), *range(100, 112)]})
    assert index.version == 12
    added = [part.added for part in index.files.parts.values()]
    assert {low for low, high in added if low == high} == set(range(1, 13))


def test_who_is_followed_at_once_has_committed_all_the_same(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not taken for one who came too late, and made to append once more."""

    def follow() -> None:
        add(folder, {"s0": [2]})
        compact(folder, 1)

    Meanwhile(monkeypatch, Folder, "publish").todo = [follow]
    add(folder, {"s0": [1]})
    assert held(folder, {"s0": [1, 2]}).version == 3


def test_who_comes_so_late_that_the_name_is_free_again_appends_once_more(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:

    def come_first() -> None:
        for n in (1, 2):
            add(folder, {"s0": [n]})
        assert WriterRun(1).index not in folder.names()

    Meanwhile(monkeypatch, Folder, "publish", before=True).todo = [come_first]
    add(folder, {"s0": [3]})
    assert held(folder, {"s0": [1, 2, 3]}).version == 3


def test_what_a_compaction_is_about_to_remove_is_not_appended(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(folder, {"s0": [1]})
    slow = WriterRun(2)
    waiting = fresh(folder, slow, {"s0": [9]})
    for n in (2, 3):
        add(folder, {"s0": [n]})

    def append() -> None:
        with pytest.raises(ParameterError, match="Call it once more"):
            commit.add_generation(folder, slow, waiting, SPELT, None)

    meanwhile = Meanwhile(monkeypatch, Folder, "publish")
    meanwhile.todo = [append]
    compact(folder, 1)
    assert not meanwhile.todo
    commit.abandon(folder, slow)
    add(folder, {"s0": [9]})
    held(folder, {"s0": [1, 2, 3, 9]})


def test_an_append_that_an_overwrite_overtakes_is_told_to_append_once_more(
    folder: Folder,
) -> None:
    """Its parts are gone, and the store is whole."""
    add(folder, {"s0": [1, 3]})
    slow, fast = WriterRun(2), WriterRun(2)
    waiting = fresh(folder, slow, {"s0": [2, 3]})
    commit.renew(folder, fast, fresh(folder, fast, {"s0": [1, 3]}), before=3)
    assert not slow.left(folder.names())
    with pytest.raises(ParameterError, match="Call it once more"):
        commit.add_generation(folder, slow, waiting, SPELT, None)
    assert sorted(map(sorted, runs_of(Index.read(folder)))) == [[("s0", 1), ("s0", 3)]]


def test_a_list_without_any_index_is_made_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is made while one index replaces another may have neither."""
    names = Folder.names
    add(folder, {"s0": [1]})
    lists = [[n for n in folder.names() if "index" not in n]]
    monkeypatch.setattr(Folder, "names", lambda self: lists.pop() if lists else names(self))
    assert current(folder)[0] == 1
    lists.append([])
    assert Index.read(folder).version == 1


def test_who_appends_comes_after_a_compaction_and_not_the_other_way(folder: Folder) -> None:
    for n in range(3):
        add(folder, {"s0": [n], "s1": [n]})
    run = WriterRun(4)
    waiting = fresh(folder, run, {"s0": [7]})
    compact(folder, 1)
    commit.append(folder, run, lambda now: Index.together([now, waiting]), SPELT, "event")
    index = held(folder, {"s0": [0, 1, 2, 7], "s1": [0, 1, 2]})
    assert sorted(part.added for part in index.files.parts.values()) == [(1, 3), (5, 5)]

    add(folder, {"s0": [8]})
    late = WriterRun(index.version + 1)
    with pytest.raises(ParameterError, match="another call finished there"):
        commit.renew(folder, late, index, before=late.version)
    held(folder, {"s0": [0, 1, 2, 7, 8], "s1": [0, 1, 2]})


def test_who_looks_into_a_part_that_a_compaction_removes_looks_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(folder, {"s0": [1, 5]})
    add(folder, {"s0": [2]})
    meanwhile = Meanwhile(monkeypatch, commit, "without_known", before=True)
    meanwhile.todo = [lambda: compact(folder, 1)]
    add(folder, {"s0": [3]})
    held(folder, {"s0": [1, 2, 3, 5]})
    # A part that is missing, and no compaction came, is damage.
    folder.remove(*Index.read(folder).files.parts)
    with pytest.raises(DecodeError, match="missing"):
        add(folder, {"s0": [4]})


def test_many_generations_are_looked_into_a_few_at_a_time(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a stream begins anew, and all comes again: a process has so many files."""
    open_part = storefiles.PartFiles.reader
    alive: weakref.WeakSet[storefiles.PartReader] = weakref.WeakSet()
    most = [0]

    def reader(files: storefiles.PartFiles, name: str, **options: Any) -> storefiles.PartReader:
        made = open_part(files, name, **options)
        alive.add(made)
        most[0] = max(most[0], len(alive))
        return made

    for n in range(20):
        add(folder, {"s0": [n, n + 100]})
    monkeypatch.setattr(storefiles.PartFiles, "reader", reader)
    add(folder, {"s0": [*range(20), *range(100, 120), 500]})
    assert 2 < most[0] < 10
    assert sum(map(len, runs_of(Index.read(folder)))) == 41


def damaged(path: Path) -> Folder:
    """A store of rounds 1 and 2 of s0, the message of the second one damaged."""
    folder = Folder.of(path, "path")
    add(folder, {"s0": [1, 2]})
    (part,) = path.glob("part-*")
    content = part.read_bytes()
    at = content.index(b"  s000000002")
    part.write_bytes(content[:at] + b"X" + content[at + 1 :])
    return folder


def test_a_damaged_message_is_not_taken_for_another_one(tmp_path: Path) -> None:
    folder = damaged(tmp_path / "store")
    with pytest.raises(DecodeError, match="the messages of batch 0 have another checksum"):
        add(folder, {"s0": [2]})


def test_a_run_that_committed_is_not_abandoned(folder: Folder) -> None:
    add(folder, {"s0": [1]})
    run = WriterRun(2)
    new = fresh(folder, run, {"s0": [2]})
    commit.append(folder, run, lambda now: Index.together([now, new]), SPELT, "event")
    names = sorted(folder.names())
    commit.abandon(folder, run)
    assert sorted(folder.names()) == names
    lost = WriterRun(3)
    fresh(folder, lost, {"s0": [3]})
    commit.abandon(folder, lost)
    assert sorted(folder.names()) == names


def test_a_writer_whose_parts_are_gone_says_so(folder: Folder) -> None:
    run = WriterRun(1)
    new = fresh(folder, run, {"s0": [1]})
    folder.remove(*run.left(folder.names()))
    with pytest.raises(ParameterError, match=r"parts of this one are gone\); .*Call it once more"):
        commit.append(folder, run, lambda now: Index.together([now, new]), SPELT, "event")


def test_compacting_finds_damage(tmp_path: Path) -> None:
    folder = damaged(tmp_path / "store")
    with pytest.raises(DecodeError, match="the messages of batch 0 have another checksum"):
        compact(folder, 1)
