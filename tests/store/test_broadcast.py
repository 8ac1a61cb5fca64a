"""Stores of a broadcast, without Spark: which pairs are found, in which order, and what is refused.

Messages spell their subscription and round where a test looks at the plan, and are real where a
broker decides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from ccbps import Schema, SharedSeed, UInt
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching import BroadcastMatch, FormulaMatch
from ccbps.store import broadcast_plan, index
from ccbps.store import files as storefiles
from ccbps.store import plan as storeplan
from ccbps.store.broadcast_plan import plan_rounds
from ccbps.store.commit import renew
from ccbps.store.folder import Folder
from ccbps.store.index import Index, StoreKind
from ccbps.store.once import refuse_twice
from ccbps.store.versions import WriterRun
from tests.store.test_store import about, read_index, write_index
from tests.support.effort import examples

SCHEMA = Schema(a=UInt(4))
BOX = BroadcastMatch.box(SCHEMA)
SEED = SharedSeed.generate()
Rounds = dict[str, list[int]]
Rows = dict[tuple[str, int], bytes]


def spelt(label: str, number: int, width: int) -> bytes:
    return f"{label:>3}{number:0{width - 3}d}".encode()


def event_store(folder: Path, parts: list[dict[int, bytes]], cut: int = 100) -> Index:
    """A store of events, part by part: messages by round."""
    return _store(folder, "event", [{("", n): m for n, m in part.items()} for part in parts], cut)


def interest_store(folder: Path, parts: list[Rows], cut: int = 100) -> Index:
    """A store of interests, part by part: messages by subscription and round."""
    return _store(folder, "interest", parts, cut)


def _store(folder: Path, kind: StoreKind, parts: list[Rows], cut: int) -> Index:
    place, run, checksums, runs = Folder.of(folder, "path"), WriterRun(1), {}, []
    place.make("path")
    for rows in parts:
        part = storefiles.PartWriter(place, run.stem, index.message_width(BOX, kind))
        keys = sorted(rows)
        for start in range(0, len(keys), cut):
            some = keys[start : start + cut]
            labels = [pa.array([label for label, _ in some])] * (kind == "interest")
            numbers = pa.array([number for _, number in some], pa.int64())
            part.append(numbers, pa.array([rows[key] for key in some], pa.binary()), *labels)
        if found := part.finish():
            runs.append(pa.table([found[f.name] for f in storefiles.RUNS], storefiles.RUNS))
            checksums[part.name] = part.checksums
    table = pa.concat_tables([storefiles.RUNS.empty_table(), *runs])
    made = Index.of(place, index.About.of(BOX, kind), table, checksums)
    renew(place, run, made, before=run.version + 1)
    return Index.read(place, BOX, kind)


def works(events: Index, interests: Index, *, verify: bool = False) -> Iterator[storeplan.Work]:
    """All pieces of work, as one worker meets them."""
    table, parts = plan_rounds(events, interests)

    @cache
    def part(side: int, name: str) -> storefiles.PartReader:
        return (events, interests)[side].files.reader(name, verify=verify)

    for piece in table.to_pylist():
        yield parts.open_piece(piece, part)


def named(work: storeplan.Work) -> list[tuple[str, int]]:
    labels, numbers = (names.to_pylist() for names in storeplan.pair_names(work))
    return list(zip(labels, numbers, strict=True))


@contextmanager
def small(**sizes: int) -> Iterator[None]:
    """Pieces, blocks and batches of few rows."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            module = {"BATCH_BYTES": storefiles, "TOGETHER": broadcast_plan}.get(name, storeplan)
            patch.setattr(module, name, size)
        yield


numbers = st.one_of(
    st.tuples(st.integers(0, 9), st.integers(1, 30)).map(lambda x: list(range(x[0], sum(x)))),
    st.lists(st.integers(0, 40), min_size=1, unique=True),
    st.lists(st.sampled_from([0, 7, 2**40, 2**62]), min_size=1, unique=True),
)


@settings(max_examples=examples(300))
@given(
    rounds=numbers,
    ends=st.lists(st.integers(0, 45), max_size=3),
    wanted=st.dictionaries(st.sampled_from([f"s{i}" for i in range(7)]), numbers),
    spread=st.integers(1, 4),
    cut=st.integers(1, 9),
    batch=st.integers(1, 9),
    piece=st.integers(1, 40),
    together=st.integers(1, 5),
    block=st.integers(1, 9),
    local=st.booleans(),
    verify=st.booleans(),
)
def test_every_layout_finds_every_pair_round_by_round(
    rounds: list[int],
    ends: list[int],
    wanted: Rounds,
    spread: int,
    cut: int,
    batch: int,
    piece: int,
    together: int,
    block: int,
    local: bool,
    verify: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    width = BOX.event_bytes
    sizes = {"BATCH_BYTES": width * batch, "PIECE_ROWS": piece, "BLOCK_BYTES": width * block}
    with small(TOGETHER=together, **sizes), pytest.MonkeyPatch.context() as patch:
        if not local:  # a file system that cannot map files
            remote = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
            patch.setattr(Folder, "_found", property(lambda self: (remote, self.path)))
        edges = [-1, *sorted(set(ends)), 2**63]
        events = event_store(
            tmp_path_factory.mktemp("events"),
            [
                {n: spelt("", n, BOX.event_bytes) for n in rounds if low < n <= high}
                for low, high in pairwise(edges)
            ][::-1],
            cut,
        )
        parts: list[Rows] = [{} for _ in range(spread)]
        for place, (label, own) in enumerate(wanted.items()):
            parts[place % spread] |= {(label, n): spelt(label, n, BOX.interest_bytes) for n in own}
        interests = interest_store(tmp_path_factory.mktemp("interests"), parts, cut)
        found = []
        for work in works(events, interests, verify=verify):
            names, seen, sent = named(work), [], []
            for at, event_rows, interest_rows in work.blocks:
                assert len(event_rows) <= block
                assert not isinstance(at, slice)
                seen += at.tolist()
                sent += [int(bytes(row)) for row in event_rows]
                for place, row in zip(at.tolist(), interest_rows, strict=True):
                    assert bytes(row) == spelt(*names[place], BOX.interest_bytes)
            # Each pair once, with the event of its round, and all those of a round together.
            assert sorted(seen) == list(range(len(names)))
            assert sent == [names[place][1] for place in seen]
            assert sent == sorted(sent)
            assert len(names) < piece + together + max(piece, len(wanted))
            found += names
    assert len(found) == len(set(found))
    assert set(found) == {(s, n) for s, own in wanted.items() for n in own if n in set(rounds)}


@settings(max_examples=examples(100))
@given(
    rounds=numbers,
    turns=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    wanted=st.dictionaries(st.sampled_from([f"s{i}" for i in range(5)]), numbers),
    cut=st.integers(1, 9),
    piece=st.integers(1, 40),
)
def test_generations_whose_rounds_alternate_find_every_pair(
    rounds: list[int],
    turns: list[int],
    wanted: Rounds,
    cut: int,
    piece: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As a ledger allots rounds to several jobs."""
    width = BOX.event_bytes
    with small(BATCH_BYTES=4 * width, PIECE_ROWS=piece, BLOCK_BYTES=5 * width):
        owners = {n: turns[place % len(turns)] for place, n in enumerate(sorted(rounds))}
        stores = [
            event_store(
                tmp_path_factory.mktemp("events"),
                [{n: spelt("", n, width) for n in rounds if owners[n] == owner}],
                cut,
            )
            for owner in range(4)
        ]
        rows = {(s, n): spelt(s, n, BOX.interest_bytes) for s, own in wanted.items() for n in own}
        interests = interest_store(tmp_path_factory.mktemp("interests"), [rows], cut)
        found = []
        refuse_twice(stores)
        for work in works(Index.together(stores), interests):
            names, events = named(work), []
            for at, event_rows, interest_rows in work.blocks:
                for place, event, row in zip(at.tolist(), event_rows, interest_rows, strict=True):
                    assert bytes(row) == spelt(*names[place], BOX.interest_bytes)
                    assert int(bytes(event)) == names[place][1]
                    events.append(names[place][1])
            # All interests of an event together, which the broker then prepares once.
            changes = [a for a, b in pairwise([*events, None]) if a != b]
            assert len(changes) == len(set(events))
            found += names
    assert len(found) == len(set(found))
    assert set(found) == {(s, n) for s, own in wanted.items() for n in own if n in set(rounds)}


def dense(subscriptions: int, rounds: range, width: int) -> Rows:
    return {
        (f"s{i:02d}", n): spelt(f"s{i:02d}", n, width) for i in range(subscriptions) for n in rounds
    }


def test_a_piece_has_a_range_of_rounds_of_all_subscriptions_in_whatever_parts(
    tmp_path: Path,
) -> None:
    events = event_store(tmp_path / "e", [{n: spelt("", n, BOX.event_bytes) for n in range(60)}])
    rows = dense(10, range(60), BOX.interest_bytes)
    spread = [{k: m for k, m in rows.items() if int(k[0][1:]) % 5 == i} for i in range(5)]
    interests = interest_store(tmp_path / "i", spread)
    with small(PIECE_ROWS=100):
        found = list(works(events, interests))
    assert [work.counts.tolist() for work in found] == [[10] * 10] * 6
    assert [work.rounds for work in found] == [None] * 6
    assert [work.runs["first"].unique().to_pylist() for work in found] == [
        [n] for n in range(0, 60, 10)
    ]


def test_subscriptions_of_the_same_rounds_share_pieces(tmp_path: Path) -> None:
    """Whatever lies between them in a part."""
    events = event_store(tmp_path / "e", [{n: spelt("", n, BOX.event_bytes) for n in range(400)}])
    rows: Rows = {}
    for i in range(32):
        start = 100 * (i % 4) + i // 8  # not all of them begin in the same round
        rows |= {
            (f"s{i:02d}", n): spelt(f"s{i:02d}", n, BOX.interest_bytes)
            for n in range(start, start + 90)
        }
    interests = interest_store(tmp_path / "i", [rows])
    with small(PIECE_ROWS=300, TOGETHER=8):
        found = list(works(events, interests))
    assert len(found) == 12
    for work in found:
        assert len({int(label[1:]) % 4 for label, _ in named(work)}) == 1


@pytest.mark.parametrize(
    ("subscriptions", "rounds", "pieces"), [(10, 1000, 10), (1000, 1, 10), (1, 3, 1)]
)
def test_pieces_are_about_equal_whatever_there_is_more_of(
    tmp_path: Path, subscriptions: int, rounds: int, pieces: int
) -> None:
    """As many events, and few subscriptions in the middle; or one event for all."""
    start = 5000 if rounds > 1 else 0
    rows = {
        (f"{i:03x}", n): spelt(f"{i:03x}", n, BOX.interest_bytes)
        for i in range(subscriptions)
        for n in range(start, start + rounds)
    }
    events = event_store(
        tmp_path / "e", [{n: spelt("", n, BOX.event_bytes) for n in range(12 * start + 1)}]
    )
    interests = interest_store(tmp_path / "i", [rows])
    with small(PIECE_ROWS=1000, TOGETHER=64):
        found = list(works(events, interests))
    assert sum(int(work.counts.sum()) for work in found) == subscriptions * rounds
    assert len(found) <= pieces + 1
    assert max(int(work.counts.sum()) for work in found) <= 2 * 1000


def test_the_broker_is_handed_all_interests_of_an_event_together(tmp_path: Path) -> None:
    """Real messages, decided in blocks: the answers are those of the predicates."""
    rounds, texts = range(40), [f"a >= {i % 4}" for i in range(24)]
    values = np.random.default_rng(7).integers(0, 4, len(rounds))
    sent = BOX.publisher(SEED).encode({"a": values}, list(rounds))
    events = event_store(
        tmp_path / "e",
        [{n: bytes(sent[n]) for n in rounds[:13]}, {n: bytes(sent[n]) for n in rounds[13:]}],
    )
    parts: list[Rows] = [{}, {}, {}]
    for i, text in enumerate(texts):
        own = BOX.subscriber(SEED).encode(text, list(rounds))
        parts[i % 3] |= {(f"s{i:02d}", n): bytes(own[n]) for n in rounds}
    interests = interest_store(tmp_path / "i", parts)
    broker, got, runs = BOX.broker(), {}, []
    with small(PIECE_ROWS=240):
        for work in works(events, interests, verify=True):
            answers = np.empty(int(work.counts.sum()), dtype=np.bool_)
            for at, event_rows, interest_rows in work.blocks:
                answers[at] = broker.match(event_rows, interest_rows)
                new = (event_rows[1:] != event_rows[:-1]).any(axis=1)
                runs.append(len(event_rows) / (1 + int(new.sum())))
            got |= dict(zip(named(work), answers.tolist(), strict=True))
    assert runs == [len(texts)] * 4
    assert got == {
        (f"s{i:02d}", n): bool(values[n] >= i % 4) for i in range(len(texts)) for n in rounds
    }


def test_a_worker_holds_the_messages_of_one_part_at_a_time(tmp_path: Path) -> None:
    """Files that are not mapped are read in batches, which must not add up."""
    events = event_store(tmp_path / "e", [{n: spelt("", n, BOX.event_bytes) for n in (1, 3)}])
    rows = dense(6, range(4), BOX.interest_bytes)
    spread = [{k: m for k, m in rows.items() if k[0] == f"s{i:02d}"} for i in range(6)]
    interests = interest_store(tmp_path / "i", spread)
    made: list[storefiles.PartReader] = []
    table, parts = plan_rounds(events, interests)

    @cache
    def part(side: int, name: str) -> storefiles.PartReader:
        made.append((events, interests)[side].files.reader(name))
        return made[-1]

    for piece in table.to_pylist():
        for _ in parts.open_piece(piece, part).blocks:
            assert all(not len(reader._held[1]) for reader in made)
            assert all("rounds" not in vars(reader) for reader in made)
    assert len(made) == 7


def test_stores_of_nothing_have_no_pieces(tmp_path: Path) -> None:
    rows = dense(2, range(3), BOX.interest_bytes)
    events = event_store(tmp_path / "e", [{1: spelt("", 1, BOX.event_bytes)}])
    nothing = event_store(tmp_path / "none", [{}]), interest_store(tmp_path / "nobody", [{}])
    interests = interest_store(tmp_path / "i", [rows])
    assert not list(works(nothing[0], interests))
    assert not list(works(events, nothing[1]))
    assert not list(works(*nothing))


def refused(*rows: tuple[int | None, bytes | None]) -> str:
    part = storefiles.PartWriter(Folder.of("/nowhere", "path"), "part", 4)
    columns = zip(*rows, strict=True)
    with pytest.raises(storefiles.Refused) as failure:
        part.append(
            *(pa.array(c, kind) for c, kind in zip(columns, (pa.int64(), pa.binary()), strict=True))
        )
    return str(failure.value)


def test_rows_that_are_no_events_are_named() -> None:
    good = (6, b"abcd")
    assert refused(good, (6, b"efgh")) == "round=6 occurs twice; a round has one message"
    assert "round=None: the round is NULL" in refused((None, b"abcd"), good)
    assert "round=-1: the round is negative" in refused((-1, b"abcd"), good)
    assert "round=8: the message is NULL" in refused(good, (8, None))
    assert "round=8: the message has 3 bytes" in refused(good, (8, b"abc"))


def test_a_round_in_two_batches_or_in_two_parts_is_refused(tmp_path: Path) -> None:
    part = storefiles.PartWriter(Folder.of(tmp_path, "path"), "part", 4)
    batch = pa.array([1, 2]), pa.array([b"abcd"] * 2, pa.binary())
    part.append(*batch)
    part.append(batch[0].slice(1), batch[1].slice(1))  # the same once more
    with pytest.raises(storefiles.Refused, match="round=2 occurs twice"):
        part.append(batch[0].slice(1), pa.array([b"efgh"], pa.binary()))
    assert part.finish()["stop"].to_pylist() == [2]
    message = spelt("", 5, BOX.event_bytes)
    with pytest.raises(ParameterError, match="nothing was written: a round has two runs"):
        event_store(tmp_path, [{1: message, 7: message}, {5: message}])


def test_stores_of_the_other_kind_are_refused_with_the_reason(tmp_path: Path) -> None:
    place = Folder.of(tmp_path, "events")
    event_store(tmp_path, [{1: spelt("", 1, BOX.event_bytes)}])
    with pytest.raises(ParameterError, match="holds messages of another matcher"):
        Index.read(place, FormulaMatch.box(SCHEMA), "event")
    with pytest.raises(ParameterError, match="holds event messages, not interest messages"):
        Index.read(place, BOX, "interest")


def with_labels(table: pa.Table) -> pa.Table:
    return table.set_column(1, "subscription", pa.array(["s0", "s1"]))


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (with_labels, "events of a broadcast have a subscription"),
        (lambda t: t.set_column(4, "first_round", pa.nulls(2, pa.int64())), "is missing"),
        (lambda t: about(t, rounds=False), "a value is missing"),
        (lambda t: about(with_labels(t), rounds=False), "not of this matcher.s format"),
    ],
)
def test_a_damaged_index_is_named(
    tmp_path: Path, damage: Callable[[pa.Table], pa.Table], cause: str
) -> None:
    rows = {n: spelt("", n, BOX.event_bytes) for n in (1, 5)}
    events = event_store(tmp_path, [{1: rows[1]}, {5: rows[5]}])
    assert events.subscription.to_pylist() == [None, None]
    write_index(tmp_path, damage(read_index(tmp_path)))
    with pytest.raises(DecodeError, match=rf"index-\d+\.arrow is damaged: .*({cause})"):
        Index.read(Folder.of(tmp_path, "path"), BOX, "event")
