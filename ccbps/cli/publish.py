"""``ccbps publish``: encrypt records, and send them to a broker.

With a key server, a message is for all subscriptions. With rounds, a publication's number is its
round. The event is one message for all subscriptions (`BroadcastMatch`), or one for each
subscription, whose label ``client/name`` names its seed (`FormulaMatch`).
"""

from __future__ import annotations

import os
import sqlite3
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

import numpy as np

from ccbps import checks
from ccbps.broker import Publication
from ccbps.cli.client import (
    CLIENT,
    CONTENTS,
    FILTER,
    LEDGER,
    TOPIC,
    WAIT_SECONDS,
    connected,
    content_filter,
    greet,
    marked,
    role_secret,
    seal_payloads,
    sealed,
    topic_tokens,
)
from ccbps.cli.command import JSON, REPEATED, Command, OneOf, Option, answer
from ccbps.cli.inputs import MATCHER, NUMBERS, numbers_from, read_matcher
from ccbps.cli.pipeline import Pipeline
from ccbps.cli.progress import progress
from ccbps.cli.records import FORMAT, Block, Reject, read_records
from ccbps.cli.rejecting import ON_ERROR, Reasons, Rejects, usable
from ccbps.cli.secret_files import key_file
from ccbps.errors import CcbpsError, LedgerError, ParameterError
from ccbps.keys.sources import master
from ccbps.matching import Matcher
from ccbps.matching.contract.roles import Publisher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.predicates import Events

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS numbers (publisher TEXT PRIMARY KEY, next INTEGER NOT NULL)"
)
# There is no row if a number would be too large.
_TAKE: Final = (
    "INSERT INTO numbers VALUES (:publisher, :first + :count) ON CONFLICT DO UPDATE "
    "SET next = max(next, :first) + :count WHERE next <= :most - :count RETURNING next"
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
        LedgerError: the file cannot be used, or its numbers are used up.
        ParameterError: the least number is too large.
    """
    numbers_from("--first", first, count + 1)
    try:
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = FULL")
            file.execute(_TABLE)
            given = {"publisher": publisher, "first": first, "count": count, "most": NUMBERS - 1}
            taken = file.execute(_TAKE, given).fetchall()
    except sqlite3.Error as error:
        raise LedgerError(f"the state {os.fspath(path)} cannot be used: {error}") from None
    if not taken:
        raise LedgerError(f"the state {os.fspath(path)} has no numbers left for {publisher}")
    following = taken[0][0]
    return range(following - count, following)


def _publish(arguments: Namespace) -> int:
    r"""Encrypt records of a file or of standard input, and send them to a broker.

    Records are JSON lines, CSV or Parquet. The command encodes them with the publisher's key, and
    publishes them in their order, up to 64 at once. It ends when the broker has accepted all of
    them; if the broker has a file, they are on its disk then. Publications are numbered; the file
    of --state keeps the next number. If the broker asks for patience, the command waits.

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
    with (
        Rejects(arguments, resumed=True) as rejects,
        progress(None, " records", shown=arguments.records != "-") as advance,
    ):
        publishing = _Publishing(arguments, matcher, rejects, advance)
        try:
            with connected(arguments, arguments.timeout) as client:
                greet(client, publishing.role)
                pipeline = Pipeline(client, arguments.timeout)
                for block in publishing.blocks():
                    publishing.publish(pipeline, block)
        except (CcbpsError, OSError, KeyboardInterrupt):
            another = " and another --rejects FILE" if arguments.rejects and rejects.count else ""
            publishing.tell(f"; continue with --skip {publishing.done}{another}")
            raise
    publishing.tell(str(rejects))
    return 0


class _Publishing:
    """Progress of a publisher.

    Args:
        arguments: options of the command.
        matcher: the matcher.
        rejects: records that cannot be used.
        advance: called with the number of records that the broker has accepted.

    Attributes:
        role: role that encodes the records.
        done: number of the first record that was not left out, rejected or published.
        count: number of records that were published.
    """

    def __init__(
        self,
        arguments: Namespace,
        matcher: Matcher,
        rejects: Rejects,
        advance: Callable[[int], object],
    ) -> None:
        self._arguments, self._matcher, self._rejects = arguments, matcher, rejects
        self._advance = advance
        checks.whole("--skip", arguments.skip, 0)
        numbers_from("--first", arguments.first)
        self.done, self.count = arguments.skip, 0
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
        self.role: Publisher = matcher.publisher(secret, ledger=ledger)
        self._seed = None
        if arguments.seal is not None:
            self._seed = master(key_file(arguments, arguments.seal))
        has_topic = (arguments.topic or arguments.topic_field) is not None
        self._tokens = topic_tokens(arguments, has_topic)
        self._contents = content_filter(arguments, matcher)

    def tell(self, more: str) -> None:
        """Print how many records were published, and more."""
        answer(
            self._arguments,
            f"published {self.count:,}{more}",
            published=self.count,
            rejected=self._rejects.count,
            skip=self.done,
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the records in blocks."""
        arguments = self._arguments
        yield from read_records(
            arguments.records, arguments.format, self._matcher.schema, self._reject, bar=False
        )

    @property
    def _reject(self) -> Reject | None:
        """Function that notes a record, unless it was left out."""
        note, skip = self._rejects.note, self._arguments.skip
        if note is None:
            return None
        return lambda number, reason: note(number, reason) if number >= skip else None

    def publish(self, pipeline: Pipeline, block: Block) -> None:
        """Publish the records of a block, without those to skip."""
        following = block.following
        numbers = np.asarray(block.numbers)
        if len(numbers) and numbers[0] < self._arguments.skip:
            block = block.take(numbers >= self._arguments.skip)
        events, block = usable(block, self._matcher.schema, self._reject, self._topicless(block))
        if len(block):
            places = iter(block.numbers)

            def accepted() -> None:
                self.done = next(places) + 1
                self.count += 1
                self._advance(1)

            pipeline.send(self._encoded(events, block), accepted)
        self.done = max(self.done, following)

    def _topicless(self, block: Block) -> Reasons | None:
        """Return why records have no topic; None if they have."""
        field = self._arguments.topic_field
        if field is None:
            return None
        topics = block.python_values(field)
        return np.array(
            [
                None if isinstance(topic, str) else f"{field!r} is no text, and the topic"
                for topic in topics
            ],
            dtype=np.object_,
        )

    def _encoded(self, events: Events, block: Block) -> list[Publication]:
        """Encode a publication for each record.

        Raises:
            RandomnessReuseError: a round was used for something else; nothing is encoded.
        """
        arguments = self._arguments
        numbers = take_numbers(arguments.state, arguments.name, len(block), arguments.first)
        payloads = [b""] * len(block)
        if not arguments.empty:
            payloads = [text.encode() for text in block.texts()]
        if self._seed is not None:
            payloads = seal_payloads(self._seed, payloads, numbers)
        masks: list[bytes | None] = [None] * len(block)
        if self._contents is not None:
            masks = [mask.tobytes() for mask in self._contents.events(events)]
        turns = numbers if self._has_rounds else [None] * len(block)
        topics, messages = self._topics(block), self._messages(events, numbers)
        return [
            Publication(number, event, payload, token, turn, own, mask=mask)
            for number, (event, own), payload, token, turn, mask in zip(
                numbers, messages, payloads, topics, turns, masks, strict=True
            )
        ]

    def _messages(
        self, events: Events, numbers: range
    ) -> list[tuple[bytes | None, dict[str, bytes]]]:
        """Encode each record once for all subscriptions, or once for each label."""
        labels = self._labels
        if not labels:
            rows = self.role.encode(events, [*numbers] if self._has_rounds else None)
            rows = sealed(self.role, rows)
            return [(row.tobytes(), {}) for row in rows]
        rows = self.role.encode(
            events.take(np.repeat(np.arange(len(events)), len(labels))),
            np.repeat(np.array(numbers, dtype=np.uint64), len(labels)),
            pairs=labels * len(events),
        ).reshape(len(events), len(labels), -1)
        return [
            (None, {label: row.tobytes() for label, row in zip(labels, own, strict=True)})
            for own in rows
        ]

    def _topics(self, block: Block) -> list[bytes | None]:
        """Return the token of each record's topic."""
        if self._tokens is None:
            return [None] * len(block)
        field = self._arguments.topic_field
        topics = [self._arguments.topic] * len(block)
        if field is not None:
            topics = block.python_values(field)
        tokens = {topic: self._tokens.one(topic) for topic in {*topics}}
        return [tokens[topic] for topic in topics]


PUBLISH: Final = Command(
    "publish",
    _publish,
    (
        Option("records FILE", "records (default: standard input)", nargs="?", default="-"),
        FORMAT,
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
        CONTENTS,
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
        *ON_ERROR,
        JSON,
        Option("--skip N", "leave out the first N records", type=int, default=0),
        Option("--first N", "least number, if the state was lost", type=int, default=0),
    ),
)
