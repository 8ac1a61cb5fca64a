"""Rounds on disk: the same content passes, other content does not, whoever asks and whenever."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import OneTimePad, Schema, SeedRing, SharedSeed, UInt
from ccbps.delivery import PayloadOpener, PayloadSealer
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import LedgerError, ParameterError, RandomnessReuseError
from ccbps.keys.randomness import Marks
from ccbps.matching import BranchingMatch, BroadcastMatch, FormulaMatch, Matcher, OFSGPMatch
from ccbps.matching.contract.roles import event_content
from ccbps.rounds import disk_ledger as ledger
from ccbps.rounds import ledger_file
from ccbps.rounds.disk_ledger import DiskLedger
from tests.support.effort import examples

LAST = 2**64 - 1
SEED = SharedSeed(bytes(range(32)))
SCHEMA = Schema(a=UInt(4), b=UInt(3))
BOX = BranchingMatch.box(SCHEMA)
ONE, OTHER = [{"a": 3, "b": 5}], [{"a": 4, "b": 5}]
FORK = multiprocessing.get_context("fork")


def uint64(rounds: Any) -> NDArray[np.uint64]:
    return np.array(rounds, dtype=np.uint64)


def column(contents: list[int]) -> NDArray[np.uint8]:
    return np.array(contents, dtype=np.uint8).reshape(-1, 1)


def rows_of(path: Path) -> list[tuple[bytes, int, bytes]]:
    with sqlite3.connect(path) as file:
        return file.execute("SELECT stream, first, tags FROM runs ORDER BY 1, 2").fetchall()


def stored(path: Path) -> set[tuple[bytes, int]]:
    """Every (stream, round) of the file; none twice."""
    found = [
        (stream, first + i + 2**63)
        for stream, first, tags in rows_of(path)
        for i in range(len(tags) // 16)
    ]
    assert len(set(found)) == len(found)
    return set(found)


# -- what passes and what does not --------------------------------------------------------------


def test_the_same_event_passes_again_and_gives_the_same_message(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    first = BOX.publisher(SEED, ledger=path).encode(ONE, [7])
    role = BOX.publisher(SEED, ledger=str(path))
    for _ in range(2):
        assert np.array_equal(role.encode(ONE, [7]), first)
    assert len(stored(path)) == 1


@pytest.mark.parametrize("restarted", [True, False])
def test_another_event_is_refused_before_anything_is_written(
    tmp_path: Path, restarted: bool
) -> None:
    path = tmp_path / "rounds"
    role = BOX.publisher(SEED, ledger=path)
    role.encode(ONE, [7])
    if restarted:
        role = BOX.publisher(SEED, ledger=path)
    out = np.full((2, BOX.event_bytes), 99, dtype=np.uint8)
    with pytest.raises(RandomnessReuseError, match=r"round 7 was used for something else, says /"):
        role.encode(OTHER * 2, [8, 7], out=out)
    assert (out == 99).all()
    assert {number for _, number in stored(path)} == {7}
    role.encode(ONE, [8])  # the refused call claimed nothing


def test_a_predicate_is_what_it_means_not_how_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    first = BOX.subscriber(SEED, ledger=path).encode("a < 3", [0, 1])
    again = BOX.subscriber(SEED, ledger=path)
    assert np.array_equal(again.encode("a<=2", [1, 0]), first[::-1])
    with pytest.raises(RandomnessReuseError, match="round 1 was used for something else"):
        again.encode(["a < 3", "a < 4"], [0, 1])


def test_template_constants_are_bound(tmp_path: Path) -> None:
    template = BranchingMatch(SCHEMA, "a < :limit")
    template.subscriber(SEED, ledger=tmp_path / "rounds").encode({"limit": 3}, [0])
    again = template.subscriber(SEED, ledger=tmp_path / "rounds")
    again.encode({"limit": 3}, [0])
    with pytest.raises(RandomnessReuseError):
        again.encode({"limit": 4}, [0])


def test_group_programs_and_messages_in_pieces_are_bound(tmp_path: Path) -> None:
    matcher, path = OFSGPMatch(SCHEMA, depth=2), tmp_path / "rounds"
    whole = matcher.publisher(SEED, ledger=path).encode(ONE, [0])
    pieces = list(matcher.publisher(SEED, ledger=path).encode_chunks(ONE, 0))
    assert b"".join(map(bytes, pieces)) == whole.tobytes()
    with pytest.raises(RandomnessReuseError):
        matcher.publisher(SEED, ledger=path).encode_chunks(OTHER, 0)
    path = tmp_path / "the subscriber's"
    whole = matcher.subscriber(SEED, ledger=path).encode("a < 8", [0])
    pieces = list(matcher.subscriber(SEED, ledger=path).encode_chunks("a < 8", 0))
    assert b"".join(map(bytes, pieces)) == whole.tobytes()
    with pytest.raises(RandomnessReuseError):
        matcher.subscriber(SEED, ledger=path).encode_chunks("a >= 8", 0)


def test_matchers_and_seeds_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    template = BranchingMatch(SCHEMA, "a < :limit")
    for seed in (SEED, SharedSeed(bytes(32)), SEED.pair("alice")):
        BOX.publisher(seed, ledger=path).encode(ONE, [0])
        template.subscriber(seed, ledger=path).encode({"limit": 3}, [0])
    assert len(stored(path)) == 6


# -- one seed, one direction --------------------------------------------------------------------


def test_two_parties_who_publish_under_one_seed_are_refused(tmp_path: Path) -> None:
    """As they would: each publishes to the other, and subscribes to what the other publishes."""
    names = ("ann", "bob")
    ann, bob = (BOX.publisher(SEED, ledger=tmp_path / name) for name in names)
    # Without a ledger, the broker would see where two events of one round differ.
    ann.encode(ONE, [0])
    bob.encode(OTHER, [0])
    for name in names:
        with pytest.raises(RandomnessReuseError, match=r"as the publisher under this seed and"):
            BOX.subscriber(SEED, ledger=tmp_path / name).encode("a < 3", [0])
    # A seed for each direction.
    for place, name in enumerate(names):
        seeds = [SEED.pair(f"{publishing} publishes") for publishing in names]
        BOX.publisher(seeds[place], ledger=tmp_path / name).encode(ONE, [0])
        BOX.subscriber(seeds[1 - place], ledger=tmp_path / name).encode("a < 3", [0])


@pytest.mark.parametrize("matcher", [BOX, BroadcastMatch.box(SCHEMA)], ids=["pairs", "broadcast"])
def test_a_subscriber_who_publishes_under_its_seed_is_refused(
    tmp_path: Path, matcher: Matcher
) -> None:
    path = tmp_path / "rounds"
    subscriber = matcher.subscriber(SEED, ledger=path)
    subscriber.encode("a < 3", [0])
    for restarted in range(2):
        publisher = matcher.publisher(SEED, ledger=path)
        with pytest.raises(RandomnessReuseError) as refusal:
            publisher.encode(ONE, [1 + restarted])
        assert "as the subscriber under this seed and matcher" in str(refusal.value)
        assert "seed.pair('ann publishes')" in str(refusal.value)
        assert str(path) in str(refusal.value)
    assert len(stored(path)) == 1 + (matcher is not BOX)  # and the side of a broadcast
    subscriber.encode("a < 3", [1])
    matcher.publisher(SEED, ledger=tmp_path / "the publisher's").encode(ONE, [0])


def test_labels_hide_no_side_of_a_broadcast(tmp_path: Path) -> None:
    matcher = BroadcastMatch.box(SCHEMA)
    for name, labels in (("first", [["ann"], ["bob"]]), ("second", [["ann"], None])):
        path = tmp_path / name
        for place, pairs in enumerate(labels):
            matcher.subscriber(SEED, ledger=path).encode("a < 3", [place], pairs=pairs)
        with pytest.raises(RandomnessReuseError, match="as the subscriber under this seed"):
            matcher.publisher(SEED, ledger=path).encode(ONE, [5])
    path = tmp_path / "publisher's"
    matcher.publisher(SEED, ledger=path).encode(ONE, [0])
    subscriber = matcher.subscriber(SEED, ledger=path)
    for _ in range(2):
        with pytest.raises(RandomnessReuseError, match="as the publisher under this seed"):
            subscriber.encode("a < 3", [0], pairs=["ann"])
    matcher.publisher(SEED, ledger=path).encode(ONE, [1])


def test_the_pair_whose_other_side_a_ledger_knows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    BOX.subscriber(SEED.pair("alice"), ledger=path).encode("a < 3", [0])
    publisher = BOX.publisher(SEED, ledger=path)
    publisher.encode(ONE, [0], pairs=["bob"])
    with pytest.raises(RandomnessReuseError, match=r"^pair 'alice': the ledger "):
        publisher.encode(ONE * 2, [1, 1], pairs=["bob", "alice"])
    publisher.encode(ONE * 2, [1, 1], pairs=["bob", "carol"])
    deferred = FormulaMatch.box(SCHEMA).deferred(SharedSeed.generate(), SEED, ledger=path)
    deferred.prepare([0], pairs=["alice"])
    with pytest.raises(RandomnessReuseError, match="as the publisher under this seed"):
        FormulaMatch.box(SCHEMA).subscriber(SEED.pair("alice"), ledger=path).encode("a < 3", [1])


def test_a_pair_is_the_same_under_master_ring_and_its_own_seed(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    BOX.publisher(SEED, ledger=path).encode(ONE, [4], pairs=["alice"])
    same: list[tuple[Any, Any]] = [
        (SeedRing.of(SEED, ["bob", "alice"]), ["alice"]),
        (SEED.pair("alice"), None),
    ]
    for seed, pairs in same:
        role = BOX.publisher(seed, ledger=path)
        role.encode(ONE, [4], pairs=pairs)
        with pytest.raises(RandomnessReuseError, match="round 4 was used"):
            role.encode(OTHER, [4], pairs=pairs)
    with pytest.raises(RandomnessReuseError, match="pair 'alice': round 4 was used for something"):
        BOX.publisher(SEED, ledger=path).encode(OTHER * 2, [4, 4], pairs=["bob", "alice"])


def test_a_round_twice_in_a_batch_is_refused(tmp_path: Path) -> None:
    role = BOX.publisher(SEED, ledger=tmp_path / "rounds")
    with pytest.raises(RandomnessReuseError, match="round 5 occurs more than once in this batch"):
        role.encode(ONE * 3, [5, 6, 5])
    assert role.encode([], []).shape == (0, BOX.event_bytes)
    assert stored(tmp_path / "rounds") == set()


numbers = st.integers(0, 12) | st.integers(LAST - 6, LAST)
claims = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), numbers, st.integers(0, 1)), max_size=12),
    max_size=8,
)


@settings(max_examples=examples(25))
@given(batches=claims, width=st.sampled_from([1, 2, 3, 48]))
def test_ledger_answers_as_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[str, int, int]]],
    width: int,
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "rounds"
    used: dict[tuple[str, int], int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "ROW_ROUNDS", width)
        for batch in batches:
            pairs = DictionaryColumn(
                list("dbca"), np.array(["dbca".index(pair) for pair, *_ in batch], np.intp)
            )
            rounds = uint64([number for _, number, _ in batch])
            content = column([value for *_, value in batch])
            keys = [(pair, number) for pair, number, _ in batch]
            wrong = len(set(keys)) < len(keys) or any(
                used.get((pair, number), value) != value for pair, number, value in batch
            )
            kept = DiskLedger(path)
            try:
                if batch:
                    kept.claim(rounds, SEED.marks(b"p", rounds, pairs, content), pairs)
            except RandomnessReuseError:
                assert wrong
            else:
                assert not wrong
                used |= {(pair, number): value for pair, number, value in batch}
    if used:
        assert len(stored(path)) == len(used)


def test_consecutive_rounds_are_stored_together(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    kept, count = DiskLedger(path), 20_000
    rounds = uint64(range(count))
    tagged = SEED.marks(b"p", rounds, None, column([0] * count))
    kept.claim(rounds, tagged)
    assert path.stat().st_size < 19 * count
    size = path.stat().st_size
    kept.claim(rounds[::-1], Marks(tagged.names, None, tagged.tags[::-1].copy()))
    assert path.stat().st_size == size
    single = DiskLedger(tmp_path / "single")
    for number in range(20):
        at = slice(number, number + 1)
        single.claim(rounds[at], Marks(tagged.names, None, tagged.tags[at]))
    assert len(rows_of(tmp_path / "single")) == 1


# -- who reads the file -------------------------------------------------------------------------


def test_the_file_tells_no_content_without_the_seed(tmp_path: Path) -> None:
    path, rounds = tmp_path / "rounds", uint64(range(200))
    pairs = ["zacharias"] * 200
    BOX.publisher(SEED, ledger=path).encode(ONE * 200, rounds, pairs=pairs)
    assert path.stat().st_mode & 0o077 == 0
    assert b"zacharias" not in path.read_bytes()
    tags = {tags[i : i + 16] for *_, tags in rows_of(path) for i in range(0, len(tags), 16)}
    assert len(tags) == 200  # equal events do not look equal

    def guessed(master: SharedSeed) -> set[bytes]:
        """What a reader finds who tries every event, with this seed for the right one."""
        zero, label = uint64([0]), DictionaryColumn(pairs[:1], np.zeros(1, np.intp))
        records = [{"a": a, "b": b} for a in range(16) for b in range(8)]
        codes = [event_content(SCHEMA.encode([record])) for record in records]
        purpose = b"publisher " + BOX.digest
        return {master.marks(purpose, zero, label, code).tags.tobytes() for code in codes} & tags

    assert guessed(SharedSeed(bytes(32))) == set()
    assert len(guessed(SEED)) == 1  # the check would see a hit


# -- several processes --------------------------------------------------------------------------


def child(function: Callable[..., None], *arguments: Any) -> Any:
    process = FORK.Process(target=function, args=arguments)
    process.start()
    return process


def test_two_processes_at_once_share_no_round(tmp_path: Path) -> None:
    path, count, size = tmp_path / "rounds", 15, 25
    role = BOX.publisher(SEED, ledger=path)  # a ledger on disk outlives a fork
    together, queues = FORK.Barrier(2), [FORK.SimpleQueue(), FORK.SimpleQueue()]

    def use(which: int) -> None:
        won = []
        for block in range(count):
            together.wait()
            try:
                role.encode((ONE, OTHER)[which] * size, range(block * size, (block + 1) * size))
            except RandomnessReuseError:
                continue
            won.append(block)
        queues[which].put(won)

    processes = [child(use, which) for which in (0, 1)]
    mine, theirs = (queue.get() for queue in queues)
    for process in processes:
        process.join()
    assert sorted(mine + theirs) == list(range(count))
    assert len(stored(path)) == count * size


def test_what_was_encoded_before_a_kill_is_known_after_it(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    role, queue = BOX.publisher(SEED, ledger=path), FORK.SimpleQueue()

    def encode() -> None:
        for start in range(0, 10**6, 10):
            queue.put((start, role.encode(ONE * 10, range(start, start + 10)).tobytes()))

    process = child(encode)
    sent = [queue.get() for _ in range(15)]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    rounds = {number for _, number in stored(path)}
    assert rounds >= set(range(150))
    assert len(rounds) % 10 == 0
    for start, messages in sent:
        again = role.encode(ONE * 10, range(start, start + 10))
        assert again.tobytes() == messages
        with pytest.raises(RandomnessReuseError):
            role.encode(OTHER, [start + 9])


def test_a_kill_within_a_claim_undoes_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count = tmp_path / "rounds", 50_000
    kept = DiskLedger(path)
    rounds = uint64(range(0, 3 * count, 3))  # more than SQLite keeps in memory
    tagged = SEED.marks(b"p", rounds, None, column([0] * count))
    store = ledger._store

    def die(*arguments: Any) -> None:
        store(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    empty = path.stat().st_size
    monkeypatch.setattr(ledger, "_store", die)
    process = child(kept.claim, rounds, tagged)
    process.join()
    monkeypatch.undo()
    assert process.exitcode == -signal.SIGKILL
    assert path.stat().st_size > 10 * empty  # it had begun to write
    kept.claim(rounds[:1], SEED.marks(b"p", rounds[:1], None, column([1])))
    assert {number for _, number in stored(path)} == {0}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_waits_for_the_claims_of_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role, queue = BOX.publisher(SEED, ledger=tmp_path / "rounds"), FORK.SimpleQueue()
    monkeypatch.setattr(ledger_file, "WAIT_SECONDS", 0.1)
    within, store = threading.Event(), ledger._store

    def slow(*arguments: Any) -> None:
        within.set()
        time.sleep(0.2)  # the fork comes now
        store(*arguments)

    def encode() -> None:
        monkeypatch.setattr(ledger, "_store", store)
        try:
            queue.put(role.encode(OTHER, [1]).tobytes())
        except LedgerError as error:
            queue.put(str(error))

    monkeypatch.setattr(ledger, "_store", slow)
    thread = threading.Thread(target=role.encode, args=(ONE, [0]))
    thread.start()
    within.wait()
    process = child(encode)
    answer = queue.get()
    process.join()
    thread.join()
    assert answer == BOX.publisher(SEED).encode(OTHER, [1]).tobytes()
    assert {number for _, number in stored(tmp_path / "rounds")} == {0, 1}


def test_a_claim_waits_for_another_and_then_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rounds"
    role = BOX.publisher(SEED, ledger=path)
    monkeypatch.setattr(ledger_file, "WAIT_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="nothing was encoded: database is locked"):
        role.encode(ONE, [0])
    other.close()
    role.encode(ONE, [0])


# -- files that are no ledger -------------------------------------------------------------------


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "text", tmp_path / "database"
    text.write_text("not a ledger at all, and longer than a header is" * 10)
    with sqlite3.connect(database) as file:
        file.execute("CREATE TABLE mine (x)")
    for path, why in ((text, "file is not a database"), (database, "is not a ledger of rounds")):
        before = path.read_bytes()
        with pytest.raises(LedgerError, match=why):
            BOX.publisher(SEED, ledger=path)
        assert path.read_bytes() == before
    with pytest.raises(LedgerError, match=r"no ledger can be made at .*: No such file"):
        BOX.publisher(SEED, ledger=tmp_path / "nowhere" / "rounds")


@pytest.mark.parametrize("text", [SEED.to_text(), "x", " " * 600])
def test_short_files_are_not_written_over(tmp_path: Path, text: str) -> None:
    path = tmp_path / "publisher.seed"
    path.write_text(text)
    with pytest.raises(LedgerError, match="is not a"):
        BOX.publisher(SEED, ledger=path)
    assert path.read_text() == text


def test_a_damaged_ledger_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    role = BOX.publisher(SEED, ledger=path)
    role.encode(ONE, [0])
    with sqlite3.connect(path) as file:
        file.execute("UPDATE runs SET tags = substr(tags, 2)")
    with pytest.raises(LedgerError, match="is damaged, so nothing was encoded"):
        role.encode(ONE, [0])


@pytest.mark.parametrize("path", [5, b"rounds", True, "a\0b"])
def test_a_ledger_is_named_by_its_path(path: Any) -> None:
    with pytest.raises(ParameterError, match="ledger must be the path of a file, got"):
        BOX.publisher(SEED, ledger=path)


def test_a_ledger_that_is_lost_is_not_made_anew_behind_the_role(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    role = BOX.publisher(SEED, ledger=path)
    role.encode(ONE, [0])
    path.unlink()
    with pytest.raises(LedgerError, match="unable to open"):
        role.encode(OTHER, [0])
    assert not path.exists()


def test_a_ledger_that_is_emptied_is_not_begun_anew_behind_the_role(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    role = BOX.publisher(SEED, ledger=path)
    role.encode(ONE, [0])
    path.write_bytes(b"")
    for number in (0, 1):
        with pytest.raises(LedgerError, match="was emptied, so nothing was encoded"):
            role.encode(OTHER, [number])
    assert path.read_bytes() == b""


def test_relative_paths_stay_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    role = BOX.publisher(SEED, ledger="rounds #1?")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    role.encode(ONE, [0])
    assert len(stored(tmp_path / "rounds #1?")) == 1
    assert str(tmp_path) in repr(DiskLedger("x"))


# -- one-time pads ------------------------------------------------------------------------------


def test_a_pad_on_disk_uses_no_round_twice(tmp_path: Path) -> None:
    secret, path = os.urandom(5 * BOX.randomness_bytes), tmp_path / "rounds"
    BOX.publisher(OneTimePad(secret), ledger=path).encode(ONE, [0])
    again = BOX.publisher(OneTimePad(secret), ledger=path)
    for records in (ONE, OTHER):  # nothing but bytes of the pad could hide which it was
        with pytest.raises(RandomnessReuseError, match="round 0 was already used, says"):
            again.encode(records, [0])
    again.encode(ONE, [1])
    with pytest.raises(RandomnessReuseError, match="as the publisher under this pad and matcher"):
        BOX.subscriber(OneTimePad(secret), ledger=path).encode("a < 3", [0])


def test_a_pad_on_disk_serves_one_matcher(tmp_path: Path) -> None:
    secret, path = os.urandom(5 * BOX.randomness_bytes), tmp_path / "rounds"
    template = BranchingMatch(SCHEMA, "a < :limit")
    BOX.publisher(OneTimePad(secret), ledger=path).encode(ONE, [0])
    for role, what in ((template.publisher, ONE), (template.subscriber, {"limit": 3})):
        for number in (0, 1):  # round 1 of the smaller one lies within round 0 of the other
            with pytest.raises(RandomnessReuseError, match="a pad one matcher"):
                role(OneTimePad(secret), ledger=path).encode(what, [number])
    BOX.publisher(OneTimePad(secret), ledger=path).encode(ONE, [1])


def test_roles_over_a_pad_know_of_one_another_with_and_without_a_disk(tmp_path: Path) -> None:
    pad = OneTimePad(os.urandom(5 * BOX.randomness_bytes))
    plain, kept = BOX.publisher(pad), BOX.publisher(pad, ledger=tmp_path / "rounds")
    kept.encode(ONE, [0])
    plain.encode(ONE, [1])
    with pytest.raises(RandomnessReuseError, match="round 0 was already used by a role of this"):
        plain.encode(OTHER, [0])
    with pytest.raises(RandomnessReuseError, match="round 1 was already used by a role of this"):
        kept.encode(OTHER * 2, [2, 1])
    kept.encode(OTHER, [2])


# -- payloads -----------------------------------------------------------------------------------


def test_sealers_share_event_numbers_and_rounds(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    first = PayloadSealer(SEED, ledger=path)
    first.seal([b"public"], [7])
    wrapped = first.wrap([7], [0], pairs=["alice"])
    again = PayloadSealer(SEED, ledger=path)
    sealed = again.seal([b"public"], [7])
    assert np.array_equal(again.wrap([7], [0], pairs=["alice"]), wrapped)
    assert PayloadOpener(SEED.pair("alice")).open(sealed, wrapped, [0]) == [b"public"]
    with pytest.raises(RandomnessReuseError, match="event number 7 was used for something else"):
        again.seal([b"other", b"secret"], [8, 7])
    with pytest.raises(RandomnessReuseError, match="pair 'alice': round 0 was used for something"):
        again.wrap([9], [0], pairs=["alice"])
    again.seal([b"other"], [8])
    assert again.seal([], []) == []
    assert again.wrap([], [], pairs=[]).shape == (0, 32)
