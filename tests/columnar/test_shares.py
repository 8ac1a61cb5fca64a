"""Workers of three operators meet and match; what only some of them have is refused by all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccbps import Schema, UInt
from ccbps.arrow import binary_column
from ccbps.columnar import shares
from ccbps.columnar.share_opening import opened_keys
from ccbps.columnar.shares import MESSAGE, SIDE, ShareMatching
from ccbps.errors import DecodeError, KeyMismatchError, NetworkError, PeerError
from ccbps.keys import ClientKey, FileKey, OperatorKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.shares.clients import HEAD_BYTES, part_of
from ccbps.shares.operators import Operator
from tests.support.three_brokers import free_ports

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
MATCHER = ThreeBrokerMatch.box(SCHEMA)
RNG = np.random.default_rng(8)
RECORDS = {"price": RNG.integers(0, 256, 70), "volume": RNG.integers(0, 64, 70)}
PREDICATES = [f"price BETWEEN {n} AND {n + 90} AND volume > {n // 5}" for n in range(0, 200, 3)]
EXPECTED = {
    (f"s{column}", row)
    for column, text in enumerate(PREDICATES)
    for row in np.flatnonzero(SCHEMA.parse(text).evaluate(SCHEMA.encode(RECORDS))).tolist()
}
Changes = Mapping[tuple[str, int], bytes | None]


class World:
    """Three operators and two clients, with all messages."""

    def __init__(self, folder: Path, port: int, matcher: ThreeBrokerMatch = MATCHER) -> None:
        self.matcher = matcher
        keys = [OperatorKey.generate() for _ in range(3)]
        self.sources = []
        for party, key in enumerate(keys):
            path = folder / f"operator-{party}"
            path.write_text(key.to_text())
            self.sources.append(FileKey(path))
        self.operators = tuple(
            Operator.of(key, f"127.0.0.1:{port + 2 * party}") for party, key in enumerate(keys)
        )
        public = [operator.public for operator in self.operators]
        keys_ = [ClientKey.generate(public) for _ in range(2)]
        self.publisher, subscriber = matcher.publisher(keys_[0]), matcher.subscriber(keys_[1])
        (folder / "subscriber").write_text(keys_[1].to_text())
        self.subscriber = FileKey(folder / "subscriber")
        publisher = self.publisher
        self.hellos = [*zip(publisher.hellos, subscriber.hellos, strict=True)]
        self.events = publisher.encode(RECORDS)
        self.interests = subscriber.encode(PREDICATES)

    def matching(self, party: int, **changes: Any) -> ShareMatching:
        arguments = {
            "matcher": self.matcher,
            "key": self.sources[party],
            "party": party,
            "operators": self.operators,
            "hellos": self.hellos[party],
            "subscription": "subscription",
            "kept": ("event",),
            "on_error": "reject",
            "workers": 2,
            "job": "test",
            "host": "127.0.0.1",
            "seconds": 20,
        }
        return ShareMatching(**{**arguments, **changes})

    def rows(self, party: int, changed: Changes) -> Iterator[pa.RecordBatch]:
        """Rows of an operator, sorted as Spark does it; some changed, or left out."""
        for side, name, messages in ((0, "interest", self.interests), (1, "event", self.events)):
            given = []
            for row, message in enumerate(part_of(party, messages)):
                content = changed.get((name, row), message.tobytes())
                if content is not None:
                    given.append((content, row))
            given.sort(key=lambda pair: pair[0][:HEAD_BYTES])
            for start in range(0, len(given), 20):
                part = given[start : start + 20]
                numbers = [row for _, row in part]
                labels = [None if side else f"s{row}" for row in numbers]
                yield pa.record_batch(
                    {
                        SIDE: pa.array([side] * len(part), pa.int32()),
                        MESSAGE: pa.array([content for content, _ in part], pa.binary()),
                        "subscription": pa.array(labels, pa.string()),
                        "event": pa.array(numbers if side else [None] * len(part), pa.int64()),
                    }
                )

    def run(
        self,
        changed: Sequence[Changes] = ({}, {}, {}),
        changes: Sequence[Mapping[str, Any]] = ({}, {}, {}),
    ) -> list[Any]:
        """What each operator's worker finds, or its error."""
        results: list[Any] = [None] * 3

        def work(party: int) -> None:
            try:
                matching = self.matching(party, **changes[party])
                batches = list(matching.matches(1, self.rows(party, changed[party])))
                results[party] = pa.Table.from_batches(batches)
            except Exception as error:
                results[party] = error

        threads = [threading.Thread(target=work, args=(party,)) for party in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("operators"), free_ports(6))


def pairs(table: pa.Table) -> set[tuple[str, int]]:
    """Matches, each of which is there once."""
    assert isinstance(table, pa.Table), table
    rows = [row for row in table.to_pylist() if not row.get("rejected")]
    found = [(row["subscription"], row["event"]) for row in rows]
    assert len(set(found)) == len(found)
    return set(found)


def reasons(table: pa.Table) -> dict[str, str]:
    rows = [row for row in table.to_pylist() if row["rejected"]]
    return {row["subscription"] or row["event"]: row["rejected"] for row in rows}


@pytest.mark.parametrize("rows", [1 << 14, 16])
def test_answers_are_right_at_all_three(
    world: World, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MOST_ROWS", rows)
    for table in world.run():
        assert pairs(table) == EXPECTED


@pytest.mark.parametrize("rows", [1 << 14, 16])
def test_all_three_refuse_what_one_lacks_or_refuses(
    world: World, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MOST_ROWS", rows)
    flipped, stray = world.interests[5].copy(), world.interests[6].copy()
    flipped[-2] ^= 1
    stray[8] ^= 1  # of another client
    changed: list[Changes] = [
        {("interest", 7): b"short", ("interest", 6): stray[:HEAD_BYTES].tobytes()},
        {("interest", 5): flipped.tobytes(), ("interest", 3): None},
        {("event", 9): None, ("event", 11): world.events[10].tobytes()},
    ]
    refused = {"s3", "s5", "s6", "s7", 9, 11}
    left = {pair for pair in EXPECTED if not refused & {*pair}}
    tables = world.run(changed)
    for table in tables[:2]:
        assert pairs(table) == left
    # Which of two equal messages is the right one, nobody knows.
    assert {pair for pair in pairs(tables[2]) if pair[1] not in (10, 11)} == {
        pair for pair in left if pair[1] != 10
    }
    found = [reasons(table) for table in tables]
    assert "wrong number of bytes" in found[0]["s7"]
    assert "a client whose hello is missing" in found[0]["s6"]
    assert all("shared wrongly" in reason["s5"] for reason in found)
    lacks = "another of the three brokers lacks"
    assert lacks in found[0]["s3"]
    assert lacks in found[1]["s7"]
    # Events, which all workers have, are reported by the first one.
    assert {*found[0]} == {"s3", "s5", "s6", "s7"}


def test_with_raise_all_three_stop(world: World) -> None:
    results = world.run([{}, {("event", 9): None}, {}], [{"on_error": "raise"}] * 3)
    assert all(isinstance(error, DecodeError | NetworkError) for error in results)
    assert any("event=9: another of the three" in str(error) for error in results)


def test_a_hello_that_is_none_refuses_its_clients_messages(world: World) -> None:
    hellos = world.hellos[2][0], b"no hello"
    tables = world.run(changes=[{}, {}, {"hellos": hellos}])
    assert [pairs(table) for table in tables] == [set()] * 3
    assert {*reasons(tables[2])} == {f"s{number}" for number in range(len(PREDICATES))}
    results = world.run(
        changes=[{"on_error": "raise"}] * 2 + [{"hellos": hellos, "on_error": "raise"}]
    )
    assert isinstance(results[2], DecodeError)


def test_workers_that_do_not_fit_do_not_meet(world: World) -> None:
    some, few = {"seconds": 5}, {"seconds": 0.5}
    results = world.run(changes=[some, some, {**some, "workers": 3}])
    assert all(isinstance(error, NetworkError) for error in results)
    assert any(isinstance(error, PeerError) for error in results)
    results = world.run(changes=[few, few, {**few, "key": world.sources[0]}])
    assert isinstance(results[2], KeyMismatchError)
    assert "did not come in time" in str(results[0])


def test_workers_of_different_jobs_do_not_meet(world: World) -> None:
    """Otherwise each would have the rows of the other job set aside, and be done."""
    jobs = {"on_error": "drop", "seconds": 5}
    old = {("event", row): None for row in range(35)}
    new = {("event", row): None for row in range(35, 70)}
    results = world.run([new, old, new], [{**jobs, "job": name} for name in ("b", "a", "b")])
    assert all(isinstance(error, NetworkError) for error in results)
    assert any(isinstance(error, PeerError) for error in results)


class KilledError(Exception):
    """End of a worker, as of one whose process is killed."""


@pytest.mark.parametrize(
    ("place", "together"), [("meeting", False), ("amid", True), ("end", True), ("ready", True)]
)
def test_a_worker_that_begins_again_while_the_others_run(
    world: World, place: str, together: bool
) -> None:
    """Broker 1's first attempt ends at some place. As Spark does, whoever fails begins again."""
    attempts, results = [0, 0, 0], [None] * 3

    def rows(party: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(world.rows(party, {})):
            if place == "amid" and party == 1 and attempts[1] == 1 and number == 5:
                raise KilledError
            yield batch

    def ready() -> None:
        raise KilledError

    def attempt(party: int) -> set[tuple[str, int]]:
        attempts[party] += 1
        victim = party == 1 and attempts[1] == 1
        seconds = 0.4 if victim and place == "meeting" else 20
        matching = world.matching(party, on_error="raise", seconds=seconds)
        ends = [ready] if victim and place == "ready" else []
        batches: list[pa.RecordBatch] = []
        for batch in matching.matches(1, rows(party), *ends):
            batches.append(batch)
            if victim and place == "end" and sum(map(len, batches)) == len(EXPECTED):
                raise KilledError
        return pairs(pa.Table.from_batches(batches))

    def run(party: int) -> None:
        while party == 2 and place == "meeting" and attempts[1] < 2:
            time.sleep(0.01)
        while results[party] is None and attempts[party] < 5:
            with suppress(KilledError, NetworkError):
                results[party] = attempt(party)

    threads = [threading.Thread(target=run, args=(party,)) for party in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found == EXPECTED for found in results] == [True] * 3
    # Or the first attempts of the others have met broker 1's second one, with the same answers.
    assert attempts == ([2, 2, 2] if together else [1, 2, 1])


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> World:
    matcher = ThreeBrokerMatch.box(SCHEMA, reveal="subscriber")
    return World(tmp_path_factory.mktemp("operators"), free_ports(6), matcher)


@pytest.mark.parametrize("cells", [1 << 24, 1 << 14])
def test_shares_of_answers_are_opened_by_their_subscriber(
    hiding: World, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "CELLS", cells)
    tables = hiding.run([{}, {("event", 9): None}, {("interest", 7): None}])
    rows = [table.filter(pc.is_valid(table["share"])) for table in tables]
    # A row for each pair, whatever matches, at all three.
    assert {table.num_rows for table in rows} == {69 * (len(PREDICATES) - 1)}
    ids = [rows[0]["subscription"], rows[0]["event"]]
    assert all(table.select([0, 1, 2]) == rows[0].select([0, 1, 2]) for table in rows)
    event, interest = ids[1].to_numpy(), [int(name[1:]) for name in ids[0].to_pylist()]
    sent = hiding.events[:, :HEAD_BYTES][event], hiding.publisher.commitments(hiding.events)[event]
    contents = *sent, hiding.interests[:, :HEAD_BYTES][interest]
    columns = [binary_column(np.ascontiguousarray(content)) for content in contents]
    columns += [rows[0]["attempt"].combine_chunks()]
    columns += [table["share"].combine_chunks() for table in rows]
    arguments = hiding.matcher, hiding.subscriber
    names = ["subscription", "event"]

    keys, reasons = opened_keys(*arguments, columns, names, ids, reject=True)
    assert not reasons.any()
    matched = keys.is_valid().to_numpy(zero_copy_only=False)
    found = {*zip(ids[0].filter(keys.is_valid()).to_pylist(), event[matched].tolist(), strict=True)}
    assert found == {(s, n) for s, n in EXPECTED if s != "s7" and n != 9}
    real = hiding.publisher.payload_keys(hiding.events)[event[matched]]
    assert keys.drop_null().to_pylist() == [key.tobytes() for key in real]

    # What is missing or altered has a reason, and no key; other rows do not change.
    bad = columns[-1].to_pylist()
    bad[3], bad[5], bad[8] = None, bytes(16), b"short"
    changed = [*columns[:-1], pa.array(bad, pa.binary())]
    others, reasons = opened_keys(*arguments, changed, names, ids, reject=True)
    assert np.flatnonzero(reasons != None).tolist() == [3, 5, 8]  # noqa: E711
    assert "broker 2 of this attempt is missing" in reasons[3]
    assert "do not fit the commitment" in reasons[5]
    assert "broker 2 has not 16 bytes" in reasons[8]
    assert others.take([3, 5, 8]).null_count == 3
    rest = np.delete(np.arange(len(matched)), [3, 5, 8])
    assert others.take(rest).equals(keys.take(rest))
    strange = [*columns]
    strange[2] = binary_column(
        hiding.events[: len(columns[2]), :HEAD_BYTES].repeat(80, 0)[: len(event)]
    )
    _, reasons = opened_keys(*arguments, strange, names, ids, reject=True)
    assert {*reasons} == {"the interest is of another client or matcher"}
    with pytest.raises(DecodeError, match=r"subscription='s\d+', event=\d+: the share of broker 2"):
        opened_keys(*arguments, changed, names, ids, reject=False)
