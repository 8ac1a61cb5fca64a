"""What a matching broker must not lose, in an SQLite file.

Subscriptions, numbers of accepted publications, deliveries that wait, publications that are kept,
and who was revoked: all of it as clients sent it, so the file tells who steals it what the broker
knew. One transaction takes a publication and its deliveries. When the publisher has its receipt
both are on disk, and a publication that it repeats is known.

Source: SQLite documentation, "Write-Ahead Logging".
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from ccbps.broker.messages import Delivery, Publication, Subscription
from ccbps.errors import LedgerError, ParameterError

_APPLICATION: Final = int.from_bytes(b"ccbb", "big")
_VERSION: Final = 1
WAIT_SECONDS: Final = 5.0
"""For another process that has the file open, as a broker that is about to end."""
_TABLES: Final = """
CREATE TABLE about (matcher BLOB NOT NULL, key BLOB NOT NULL, epoch INTEGER NOT NULL,
    numbering BLOB NOT NULL);
CREATE TABLE subscriptions (client TEXT NOT NULL, name TEXT NOT NULL, message BLOB NOT NULL,
    awaits INTEGER, PRIMARY KEY (client, name)) WITHOUT ROWID;
CREATE TABLE numbers (publisher TEXT NOT NULL, number INTEGER NOT NULL, digest BLOB NOT NULL,
    clients TEXT, served TEXT NOT NULL, PRIMARY KEY (publisher, number)) WITHOUT ROWID;
CREATE TABLE publishers (publisher TEXT PRIMARY KEY, oldest INTEGER NOT NULL,
    round INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE payloads (id INTEGER PRIMARY KEY, publisher TEXT NOT NULL, number INTEGER NOT NULL,
    payload BLOB NOT NULL, event BLOB);
CREATE TABLE deliveries (client TEXT NOT NULL, sequence INTEGER NOT NULL,
    payload INTEGER NOT NULL, names TEXT NOT NULL, wrap BLOB,
    PRIMARY KEY (client, sequence)) WITHOUT ROWID;
CREATE INDEX by_payload ON deliveries (payload);
CREATE TABLE kept (id INTEGER PRIMARY KEY, publisher TEXT NOT NULL, message BLOB NOT NULL);
CREATE TABLE users (user BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE clients (client TEXT PRIMARY KEY, sequence INTEGER NOT NULL,
    revoked INTEGER NOT NULL) WITHOUT ROWID;
"""


class BrokerStore:
    """The file of one broker. Not for several threads at once: its broker has a lock.

    Attributes:
        numbering: 8 random bytes that name its clients' sequence numbers.
    """

    numbering: bytes

    def __init__(self, path: str | Path, names: tuple[bytes, bytes, int], durable: bool) -> None:
        """
        Args:
            path: created if missing.
            names: of the broker's matcher, key and epoch.
            durable: whether what was accepted survives a loss of power, too.

        Raises:
            LedgerError: it cannot be used, or another process has it open.
            ParameterError: it is of another matcher, key or epoch, or no such file.
        """
        if not Path(path).exists():
            Path(path).touch(mode=0o600)  # it tells who reads it what the broker knows
        self._db = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=WAIT_SECONDS
        )
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._open(str(path), names)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        except sqlite3.Error as error:
            self._db.close()
            raise LedgerError(f"the broker's file {path} cannot be used: {error}") from None
        except BaseException:
            self._db.close()
            raise

    def _open(self, path: str, names: tuple[bytes, bytes, int]) -> None:
        """Check whose file it is, and change nothing in somebody else's."""
        self._db.execute("BEGIN EXCLUSIVE")
        (found,) = self._db.execute("PRAGMA application_id").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables:
            for statement in _TABLES.split(";"):
                self._db.execute(statement)
            self._db.execute("INSERT INTO about VALUES (?, ?, ?, randomblob(8))", names)
            self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {_VERSION}")
            found = _APPLICATION
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if (found, version) != (_APPLICATION, _VERSION):
            raise ParameterError(f"{path} is not a broker's file of this version")
        *about, self.numbering = self._db.execute("SELECT * FROM about").fetchone()
        if tuple(about) != names:
            raise ParameterError(f"{path} belongs to another matcher, key or epoch")
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Give the file free."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside is on disk afterwards, or nothing.

        Raises:
            LedgerError: it cannot be written.
        """
        try:
            if self._db.in_transaction:  # an earlier ROLLBACK failed
                self._db.execute("ROLLBACK")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise LedgerError(f"the broker's file cannot be written: {error}") from None

    # -- inside a transaction --------------------------------------------------------------------

    def subscribe(self, client: str, subscription: Subscription, awaits_kept: bool) -> None:
        """Put a subscription in place of the one with its name; it may await publications that are
        kept."""
        row = client, subscription.name, subscription.to_bytes(), awaits_kept
        self._db.execute(
            "INSERT OR REPLACE INTO subscriptions VALUES "
            "(?, ?, ?, CASE WHEN ? THEN (SELECT max(id) FROM kept) END)",
            row,
        )

    def settle(self, client: str, name: str) -> None:
        """That a subscription has got what was kept for it."""
        self._db.execute(
            "UPDATE subscriptions SET awaits = NULL WHERE client = ? AND name = ?", (client, name)
        )

    def unsubscribe(self, client: str, name: str) -> None:
        """Drop a subscription."""
        self._db.execute("DELETE FROM subscriptions WHERE client = ? AND name = ?", (client, name))

    def publish(
        self, publisher: str, publication: Publication, digest: bytes, clients: Iterable[str] | None
    ) -> None:
        """That a publication was accepted; with clients who wait for its payload, or None."""
        waiting = None if clients is None else json.dumps([*clients])
        row = publisher, publication.number, digest, waiting
        self._db.execute("INSERT INTO numbers VALUES (?, ?, ?, ?, '[]')", row)
        turn = -1 if publication.round is None else publication.round
        self._db.execute(
            "INSERT INTO publishers VALUES (?, 0, ?) ON CONFLICT DO UPDATE SET "
            "round = max(round, excluded.round)",
            (publisher, turn),
        )

    def served(
        self, publisher: str, number: int, clients: Iterable[str] | None, served: Iterable[str]
    ) -> None:
        """Who waits for a publication's payload, None if nobody does any more; and who has it."""
        waiting = None if clients is None else json.dumps([*clients])
        self._db.execute(
            "UPDATE numbers SET clients = ?, served = ? WHERE publisher = ? AND number = ?",
            (waiting, json.dumps([*served]), publisher, number),
        )

    def forget_numbers(self, publisher: str, below: int) -> None:
        """Drop numbers of publications that are too old to tell."""
        self._db.execute(
            "DELETE FROM numbers WHERE publisher = ? AND number < ?", (publisher, below)
        )
        self._db.execute(
            "UPDATE publishers SET oldest = max(oldest, ?) WHERE publisher = ?", (below, publisher)
        )

    def deliver(self, deliveries: Iterable[tuple[str, Delivery]]) -> None:
        """Put deliveries of one publication into queues; equal payloads are stored once."""
        payloads: dict[tuple[bytes, bytes | None], int | None] = {}
        rows = []
        for client, delivery in deliveries:
            content = delivery.payload, delivery.event
            if content not in payloads:
                payloads[content] = self._db.execute(
                    "INSERT INTO payloads (publisher, number, payload, event) VALUES (?, ?, ?, ?)",
                    (delivery.publisher, delivery.number, *content),
                ).lastrowid
            names = json.dumps(delivery.names)
            rows.append((client, delivery.sequence, payloads[content], names, delivery.wrap))
        self._db.executemany("INSERT INTO deliveries VALUES (?, ?, ?, ?, ?)", rows)
        self._db.executemany(
            "INSERT INTO clients VALUES (?, ?, 0) ON CONFLICT DO UPDATE SET sequence = excluded."
            "sequence",
            [(client, sequence + 1) for client, sequence, *_ in rows],
        )

    def drop(self, client: str, sequences: Iterable[int]) -> None:
        """Take deliveries out of a queue."""
        for sequence in sequences:
            gone = self._db.execute(
                "DELETE FROM deliveries WHERE client = ? AND sequence = ? RETURNING payload",
                (client, sequence),
            ).fetchall()
            self._db.executemany(
                "DELETE FROM payloads WHERE id = ?1 AND NOT EXISTS "
                "(SELECT 1 FROM deliveries WHERE payload = ?1)",
                gone,
            )

    def revoke_user(self, user: bytes) -> None:
        """That a user of the scheme was revoked."""
        self._db.execute("INSERT OR IGNORE INTO users VALUES (?)", (user,))

    def revoke(self, client: str) -> None:
        """That a client was revoked, with its subscriptions, and what is kept of it."""
        self._db.execute(
            "INSERT INTO clients VALUES (?, 0, 1) ON CONFLICT DO UPDATE SET revoked = 1", (client,)
        )
        self._db.execute("DELETE FROM subscriptions WHERE client = ?", (client,))
        self._db.execute("DELETE FROM kept WHERE publisher = ?", (client,))

    def admit(self, client: str) -> None:
        """That a client is let in again."""
        self._db.execute("UPDATE clients SET revoked = 0 WHERE client = ?", (client,))

    def keep(self, publisher: str, publication: Publication, most: int) -> None:
        """Keep a publication for later subscribers, and so many of the last ones."""
        self._db.execute(
            "INSERT INTO kept (publisher, message) VALUES (?, ?)",
            (publisher, publication.to_bytes()),
        )
        self.keep_last(most)

    def keep_last(self, most: int) -> None:
        """Keep so many publications of those that are kept."""
        self._db.execute(
            "DELETE FROM kept WHERE id <= (SELECT id FROM kept ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (most,),
        )

    # -- at the start ----------------------------------------------------------------------------

    def subscriptions(self) -> Iterator[tuple[str, Subscription]]:
        """All, with their clients."""
        for client, message in self._db.execute("SELECT client, message FROM subscriptions"):
            yield client, Subscription.from_bytes(message)

    def users(self) -> list[bytes]:
        """Users of the scheme that were revoked."""
        return [user for (user,) in self._db.execute("SELECT user FROM users").fetchall()]

    def numbers(self) -> Iterator[tuple[str, int, bytes, list[str] | None, list[str]]]:
        """Of accepted publications: publisher, number, digest, who waits for a payload, and who
        has it."""
        found = self._db.execute("SELECT * FROM numbers ORDER BY publisher, number")
        for publisher, number, digest, clients, served in found:
            waiting = None if clients is None else json.loads(clients)
            yield publisher, number, digest, waiting, json.loads(served)

    def oldest(self) -> dict[str, int]:
        """By publisher, the smallest number that is not too old to tell."""
        return dict(self._db.execute("SELECT publisher, oldest FROM publishers").fetchall())

    def rounds(self) -> dict[str, int]:
        """By publisher, the first round that it has not used."""
        found = self._db.execute("SELECT publisher, round FROM publishers").fetchall()
        return {publisher: turn + 1 for publisher, turn in found}

    def deliveries(self) -> Iterator[tuple[str, Delivery]]:
        """All that wait, in order."""
        for client, sequence, names, wrap, publisher, number, payload, event in self._db.execute(
            "SELECT client, sequence, names, wrap, publisher, number, p.payload, event "
            "FROM deliveries JOIN payloads AS p ON p.id = deliveries.payload "
            "ORDER BY client, sequence"
        ):
            found = tuple(json.loads(names))
            yield client, Delivery(sequence, publisher, number, found, payload, event, wrap)

    def kept(self, last: int = (1 << 63) - 1) -> Iterator[tuple[str, Publication]]:
        """Publications that are kept, oldest first, with their publishers.

        Args:
            last: those with this id or a smaller one.
        """
        for publisher, message in self._db.execute(
            "SELECT publisher, message FROM kept WHERE id <= ? ORDER BY id", (last,)
        ):
            yield publisher, Publication.from_bytes(message)

    def awaiting_kept(self) -> list[tuple[str, Subscription, list[tuple[str, Publication]]]]:
        """Subscriptions that have not got what is kept, and that."""
        found = self._db.execute(
            "SELECT client, message, awaits FROM subscriptions WHERE awaits IS NOT NULL"
        ).fetchall()
        return [
            (client, Subscription.from_bytes(message), [*self.kept(awaits)])
            for client, message, awaits in found
        ]

    def clients(self) -> list[tuple[str, int, bool]]:
        """Clients, the next sequence number of each, and whether it was revoked."""
        found = self._db.execute("SELECT client, sequence, revoked FROM clients").fetchall()
        return [(client, sequence, bool(revoked)) for client, sequence, revoked in found]


class NoStore:
    """Of a broker that keeps everything in memory: nothing is written, and nothing was."""

    def __init__(self) -> None:
        self.numbering = os.urandom(8)

    def close(self) -> None:
        """Nothing."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Nothing."""
        yield

    def __getattr__(self, name: str) -> Any:
        return _nothing


def _nothing(*_: object, **__: object) -> None:
    """Nothing."""


Store: TypeAlias = "BrokerStore | NoStore"
