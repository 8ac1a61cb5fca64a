"""Stores of a broadcast, without Spark: which pairs are found, in which order, and what is refused.

Messages spell their subscription and round where a test looks at the plan, and are real where a
broker decides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, SharedSeed, UInt
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching import BroadcastMatch, FormulaMatch
from ccbps.store import files as storefiles
from ccbps.store import plan as storeplan
from ccbps.store.broadcast_plan import plan_rounds
from ccbps.store.folder import Folder
from ccbps.store.index import Index
from ccbps.store.once import refuse_twice
from tests.support import message_stores
from tests.support.effort import examples
from tests.support.message_stores import (
    Rounds,
    Rows,
    about,
    named,
    read_index,
    refused,
    sizes,
    spelt,
    spelt_rows,
    store,
    write_index,
)

SCHEMA = Schema(a=UInt(4))
BOX = BroadcastMatch.box(SCHEMA)
SEED = SharedSeed.generate()
EVENT, INTEREST = BOX.event_bytes, BOX.interest_bytes


def event_store(folder: Path, *parts: list[int] | range, cut: int = 100) -> Index:
    """A store of events that spell their rounds, part by part."""
    return store(folder, "event", [spelt_rows({"": part}, EVENT) for part in parts], BOX, cut)


def interest_store(folder: Path, *parts: Rounds, cut: int = 100) -> Index:
    """A store of interests that spell subscription and round, part by part."""
    return store(folder, "interest", [spelt_rows(part, INTEREST) for part in parts], BOX, cut)


def works(events: Index, interests: Index, *, verify: bool = False) -> Iterator[storeplan.Work]:
    """All pieces of work, as one worker meets them."""
    pieces, parts = plan_rounds(events, interests)
    return message_stores.works((events, interests), pieces, parts.open_piece, verify=verify)


def pairs_of(work: storeplan.Work) -> Iterator[tuple[str, int]]:
    """Subscription and round of each pair, in the order in which the broker gets them."""
    names, seen = named(work), []
    for at, events, interests in work.blocks:
        assert not isinstance(at, slice)
        seen += at.tolist()
        for place, event, interest in zip(at.tolist(), events, interests, strict=True):
            assert bytes(interest) == spelt(*names[place], INTEREST)
            assert bytes(event) == spelt("", names[place][1], EVENT)
            yield names[place]
    assert sorted(seen) == list(range(len(names)))


def common(wanted: Rounds, rounds: list[int]) -> set[tuple[str, int]]:
    return {(s, n) for s, own in wanted.items() for n in own if n in {*rounds}}


numbers = st.one_of(
    message_stores.ROUNDS,
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
    some = {"BATCH_BYTES": EVENT * batch, "PIECE_ROWS": piece, "TOGETHER": together}
    with sizes(local=local, BLOCK_BYTES=EVENT * block, **some):
        edges = [-1, *sorted(set(ends)), 2**63]
        events = event_store(
            tmp_path_factory.mktemp("events"),
            *[[n for n in rounds if low < n <= high] for low, high in pairwise(edges)][::-1],
            cut=cut,
        )
        parts = [dict([*wanted.items()][place::spread]) for place in range(spread)]
        interests = interest_store(tmp_path_factory.mktemp("interests"), *parts, cut=cut)
        found = []
        for work in works(events, interests, verify=verify):
            work = work._replace(blocks=checked(work.blocks, block))
            names = [*pairs_of(work)]
            # All interests of a round together, and rounds in order.
            assert [n for _, n in names] == sorted(n for _, n in names)
            assert len(names) < piece + together + max(piece, len(wanted))
            found += names
    assert len(found) == len(set(found))
    assert set(found) == common(wanted, rounds)


def checked(blocks: Iterator[storeplan.Block], most: int) -> Iterator[storeplan.Block]:
    for block in blocks:
        assert len(block[1]) <= most
        yield block


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
    with sizes(BATCH_BYTES=4 * EVENT, PIECE_ROWS=piece, BLOCK_BYTES=5 * EVENT):
        owners = {n: turns[place % len(turns)] for place, n in enumerate(sorted(rounds))}
        stores = [
            event_store(
                tmp_path_factory.mktemp("events"),
                [n for n in rounds if owners[n] == owner],
                cut=cut,
            )
            for owner in range(4)
        ]
        interests = interest_store(tmp_path_factory.mktemp("interests"), wanted, cut=cut)
        found = []
        refuse_twice(stores)
        for work in works(Index.together(stores), interests):
            names = [*pairs_of(work)]
            events = [n for _, n in names]
            # All interests of an event together, which the broker then prepares once.
            changes = [a for a, b in pairwise([*events, None]) if a != b]
            assert len(changes) == len(set(events))
            found += names
    assert len(found) == len(set(found))
    assert set(found) == common(wanted, rounds)


def dense(subscriptions: int, rounds: range) -> Rounds:
    return {f"s{i:02d}": [*rounds] for i in range(subscriptions)}


def test_a_piece_has_a_range_of_rounds_of_all_subscriptions_in_whatever_parts(
    tmp_path: Path,
) -> None:
    events = event_store(tmp_path / "e", range(60))
    every = [*dense(10, range(60)).items()]
    interests = interest_store(tmp_path / "i", *(dict(every[i::5]) for i in range(5)))
    with sizes(PIECE_ROWS=100):
        found = list(works(events, interests))
    assert [work.counts.tolist() for work in found] == [[10] * 10] * 6
    assert [work.rounds for work in found] == [None] * 6
    assert [work.runs["first"].unique().to_pylist() for work in found] == [
        [n] for n in range(0, 60, 10)
    ]


def test_subscriptions_of_the_same_rounds_share_pieces(tmp_path: Path) -> None:
    """Whatever lies between them in a part."""
    events = event_store(tmp_path / "e", range(400))
    # Not all of them begin in the same round.
    starts = [100 * (i % 4) + i // 8 for i in range(32)]
    rows = {f"s{i:02d}": [*range(start, start + 90)] for i, start in enumerate(starts)}
    interests = interest_store(tmp_path / "i", rows)
    with sizes(PIECE_ROWS=300, TOGETHER=8):
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
    own = [*range(start, start + rounds)]
    events = event_store(tmp_path / "e", range(12 * start + 1))
    interests = interest_store(tmp_path / "i", {f"{i:03x}": own for i in range(subscriptions)})
    with sizes(PIECE_ROWS=1000, TOGETHER=64):
        found = [int(work.counts.sum()) for work in works(events, interests)]
    assert sum(found) == subscriptions * rounds
    assert len(found) <= pieces + 1
    assert max(found) <= 2 * 1000


def test_the_broker_is_handed_all_interests_of_an_event_together(tmp_path: Path) -> None:
    """Real messages, decided in blocks: the answers are those of the predicates."""
    rounds, texts = range(40), [f"a >= {i % 4}" for i in range(24)]
    values = np.random.default_rng(7).integers(0, 4, len(rounds))
    sent = BOX.publisher(SEED).encode({"a": values}, list(rounds))
    both: list[Rows] = [
        {("", n): bytes(sent[n]) for n in some} for some in (rounds[:13], rounds[13:])
    ]
    events = store(tmp_path / "e", "event", both, BOX)
    parts: list[dict[tuple[str, int], bytes]] = [{}, {}, {}]
    for i, text in enumerate(texts):
        own = BOX.subscriber(SEED).encode(text, list(rounds))
        parts[i % 3] |= {(f"s{i:02d}", n): bytes(own[n]) for n in rounds}
    interests = store(tmp_path / "i", "interest", parts, BOX)
    broker, got, runs = BOX.broker(), {}, []
    with sizes(PIECE_ROWS=240):
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


def test_a_worker_holds_the_messages_of_one_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are not mapped are read in batches, which must not add up."""
    events = event_store(tmp_path / "e", [1, 3])
    every = dense(6, range(4))
    interests = interest_store(tmp_path / "i", *({label: every[label]} for label in every))
    made: list[storefiles.PartReader] = []
    open_part = storefiles.PartFiles.reader

    def reader(files: storefiles.PartFiles, *name: str, verify: bool) -> storefiles.PartReader:
        made.append(open_part(files, *name, verify=verify))
        return made[-1]

    monkeypatch.setattr(storefiles.PartFiles, "reader", reader)
    for work in works(events, interests):
        for _ in work.blocks:
            assert all(not len(reader._held[1]) for reader in made)
            assert all("rounds" not in vars(reader) for reader in made)
    assert len(made) == 7


def test_stores_of_nothing_have_no_pieces(tmp_path: Path) -> None:
    events, no_events = event_store(tmp_path / "e", [1]), event_store(tmp_path / "none", [])
    interests = interest_store(tmp_path / "i", dense(2, range(3)))
    nobody = interest_store(tmp_path / "nobody", {})
    assert not list(works(no_events, interests))
    assert not list(works(events, nobody))
    assert not list(works(no_events, nobody))


def test_rows_that_are_no_events_are_named() -> None:
    good = (6, b"abcd")
    assert refused(4, good, (6, b"efgh")) == "round=6 occurs twice; a round has one message"
    assert "round=None: the round is NULL" in refused(4, (None, b"abcd"), good)
    assert "round=-1: the round is negative" in refused(4, (-1, b"abcd"), good)
    assert "round=8: the message is NULL" in refused(4, good, (8, None))
    assert "round=8: the message has 3 bytes" in refused(4, good, (8, b"abc"))


def test_a_round_in_two_batches_or_in_two_parts_is_refused(tmp_path: Path) -> None:
    part = storefiles.PartWriter(Folder.of(tmp_path, "path"), "part", 4)
    batch = pa.array([1, 2]), pa.array([b"abcd"] * 2, pa.binary())
    part.append(*batch)
    part.append(batch[0].slice(1), batch[1].slice(1))  # the same once more
    with pytest.raises(storefiles.Refused, match="round=2 occurs twice"):
        part.append(batch[0].slice(1), pa.array([b"efgh"], pa.binary()))
    assert part.finish()["stop"].to_pylist() == [2]
    for other in (5, 7):
        with pytest.raises(ParameterError, match="nothing was written: a round has two runs"):
            event_store(tmp_path, [1, 7], [other])


def test_stores_of_the_other_kind_are_refused_with_the_reason(tmp_path: Path) -> None:
    place = Folder.of(tmp_path, "events")
    event_store(tmp_path, [1])
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
    events = event_store(tmp_path, [1], [5])
    assert events.subscription.to_pylist() == [None, None]
    write_index(tmp_path, damage(read_index(tmp_path)))
    with pytest.raises(DecodeError, match=rf"index-\d+\.arrow is damaged: .*({cause})"):
        Index.read(Folder.of(tmp_path, "path"), BOX, "event")
