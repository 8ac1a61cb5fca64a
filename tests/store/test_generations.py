"""Stores that grow, shrink and are compacted, without Spark: beside a dictionary of messages."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.errors import DecodeError, ParameterError, RandomnessReuseError
from ccbps.matching import Answers
from ccbps.store import commit, generations, merging, once
from ccbps.store import files as storefiles
from ccbps.store import plan as storeplan
from ccbps.store.folder import Folder
from ccbps.store.index import About, Index, StoreKind
from ccbps.store.manifest import MANIFEST, collected, write_part
from ccbps.store.versions import WriterRun, current

Rounds = dict[str, list[int]]
SPELT: Any = SimpleNamespace(
    fingerprint=bytes(32), event_bytes=12, interest_bytes=12, answers=Answers.PAIRS
)
ROUNDS = st.dictionaries(
    st.sampled_from(["s0", "s1", "s2"]),
    st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True),
    max_size=3,
)


def fresh(
    folder: Folder, run: WriterRun, kind: StoreKind, rounds: Rounds, other: str = ""
) -> Index:
    """Messages that spell their subscription and round, in two parts, not yet committed. A part
    has eight rounds of a subscription, and not the next eight."""
    keys = [(label, n) for label in sorted(rounds) for n in sorted(rounds[label])]
    folder.make("path")
    halves = [[k for k in keys if (int(k[0][1]) + (k[1] >> 3)) % 2 == odd] for odd in (0, 1)]
    batches = [write_part(folder, run.stem, 12, columns(half, other)) for half in halves]
    return collected(folder, About.of(SPELT, kind), pa.Table.from_batches(batches, MANIFEST))


def columns(keys: Sequence[tuple[str, int]], other: str = "") -> list[list[pa.Array]]:
    return [
        [
            pa.array([n for _, n in keys], pa.int64()),
            pa.array([f"{other or label:>4}{n:08d}".encode() for label, n in keys], pa.binary()),
            pa.array([label for label, _ in keys], pa.string()),
        ]
    ]


def add(folder: Folder, kind: StoreKind, rounds: Rounds, other: str = "") -> None:
    run = WriterRun(current(folder)[0] + 1)
    new = fresh(folder, run, kind, rounds, other)

    try:
        generations.add_generation(folder, run, new, SPELT, None)
    except BaseException:
        commit.abandon(folder, run)
        raise


def compact(folder: Folder, kind: StoreKind, tasks: int) -> None:
    now = Index.read(folder, SPELT, kind)
    run = WriterRun(now.version + 1)
    batches = [
        write_part(folder, run.stem, 12, merging.merged_rows(now.files, piece, now.about.floor))
        for piece in merging.plan_merge(now, tasks)["runs"].to_pylist()
    ]
    if batches:  # an empty store stays as it is
        manifest = pa.Table.from_batches(batches, MANIFEST)
        generations.replace_generations(folder, run, now, manifest)


def pairs(events: Index, interests: Index) -> list[str]:
    """What is matched, as it is spelt on both sides."""
    indexes, out = (events, interests), []

    @cache
    def part(side: int, name: str) -> storefiles.PartReader:
        return indexes[side].files.reader(name, verify=True)

    for piece in storeplan.plan(*indexes).to_pylist():
        work = storeplan.open_piece(piece, part)
        labels, numbers = (names.to_pylist() for names in storeplan.pair_names(work))
        texts = [f"{s:>4}{n:08d}" for s, n in zip(labels, numbers, strict=True)]
        for at, *messages in work.blocks:
            for side in messages:
                assert [bytes(m).decode() for m in side] == texts[at]
        out += texts
    return sorted(out)


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


def spelt(keys: set[tuple[str, int]]) -> list[str]:
    return sorted(f"{label:>4}{n:08d}" for label, n in keys)


def keys(rounds: Rounds) -> set[tuple[str, int]]:
    return {(label, n) for label, numbers in rounds.items() for n in numbers}


STEPS = st.lists(
    st.one_of(
        ROUNDS.map(lambda rounds: ("add", rounds)),
        ROUNDS.map(lambda rounds: ("alter", rounds)),
        st.tuples(st.just("drop"), st.integers(0, 31)),
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
    held: set[tuple[str, int]] = set()
    floor = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storefiles, "BATCH_BYTES", 12 * 5)
        patch.setattr(storefiles, "RUN_ROWS", run_rows)
        patch.setattr(storeplan, "PIECE_ROWS", piece)
        patch.setattr(merging, "ROWS_AT_ONCE", at_once)
        add(folder, "event", {})
        add(against, "interest", other)
        for step, argument in steps:
            if step in ("add", "alter"):
                low = {key for key in keys(argument) if key[1] < floor}
                if low - held or (low and step == "alter"):
                    with pytest.raises((ParameterError, RandomnessReuseError)) as refused:
                        add(folder, "event", argument, "else" * (step == "alter"))
                    assert refused.type is RandomnessReuseError or "were dropped" in str(refused)
                    continue
                clash = keys(argument) & held
                if clash and step == "alter":
                    with pytest.raises(RandomnessReuseError) as failure:
                        add(folder, "event", argument, "else")
                    assert any(
                        f"subscription={s!r}, round={n} " in str(failure.value) for s, n in clash
                    )
                    continue
                # What is there already comes once more, and is kept once.
                add(folder, "event", argument)
                held |= keys(argument)
            elif step == "drop":
                floor = max(floor, argument)
                runs = [run for run in runs_of(Index.read(folder)) if max(run)[1] < argument]
                gone = generations.drop_below(folder, SPELT, "event", argument)
                assert gone == sum(map(len, runs))
                held = held.difference(*runs)
            else:
                compact(folder, "event", argument)
                held = {key for key in held if key[1] >= floor}
                assert len(Index.read(folder).parts) <= argument
            events, interests = Index.read(folder), Index.read(against)
            assert pairs(events, interests) == spelt(held & keys(other))
            runs = runs_of(events)
            assert sorted(key for run in runs for key in run) == sorted(held)
            assert {len({label for label, _ in run}) for run in runs} <= {1}
            numbers = [sorted(n for _, n in run) for run in runs]
            assert [[n[0], n[-1]] for n in numbers] == np.c_[events.first, events.last].tolist()
            assert pairs(events, events) == spelt(held)
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storefiles, "RUN_ROWS", least)
        part = storefiles.PartWriter(folder, WriterRun(1).stem, 12)
        for at in range(0, len(rows), batch):
            part.append(*columns(rows[at : at + batch])[0])
        runs = pa.table(part.finish())
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
        add(folder, "interest", rounds)
    add(Folder.of(path / "e", "path"), "event", other)
    several = [Index.read(folder) for folder in folders]
    every = [key for rounds in stores for key in keys(rounds)]
    if len(set(every)) < len(every):
        with pytest.raises(RandomnessReuseError, match="has a message in two stores"):
            once.refuse_twice(several)
        return
    once.refuse_twice(several)
    events = Index.read(Folder.of(path / "e", "path"))
    assert pairs(events, Index.together(several)) == spelt(keys(other) & set(every))


@given(several=st.lists(ROUNDS, max_size=4), floor=st.integers(0, 12))
def test_rounds_are_provided_up_to_the_first_gap(
    several: list[Rounds], floor: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder.of(tmp_path_factory.mktemp("store"), "path")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storefiles, "RUN_ROWS", 3)
        for rounds in several:
            add(folder, "interest", rounds)
    if not several:
        return
    generations.drop_below(folder, SPELT, "interest", floor)
    index = Index.read(folder)
    left, wanted = dict[str, set[int]](), {}
    for label, number in set().union(*runs_of(index)):
        left.setdefault(label, set()).add(number)
    for label, numbers in left.items():
        first = stop = min(numbers)
        while stop in numbers:
            stop += 1
        wanted[label] = range(first, stop)
    assert generations.without_gaps(index) == wanted


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


def test_many_append_at_once_and_none_is_lost(tmp_path: Path) -> None:
    folder = Folder.of(tmp_path / "store", "path")
    rounds = [{"s0": [n], "s1": [n, 100 + n]} for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda one: add(folder, "event", one), rounds))
    index = Index.read(folder, SPELT, "event")
    assert pairs(index, index) == spelt({key for one in rounds for key in keys(one)})
    assert index.version == 12
    assert len(folder.names()) == 1 + len(index.files.parts)
    added = [part.added for part in index.files.parts.values()]
    assert {low for low, high in added if low == high} == set(range(1, 13))


def test_who_is_followed_at_once_has_committed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not taken for one who came too late, and made to append once more."""
    folder, publish = Folder.of(tmp_path / "store", "path"), Folder.publish

    def followed(self: Folder, draft: str, name: str) -> str | None:
        found = publish(self, draft, name)
        monkeypatch.setattr(Folder, "publish", publish)
        add(folder, "event", {"s0": [2]})
        compact(folder, "event", 1)
        return found

    monkeypatch.setattr(Folder, "publish", followed)
    add(folder, "event", {"s0": [1]})
    index = Index.read(folder)
    assert index.version == 3 and pairs(index, index) == spelt({("s0", 1), ("s0", 2)})
    assert len(folder.names()) == 1 + len(index.files.parts)


def test_who_comes_so_late_that_the_name_is_free_again_appends_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, publish = Folder.of(tmp_path / "store", "path"), Folder.publish

    def late(self: Folder, draft: str, name: str) -> str | None:
        monkeypatch.setattr(Folder, "publish", publish)
        for n in (1, 2):
            add(folder, "event", {"s0": [n]})
        assert name not in folder.names()
        return publish(self, draft, name)

    monkeypatch.setattr(Folder, "publish", late)
    add(folder, "event", {"s0": [3]})
    index = Index.read(folder)
    assert index.version == 3
    assert pairs(index, index) == spelt({("s0", n) for n in (1, 2, 3)})


def test_what_a_compaction_is_about_to_remove_is_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, publish = Folder.of(tmp_path / "store", "path"), Folder.publish
    add(folder, "event", {"s0": [1]})
    slow = WriterRun(2)
    waiting = fresh(folder, slow, "event", {"s0": [9]})
    for n in (2, 3):
        add(folder, "event", {"s0": [n]})
    refused = []

    def overtaken(self: Folder, draft: str, name: str) -> str | None:
        found = publish(self, draft, name)
        monkeypatch.setattr(Folder, "publish", publish)
        with pytest.raises(ParameterError, match="Append once more") as error:
            generations.add_generation(folder, slow, waiting, SPELT, None)
        refused.append(error)
        return found

    monkeypatch.setattr(Folder, "publish", overtaken)
    compact(folder, "event", 1)
    assert len(refused) == 1
    commit.abandon(folder, slow)
    add(folder, "event", {"s0": [9]})
    index = Index.read(folder)
    assert pairs(index, index) == spelt({("s0", n) for n in (1, 2, 3, 9)})
    assert len(folder.names()) == 1 + len(index.files.parts)


def test_an_append_that_an_overwrite_overtakes_is_told_to_append_once_more(
    tmp_path: Path,
) -> None:
    """Its parts are gone, and the store is whole."""
    folder = Folder.of(tmp_path / "store", "path")
    add(folder, "event", {"s0": [1, 3]})
    slow, fast = WriterRun(2), WriterRun(2)
    waiting = fresh(folder, slow, "event", {"s0": [2, 3]})
    commit.renew(folder, fast, fresh(folder, fast, "event", {"s0": [1, 3]}), before=3)
    assert not slow.left(folder.names())
    with pytest.raises(ParameterError, match="Append once more"):
        generations.add_generation(folder, slow, waiting, SPELT, None)
    assert sorted(map(sorted, runs_of(Index.read(folder)))) == [[("s0", 1), ("s0", 3)]]


def test_a_list_without_any_index_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is made while one index replaces another may have neither."""
    folder, names = Folder.of(tmp_path / "store", "path"), Folder.names
    add(folder, "event", {"s0": [1]})
    lists = [[n for n in folder.names() if "index" not in n]]
    monkeypatch.setattr(Folder, "names", lambda self: lists.pop() if lists else names(self))
    assert current(folder)[0] == 1
    lists.append([])
    assert Index.read(folder).version == 1


def test_who_appends_comes_after_a_compaction_and_not_the_other_way(tmp_path: Path) -> None:
    folder = Folder.of(tmp_path / "store", "path")
    for n in range(3):
        add(folder, "event", {"s0": [n], "s1": [n]})
    run = WriterRun(4)
    waiting = fresh(folder, run, "event", {"s0": [7]})
    compact(folder, "event", 1)
    commit.append(folder, run, lambda now: Index.together([now, waiting]), SPELT, "event")
    index = Index.read(folder)
    assert pairs(index, index) == spelt(
        {("s0", 7)} | {(s, n) for s in ("s0", "s1") for n in (0, 1, 2)}
    )
    assert sorted(part.added for part in index.files.parts.values()) == [(1, 3), (5, 5)]

    stale = Index.read(folder)
    add(folder, "event", {"s0": [8]})
    late = WriterRun(stale.version + 1)
    with pytest.raises(ParameterError, match="another call finished there"):
        commit.renew(folder, late, stale, before=late.version)
    again = Index.read(folder)
    assert pairs(again, again) == spelt(
        {*keys({"s0": [7, 8]}), *keys({s: [0, 1, 2] for s in ("s0", "s1")})}
    )


def test_who_looks_into_a_part_that_a_compaction_removes_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, compactions = Folder.of(tmp_path / "store", "path"), [1]
    look = generations.without_known
    add(folder, "event", {"s0": [1, 5]})
    add(folder, "event", {"s0": [2]})

    def late(now: Index, new: Index) -> Index:
        if compactions:
            compact(folder, "event", compactions.pop())
        return look(now, new)

    monkeypatch.setattr(generations, "without_known", late)
    add(folder, "event", {"s0": [3]})
    assert sum(Index.read(folder).stop - Index.read(folder).start) == 4
    # A part that is missing, and no compaction came, is damage.
    folder.remove(*Index.read(folder).files.parts)
    with pytest.raises(DecodeError, match="missing"):
        add(folder, "event", {"s0": [4]})


def test_many_generations_are_looked_into_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a stream begins anew, and all comes again: a process has so many files."""
    folder, open_part = Folder.of(tmp_path / "store", "path"), storefiles.PartFiles.reader
    alive: weakref.WeakSet[storefiles.PartReader] = weakref.WeakSet()
    most = [0]

    def reader(files: storefiles.PartFiles, name: str, **options: Any) -> storefiles.PartReader:
        made = open_part(files, name, **options)
        alive.add(made)
        most[0] = max(most[0], len(alive))
        return made

    for n in range(20):
        add(folder, "event", {"s0": [n, n + 100]})
    monkeypatch.setattr(storefiles.PartFiles, "reader", reader)
    add(folder, "event", {"s0": [*range(20), *range(100, 120), 500]})
    assert 2 < most[0] < 10
    assert sum(map(len, runs_of(Index.read(folder)))) == 41


def damaged(path: Path) -> Folder:
    """A store of rounds 1 and 2 of s0, the message of the second one damaged."""
    folder = Folder.of(path, "path")
    add(folder, "event", {"s0": [1, 2]})
    (part,) = path.glob("part-*")
    content = part.read_bytes()
    at = content.index(b"  s000000002")
    part.write_bytes(content[:at] + b"X" + content[at + 1 :])
    return folder


def test_a_damaged_message_is_not_taken_for_another_one(tmp_path: Path) -> None:
    folder = damaged(tmp_path / "store")
    with pytest.raises(DecodeError, match="the messages of batch 0 have another checksum"):
        add(folder, "event", {"s0": [2]})


def test_a_run_that_committed_is_not_abandoned(tmp_path: Path) -> None:
    folder = Folder.of(tmp_path / "store", "path")
    add(folder, "event", {"s0": [1]})
    run = WriterRun(2)
    new = fresh(folder, run, "event", {"s0": [2]})
    commit.append(folder, run, lambda now: Index.together([now, new]), SPELT, "event")
    names = sorted(folder.names())
    commit.abandon(folder, run)
    assert sorted(folder.names()) == names
    lost = WriterRun(3)
    fresh(folder, lost, "event", {"s0": [3]})
    commit.abandon(folder, lost)
    assert sorted(folder.names()) == names


def test_a_writer_whose_parts_are_gone_says_so(tmp_path: Path) -> None:
    folder, run = Folder.of(tmp_path / "store", "path"), WriterRun(1)
    new = fresh(folder, run, "event", {"s0": [1]})
    folder.remove(*run.left(folder.names()))
    with pytest.raises(ParameterError, match=r"parts of this one are gone\); .*Append once more"):
        commit.append(folder, run, lambda now: Index.together([now, new]), SPELT, "event")


def test_compacting_finds_damage(tmp_path: Path) -> None:
    folder = damaged(tmp_path / "store")
    with pytest.raises(DecodeError, match="the messages of batch 0 have another checksum"):
        compact(folder, "event", 1)
