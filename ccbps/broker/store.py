"""The SQLite file of a matching broker: the state that a crash must not lose.

It holds subscriptions, numbers of accepted publications, deliveries that wait, publications that
are kept or on their way through a network, clients and users that were revoked, the policy in force
and the tokens of clients, all of it as it was sent. So a thief of the file learns what the broker
knew. A publication and its deliveries are one transaction. Both are on disk when the publisher has
its receipt, and a repeated publication is recognized.

Source: SQLite documentation, "Write-Ahead Logging".
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

from ccbps.broker.accepted import Accepted
from ccbps.broker.messages import Delivery, Publication, Subscription
from ccbps.errors import LedgerError, ParameterError

_APPLICATION: Final = int.from_bytes(b"ccbb", "big")
_VERSION: Final = 6
WAIT_SECONDS: Final = 5.0
"""Seconds to wait for another process to close the file, such as a broker about to end."""
_TABLES: Final = """
CREATE TABLE about (matcher BLOB NOT NULL, key BLOB NOT NULL, epoch INTEGER NOT NULL,
    masks TEXT NOT NULL, numbering BLOB NOT NULL);
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
CREATE TABLE outgoing (id INTEGER PRIMARY KEY, publisher TEXT NOT NULL, message BLOB NOT NULL);
CREATE TABLE users (user BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE hellos (client TEXT NOT NULL, name BLOB NOT NULL, message BLOB NOT NULL,
    PRIMARY KEY (client, name)) WITHOUT ROWID;
CREATE TABLE grants (name BLOB PRIMARY KEY, message BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE policy (message BLOB NOT NULL);
CREATE TABLE tokens (client TEXT PRIMARY KEY, token BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE clients (client TEXT PRIMARY KEY, sequence INTEGER NOT NULL,
    revoked INTEGER NOT NULL) WITHOUT ROWID;
"""


class BrokerStore:
    """The file of one broker, for one thread at a time: its broker has a lock.

    Attributes:
        numbering: 8 random bytes that name its clients' sequence numbers.
    """

    numbering: bytes

    def __init__(self, path: Path, names: tuple[bytes, bytes, int, str], durable: bool) -> None:
        """Open a file, or create it if it is missing.

        Args:
            path: path of the file.
            names: digest of the broker's matcher, id and epoch of its key, layout of its masks.
            durable: whether accepted messages survive a loss of power, too.

        Raises:
            LedgerError: it cannot be used, or another process has it open.
            ParameterError: it is of another matcher, key, epoch or content filter, or no such file.
        """
        if not path.exists():
            path.touch(mode=0o600)  # its reader learns all that the broker knows
        self._db = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=WAIT_SECONDS
        )
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._open(path, names)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.Error):
                raise LedgerError(f"the broker's file {path} cannot be used: {error}") from None
            raise

    def _open(self, path: Path, names: tuple[bytes, bytes, int, str]) -> None:
        """Check whose file it is, and change nothing in a file of another kind."""
        self._db.execute("BEGIN EXCLUSIVE")
        if self._row("SELECT count(*) FROM sqlite_schema") == (0,):
            for statement in _TABLES.split(";"):
                self._db.execute(statement)
            self._db.execute("INSERT INTO about VALUES (?, ?, ?, ?, randomblob(8))", names)
            self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {_VERSION}")
        kind = self._row("PRAGMA application_id") + self._row("PRAGMA user_version")
        if kind != (_APPLICATION, _VERSION):
            raise ParameterError(f"{path} is not a broker's file of this version")
        *about, self.numbering = self._row("SELECT * FROM about")
        if tuple(about[:-1]) != names[:-1]:
            raise ParameterError(f"{path} belongs to another matcher, key or epoch")
        if about[-1] != names[-1]:
            raise ParameterError(f"{path} belongs to a broker with another content filter, or none")
        self._db.execute("COMMIT")

    def _row(self, query: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._db.execute(query).fetchone()
        return row

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Put all writes of the block on disk, or none of them.

        Raises:
            LedgerError: the file cannot be written.
        """
        try:
            if self._db.in_transaction:  # an earlier rollback failed
                self._db.rollback()
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                yield
        except sqlite3.Error as error:
            raise LedgerError(f"the broker's file cannot be written: {error}") from None

    # -- inside a transaction --------------------------------------------------------------------

    def subscribe(self, client: str, subscription: Subscription, awaits_kept: bool) -> None:
        """Write a subscription in place of the one with its name.

        Args:
            client: its client.
            subscription: the subscription.
            awaits_kept: whether kept publications are still to be delivered to it.
        """
        row = client, subscription.name, subscription.to_bytes(), awaits_kept
        self._db.execute(
            "INSERT OR REPLACE INTO subscriptions VALUES "
            "(?, ?, ?, CASE WHEN ? THEN (SELECT max(id) FROM kept) END)",
            row,
        )

    def greet(self, client: str, name: bytes, message: bytes) -> None:
        """Write the hellos of a client.

        Args:
            client: the client.
            name: name that its messages have.
            message: the hellos.
        """
        self._db.execute("INSERT OR REPLACE INTO hellos VALUES (?, ?, ?)", (client, name, message))

    def grant(self, names: Iterable[bytes], messages: Iterable[bytes]) -> None:
        """Write grants in place of earlier ones.

        Args:
            names: public names of the clients that they are for.
            messages: grants, sealed for three brokers.
        """
        rows = zip(names, messages, strict=True)
        self._db.executemany("INSERT OR REPLACE INTO grants VALUES (?, ?)", rows)

    def enact(self, message: bytes) -> None:
        """Write the policy in force, in place of the one before."""
        self._db.execute("DELETE FROM policy")
        self._db.execute("INSERT INTO policy VALUES (?)", (message,))

    def present(self, client: str, token: bytes) -> None:
        """Write the token that a client presented, in place of its earlier one."""
        self._db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?)", (client, token))

    def settle(self, client: str, name: str) -> None:
        """Note that the kept publications were delivered to a subscription."""
        self._db.execute(
            "UPDATE subscriptions SET awaits = NULL WHERE client = ? AND name = ?", (client, name)
        )

    def unsubscribe(self, client: str, name: str) -> None:
        """Delete a subscription."""
        self._db.execute("DELETE FROM subscriptions WHERE client = ? AND name = ?", (client, name))

    def publish(
        self, publisher: str, publication: Publication, digest: bytes, clients: Iterable[str] | None
    ) -> None:
        """Note that a publication was accepted.

        Args:
            publisher: name of the publisher.
            publication: the publication.
            digest: digest of its message.
            clients: clients that wait for its payload; None if it has one.
        """
        row = publisher, publication.number, digest, _names_text(clients)
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
        """Write the clients that have a payload, and those that wait for it: None for nobody."""
        self._db.execute(
            "UPDATE numbers SET clients = ?, served = ? WHERE publisher = ? AND number = ?",
            (_names_text(clients), _names_text(served), publisher, number),
        )

    def forget_numbers(self, publisher: str, below: int) -> None:
        """Delete a publisher's numbers below another one."""
        self._db.execute(
            "DELETE FROM numbers WHERE publisher = ? AND number < ?", (publisher, below)
        )
        self._db.execute(
            "UPDATE publishers SET oldest = max(oldest, ?) WHERE publisher = ?", (below, publisher)
        )

    def deliver(self, deliveries: Iterable[tuple[str, Delivery]]) -> None:
        """Put deliveries of one publication into queues. Equal payloads are stored once."""
        payloads: dict[tuple[bytes, bytes | None], int | None] = {}
        rows = []
        for client, delivery in deliveries:
            content = delivery.payload, delivery.event
            if content not in payloads:
                payloads[content] = self._db.execute(
                    "INSERT INTO payloads (publisher, number, payload, event) VALUES (?, ?, ?, ?)",
                    (delivery.publisher, delivery.number, *content),
                ).lastrowid
            names = _names_text(delivery.names)
            rows.append((client, delivery.sequence, payloads[content], names, delivery.wrap))
        self._db.executemany("INSERT INTO deliveries VALUES (?, ?, ?, ?, ?)", rows)
        self._db.executemany(
            "INSERT INTO clients VALUES (?, ?, 0) ON CONFLICT DO UPDATE SET sequence = excluded."
            "sequence",
            [(client, sequence + 1) for client, sequence, *_ in rows],
        )

    def drop(self, client: str, sequences: Iterable[int]) -> None:
        """Remove deliveries from a queue, and payloads that no delivery has any more."""
        for sequence in sequences:
            payloads = self._db.execute(
                "DELETE FROM deliveries WHERE client = ? AND sequence = ? RETURNING payload",
                (client, sequence),
            ).fetchall()
            self._db.executemany(
                "DELETE FROM payloads WHERE id = :id AND NOT EXISTS "
                "(SELECT 1 FROM deliveries WHERE payload = :id)",
                [{"id": payload} for (payload,) in payloads],
            )

    def revoke_user(self, user: bytes) -> None:
        """Note that a user of the scheme was revoked."""
        self._db.execute("INSERT OR IGNORE INTO users VALUES (?)", (user,))

    def revoke(self, client: str) -> None:
        """Note that a client was revoked, and delete its subscriptions and kept publications."""
        self._db.execute(
            "INSERT INTO clients VALUES (?, 0, 1) ON CONFLICT DO UPDATE SET revoked = 1", (client,)
        )
        for statement in (
            "DELETE FROM subscriptions WHERE client = ?",
            "DELETE FROM tokens WHERE client = ?",
            # Nobody else may ever use the client's names.
            "UPDATE hellos SET message = x'' WHERE client = ?",
            "DELETE FROM kept WHERE publisher = ?",
        ):
            self._db.execute(statement, (client,))

    def admit(self, client: str) -> None:
        """Note that a client may come back."""
        self._db.execute("UPDATE clients SET revoked = 0 WHERE client = ?", (client,))

    def send(self, number: int, publisher: str, message: bytes) -> None:
        """Write a publication that is on its way through a network of brokers.

        Args:
            number: number of the broker's own for it.
            publisher: name of the publisher.
            message: the publication.
        """
        self._db.execute("INSERT INTO outgoing VALUES (?, ?, ?)", (number, publisher, message))

    def arrived(self, numbers: Iterable[int]) -> None:
        """Delete publications that are on their way no more."""
        rows = [(number,) for number in numbers]
        self._db.executemany("DELETE FROM outgoing WHERE id = ?", rows)

    def keep(self, publisher: str, publication: Publication, most: int) -> None:
        """Keep a publication for later subscribers, and of all kept ones the `most` latest."""
        row = publisher, publication.to_bytes()
        self._db.execute("INSERT INTO kept (publisher, message) VALUES (?, ?)", row)
        self.keep_last(most)

    def keep_last(self, most: int) -> None:
        """Delete kept publications but the last ones."""
        self._db.execute(
            "DELETE FROM kept WHERE id <= (SELECT id FROM kept ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (most,),
        )

    # -- at the start ----------------------------------------------------------------------------

    def subscriptions(self) -> Iterator[tuple[str, Subscription]]:
        """Yield pairs of a client and its subscription."""
        for client, message in self._db.execute("SELECT client, message FROM subscriptions"):
            yield client, Subscription.from_bytes(message)

    def hellos(self) -> list[tuple[str, bytes, bytes]]:
        """Return clients, the names that their messages have, and hellos.

        Hellos of clients that were revoked are empty.
        """
        return self._db.execute("SELECT client, name, message FROM hellos").fetchall()

    def grants(self) -> list[bytes]:
        """Return the last grant of each client, sealed for three brokers."""
        return [message for (message,) in self._db.execute("SELECT message FROM grants").fetchall()]

    def enacted(self) -> bytes | None:
        """Return the policy in force; None if there is none."""
        row = self._db.execute("SELECT message FROM policy").fetchone()
        return None if row is None else bytes(row[0])

    def presented(self) -> list[tuple[str, bytes]]:
        """Return clients and the tokens that they presented last."""
        return self._db.execute("SELECT client, token FROM tokens").fetchall()

    def users(self) -> list[bytes]:
        """Return the users of the scheme that were revoked."""
        return [user for (user,) in self._db.execute("SELECT user FROM users").fetchall()]

    def numbers(self) -> Iterator[tuple[str, int, Accepted]]:
        """Yield publisher, number and record of each accepted publication."""
        rows = self._db.execute("SELECT * FROM numbers ORDER BY publisher, number")
        for publisher, number, digest, clients, served in rows:
            waiting = None if clients is None else tuple(json.loads(clients))
            yield publisher, number, Accepted(digest, waiting, {*json.loads(served)})

    def publishers(self) -> list[tuple[str, int, int]]:
        """Return each publisher with its smallest number that is not too old, and its last round.

        The last round is -1 if it used none.
        """
        return self._db.execute("SELECT publisher, oldest, round FROM publishers").fetchall()

    def deliveries(self) -> Iterator[tuple[str, Delivery]]:
        """Yield pairs of a client and a delivery that waits for it, in order."""
        for client, sequence, names, wrap, publisher, number, payload, event in self._db.execute(
            "SELECT client, sequence, names, wrap, publisher, number, p.payload, event "
            "FROM deliveries JOIN payloads AS p ON p.id = deliveries.payload "
            "ORDER BY client, sequence"
        ):
            own = tuple(json.loads(names))
            yield client, Delivery(sequence, publisher, number, own, payload, event, wrap)

    def kept(self, last: int = (1 << 63) - 1) -> Iterator[tuple[str, Publication]]:
        """Yield pairs of a publisher and a kept publication, oldest first.

        Args:
            last: largest id of a publication.
        """
        for publisher, message in self._db.execute(
            "SELECT publisher, message FROM kept WHERE id <= ? ORDER BY id", (last,)
        ):
            yield publisher, Publication.from_bytes(message)

    def outgoing(self) -> list[tuple[int, str, bytes]]:
        """Return publications that were on their way, in order: number, publisher, message."""
        return self._db.execute("SELECT * FROM outgoing ORDER BY id").fetchall()

    def awaiting_kept(self) -> list[tuple[str, Subscription, list[tuple[str, Publication]]]]:
        """Return subscriptions that still await kept publications, with these."""
        rows = self._db.execute(
            "SELECT client, message, awaits FROM subscriptions WHERE awaits IS NOT NULL"
        ).fetchall()
        return [
            (client, Subscription.from_bytes(message), [*self.kept(awaits)])
            for client, message, awaits in rows
        ]

    def clients(self) -> list[tuple[str, int, bool]]:
        """Return clients, the next sequence number of each, and whether it was revoked."""
        rows = self._db.execute("SELECT client, sequence, revoked FROM clients")
        return [(client, sequence, bool(revoked)) for client, sequence, revoked in rows]


def _names_text(names: Iterable[str] | None) -> str | None:
    return None if names is None else json.dumps([*names])


class NoStore:
    """Store of a broker that keeps everything in memory: nothing is written."""

    transaction = nullcontext

    def __init__(self) -> None:
        self.numbering = os.urandom(8)

    def __getattr__(self, name: str) -> Any:
        return _do_nothing


def _do_nothing(*_: object, **__: object) -> None:
    pass


Store: TypeAlias = "BrokerStore | NoStore"
