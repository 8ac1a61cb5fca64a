"""The running broker's file: what is in it, what is not, and what a restart makes of it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccbps.broker import MatchingBroker, Payloads, Publication, Quota
from ccbps.errors import LedgerError, ParameterError, ReplayError
from tests.support.broker_world import RoundWorld, World, received, token


def rows(broker: MatchingBroker, table: str) -> int:
    (found,) = broker._store._db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


def test_the_file_does_not_grow_with_what_is_over(world: World, path: Path) -> None:
    broker = world.broker(path=path, remember=3, keep=2)
    for client in ("alice", "bob", "carol"):
        broker.subscribe(client, world.wants("a", "price < 9"))
    for number in range(20):
        broker.publish("feed", world.event(number, 3))
        assert rows(broker, "payloads") == 1  # for three clients
        for client in ("alice", "bob", "carol"):
            broker.acknowledge(client, broker.take(client)[-1].sequence)
        assert rows(broker, "payloads") == rows(broker, "deliveries") == 0
        assert rows(broker, "numbers") < 6
        assert rows(broker, "kept") <= 2
    broker.publish("feed", world.event(20, 3))
    for client in ("alice", "bob", "carol"):
        broker.revoke(client)
    left = "payloads", "deliveries", "subscriptions"
    assert [rows(broker, table) for table in left] == [0, 0, 0]
    broker.revoke("feed")
    assert rows(broker, "kept") == 0


@pytest.mark.parametrize(("durable", "mode"), [(True, 2), (False, 1)])
def test_durable_files_are_flushed(world: World, path: Path, durable: bool, mode: int) -> None:
    broker = world.broker(path=path, durable=durable)
    db = broker._store._db
    assert db.execute("PRAGMA synchronous").fetchone() == (mode,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert path.stat().st_mode & 0o077 == 0


def test_what_was_sealed_for_all_counts_no_more(world: World, path: Path) -> None:
    options: dict[str, Any] = {"path": path, "quota": Quota(queue=1)}
    broker = world.broker_of_alice(**options)
    for number in range(3):
        broker.publish("feed", world.bare(number, 3))
        broker.deliver("feed", Payloads(number, {"alice": b"sealed"}))
        broker.acknowledge("alice", broker.take("alice")[-1].sequence)
        broker.close()
        broker = world.broker(**options)


def test_what_was_kept_reaches_a_subscriber_whose_broker_was_killed(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between the subscription and its deliveries."""
    broker = world.broker(path=path, keep=3)
    for number in range(3):
        broker.publish("feed", world.event(number, 3, "news" if number else None))

    def dies(*_: object) -> None:
        raise LedgerError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(broker._boxes, "put_kept", dies)
        broker.subscribe("alice", world.wants("a", "price < 9", "quotes"))
        broker.subscribe("bob", world.wants("a", "price < 9"))
    broker.publish("feed", world.event(3, 3))
    broker.acknowledge("bob", broker.take("bob")[-1].sequence)
    for _ in range(2):
        broker.close()
        broker = world.broker(path=path, keep=3)
        # What came afterwards was delivered then, and the first one is not kept any more.
        assert received(broker, "bob", "alice") == [[1, 2], [3]]


def test_numbers_of_deliveries_say_whose_they_are(world: World, path: Path) -> None:
    broker = world.broker(path=path)
    numbering = broker.numbering
    broker.close()
    broker = world.broker(path=path)
    assert broker.numbering == numbering
    assert len({numbering, world.broker().numbering, world.broker().numbering}) == 3


def test_a_transaction_that_fails_leaves_nothing(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker_of_alice(path=path, keep=3)

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    for method in ("publish", "keep", "deliver"):
        with monkeypatch.context() as patched:
            patched.setattr(broker._store, method, fails)
            with pytest.raises(LedgerError, match="disk I/O error"):
                broker.publish("feed", world.event(0, 3))
        tables = "numbers", "payloads", "deliveries", "kept"
        assert [rows(broker, table) for table in tables] == [0] * 4
        assert broker.take("alice") == []
    assert not broker.publish("feed", world.event(0, 3)).again
    assert [rows(broker, table) for table in tables] == [1] * 4


def test_rounds_are_used_up_also_after_a_restart(path: Path) -> None:
    world = RoundWorld()
    broker = world.broker(path=path)
    broker.subscribe("alice", world.wants("alice/a", "price < 9", topic="quotes"))
    for number, turn in enumerate([1, 3]):
        broker.publish("feed", world.event(number, turn, 5, topic="quotes"))
        # Nobody wants it, so nobody asks for its round.
        broker.publish("feed", Publication(number + 5, None, b"", token("nothing")))
        broker.close()
        broker = world.broker(path=path)
        for used in range(turn + 1):
            with pytest.raises(ReplayError, match=f"the next one is {turn + 1}"):
                broker.publish("feed", world.event(9, used, 5, topic="quotes"))
    # Rounds are each publisher's own.
    broker.publish("other", world.event(0, 0, 5, topic="quotes"))
    broker.publish("feed", world.event(2, 4, 5, topic="quotes"))
    assert received(broker, "alice") == [[0, 1, 2]]


def test_files_are_of_one_broker(
    world: World, tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccbps.broker.store.WAIT_SECONDS", 0.1)
    broker = world.broker(path=path)
    with pytest.raises(LedgerError, match="cannot be used"):
        world.broker(path=path)
    broker.close()
    with pytest.raises(ParameterError, match="another matcher, key or epoch"):
        World().broker(path=path)
    foreign = tmp_path / "foreign.db"
    with contextlib.closing(sqlite3.connect(foreign)) as db:
        db.execute("CREATE TABLE notes (note TEXT)")
    before = foreign.read_bytes()
    with pytest.raises(ParameterError, match="not a broker's file"):
        world.broker(path=foreign)
    assert foreign.read_bytes() == before
    (tmp_path / "text").write_text("not a database, but long enough to be one" * 100)
    with pytest.raises(LedgerError):
        world.broker(path=tmp_path / "text")


def test_what_cannot_be_written_is_not_done(world: World, path: Path) -> None:
    broker = world.broker_of_alice(path=path)
    broker._store._db.execute("PRAGMA query_only = ON")
    failing: list[Callable[[], object]] = [
        lambda: broker.publish("feed", world.event(0, 3)),
        lambda: broker.subscribe("bob", world.wants("a", "price < 9")),
        lambda: broker.unsubscribe("alice", "a"),
    ]
    for call in failing:
        with pytest.raises(LedgerError, match="cannot be written"):
            call()
    broker._store._db.execute("PRAGMA query_only = OFF")
    assert broker.take("alice") == []
    assert broker.subscriptions("bob") == []
    assert not broker.publish("feed", world.event(0, 3)).again
    assert len(broker.take("alice")) == 1
