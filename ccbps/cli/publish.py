"""``ccbps publish``: encrypt records, and send them to a broker.

With a key server, a message is for all subscriptions. With rounds, a publication's number is its
round. The event is one message for all subscriptions (`BroadcastMatch`), or one for each
subscription, whose label ``client/name`` names its seed (`FormulaMatch`).
"""

from __future__ import annotations

import os
import sqlite3
from argparse import Namespace
from contextlib import closing
from typing import Any, Final

from ccbps import checks
from ccbps.broker import Publication
from ccbps.cli.client import (
    CLIENT,
    FILTER,
    LEDGER,
    TOPIC,
    WAIT_SECONDS,
    connected,
    marked,
    role_secret,
    seal_payloads,
    topic_tokens,
)
from ccbps.cli.command import REPEATED, Command, OneOf, Option
from ccbps.cli.inputs import MATCHER, RECORD_FORMAT, Record, read_matcher, read_records
from ccbps.cli.pipeline import Pipeline
from ccbps.cli.secret_files import key_file
from ccbps.errors import CcbpsError, EventError, LedgerError, ParameterError
from ccbps.keys.sources import master
from ccbps.matching import Matcher
from ccbps.matching.contract.roles import Publisher
from ccbps.matching.contract.scheme import Answers, Keying

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS numbers (publisher TEXT PRIMARY KEY, next INTEGER NOT NULL)"
)
_TAKE: Final = (
    "INSERT INTO numbers VALUES (?1, ?2 + ?3) ON CONFLICT DO UPDATE "
    "SET next = max(next, ?2) + ?3 RETURNING next"
)


def take_numbers(path: str, publisher: str, count: int, first: int = 0) -> range:
    """Take the next numbers of a publisher from a file, before anything is published under them.

    A number names one publication for ever. Nobody gets it again, even if it stays unused.

    Args:
        path: path of an SQLite file, made if it does not exist. Publishers may share a file.
        publisher: name of the publisher.
        count: number of numbers.
        first: least number.

    Raises:
        LedgerError: the file cannot be used.
    """
    try:
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = FULL")
            file.execute(_TABLE)
            ((following,),) = file.execute(_TAKE, (publisher, first, count)).fetchall()
    except sqlite3.Error as error:
        raise LedgerError(f"the state {os.fspath(path)} cannot be used: {error}") from None
    return range(following - count, following)


def _publish(arguments: Namespace) -> int:
    r"""Encrypt records of a file or of standard input, and send them to a broker.

    Records are JSON lines or CSV. The command encodes them with the publisher's key, and publishes
    them in their order, up to 64 at once. It ends when the broker has accepted all of them; if the
    broker has a file, they are on its disk then. Publications are numbered; the file of --state
    keeps the next number. If the broker asks for patience, the command waits.

    Subscribers that match get the record. With --seal it is encrypted, and the broker cannot read
    it. With --plain the broker can, whatever the matcher hides. With --empty nobody gets a record.

    Example:
        echo '{"issue": "IBM", "price": 119}' | ccbps publish --matcher quotes.matcher \
            --key feed.key --url mqtt://127.0.0.1:1883 --name feed --password-file feed.password \
            --topic quotes --filter topics.key --seal payloads.seed --state feed.state
    """
    if arguments.timeout is not None:
        checks.number("--timeout", arguments.timeout, 0)
    matcher = read_matcher(arguments.matcher)
    publishing = _Publishing(arguments, matcher)
    try:
        with connected(arguments, arguments.timeout) as client:
            pipeline = Pipeline(client, arguments.timeout)
            for batch in read_records(arguments.records, arguments.format, matcher.schema):
                publishing.publish(pipeline, batch)
    except (CcbpsError, OSError, KeyboardInterrupt):
        print(f"published {publishing.count:,}; continue with --skip {publishing.done}")
        raise
    print(f"published {publishing.count:,}")
    return 0


class _Publishing:
    """Progress of a publisher.

    Attributes:
        done: number of records that were left out or published.
        count: number of records that were published.
    """

    def __init__(self, arguments: Namespace, matcher: Matcher) -> None:
        self._arguments = arguments
        self.done = self.count = 0
        self._has_rounds = matcher.keying is Keying.ROUNDS
        self._labels: list[str] = arguments.to
        secret = role_secret(matcher, key_file(arguments, arguments.key), arguments.ledger)
        if (matcher.answers is Answers.PAIRS) != bool(self._labels):
            raise ParameterError(
                "--to client/name, for each subscription, is needed where each has a seed of its "
                "own, as with FormulaMatch, and only there"
            )
        if self._labels:
            secret = master(key_file(arguments, arguments.key))
        ledger = marked(arguments.ledger, arguments.mark)
        self._publisher: Publisher = matcher.publisher(secret, ledger=ledger)
        checks.whole("--skip", arguments.skip, 0)
        checks.whole("--first", arguments.first, 0)
        self._seed = None
        if arguments.seal is not None:
            self._seed = master(key_file(arguments, arguments.seal))
        has_topic = (arguments.topic or arguments.topic_field) is not None
        self._tokens = topic_tokens(arguments, has_topic)

    def publish(self, pipeline: Pipeline, batch: list[Record]) -> None:
        """Publish a batch of records, without those to skip."""
        skipped = min(len(batch), max(0, self._arguments.skip - self.done))
        self.done += skipped
        if skipped < len(batch):
            pipeline.send(self._encoded(batch[skipped:]), self._accepted)

    def _accepted(self) -> None:
        self.done += 1
        self.count += 1

    def _encoded(self, batch: list[Record]) -> list[Publication]:
        """Encode a publication for each record.

        Raises:
            EventError: a record does not fit the schema, or has no topic.
            RandomnessReuseError: a round was used for something else; nothing is encoded.
        """
        arguments, records = self._arguments, [record.values for record in batch]
        numbers = take_numbers(arguments.state, arguments.name, len(batch), arguments.first)
        tokens = [self._token(values) for values in records]
        payloads = [b"" if arguments.empty else record.text.encode() for record in batch]
        if self._seed is not None:
            payloads = seal_payloads(self._seed, payloads, numbers)
        try:
            messages = self._messages(records, numbers)
        except EventError as error:
            raise EventError(f"in the records from {self.done} on: {error}") from None
        return [
            Publication(number, event, payload, token, number if self._has_rounds else None, own)
            for number, (event, own), payload, token in zip(
                numbers, messages, payloads, tokens, strict=True
            )
        ]

    def _messages(
        self, records: list[dict[str, Any]], numbers: range
    ) -> list[tuple[bytes | None, dict[str, bytes]]]:
        """Encode each record once for all subscriptions, or once for each label."""
        labels = self._labels
        if not labels:
            rows = self._publisher.encode(records, [*numbers] if self._has_rounds else None)
            return [(row.tobytes(), {}) for row in rows]
        rows = self._publisher.encode(
            [record for record in records for _ in labels],
            [number for number in numbers for _ in labels],
            pairs=labels * len(records),
        ).reshape(len(records), len(labels), -1)
        return [
            (None, {label: row.tobytes() for label, row in zip(labels, own, strict=True)})
            for own in rows
        ]

    def _token(self, values: dict[str, Any]) -> bytes | None:
        if self._tokens is None:
            return None
        field = self._arguments.topic_field
        topic = self._arguments.topic if field is None else values.get(field)
        if not isinstance(topic, str):
            raise EventError(f"a record has no text {field!r}, which is its topic")
        return self._tokens.one(topic)


PUBLISH: Final = Command(
    "publish",
    _publish,
    (
        Option("records FILE", "records (default: standard input)", nargs="?", default="-"),
        RECORD_FORMAT,
        MATCHER,
        Option("--key FILE", "publisher's key, or its seed", required=True),
        *CLIENT,
        Option("--state FILE", "numbers that were used; made if it does not exist", required=True),
        OneOf(
            Option("--seal FILE", "encrypt records for the subscribers that have this seed"),
            Option(
                "--plain", "send records as they are: THE BROKER READS THEM", action="store_true"
            ),
            Option(
                "--empty",
                "send no records: matching subscribers get a number",
                action="store_true",
            ),
            required=True,
        ),
        OneOf(TOPIC, Option("--topic-field NAME", "field of a record that holds its topic")),
        FILTER,
        Option(
            "--to CLIENT/NAME",
            "subscription with a seed of its own (FormulaMatch); once for each",
            **REPEATED,
        ),
        *LEDGER,
        Option(
            "--timeout SECONDS",
            "end if the broker gives no answer, or refuses a record for now, for this time "
            f"(default: {WAIT_SECONDS:g} s without an answer)",
            type=float,
        ),
        Option("--skip N", "leave out the first N records", type=int, default=0),
        Option("--first N", "least number, if the state was lost", type=int, default=0),
    ),
)
