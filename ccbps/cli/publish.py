"""``ccbps publish``: records of a file, encrypted and sent to a broker."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any, Final

from ccbps.broker import Publication
from ccbps.cli.command import Command, Parser
from ccbps.cli.connection import add_client, connected
from ccbps.cli.encoding import Outgoing
from ccbps.cli.matchers import read_matcher
from ccbps.cli.payloads import sealed_payloads
from ccbps.cli.publication_numbers import take_numbers
from ccbps.cli.records import Record, add_records, batches
from ccbps.cli.topics import add_topic, tokens_of
from ccbps.errors import CcbpsError, EventError, ParameterError, RefusedError
from ccbps.keys.sources import FileKey, master

if TYPE_CHECKING:
    from ccbps.mqtt import MqttClient

_LATER: Final = ("rate", "cost", "queue")
"""Reasons for which a broker refuses what it takes later."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
"""Seconds."""


def _add_arguments(parser: Parser) -> None:
    add_records(parser, "records", "records; standard input if left out")
    parser.add_argument("--matcher", metavar="FILE", required=True, help="that explain --out wrote")
    parser.add_argument("--key", metavar="FILE", required=True, help="publisher's key, or its seed")
    add_client(parser)
    parser.add_argument(
        "--state", metavar="FILE", required=True, help="numbers that were used; made if not there"
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument(
        "--seal", metavar="FILE", help="encrypt records for those with this seed, who get them"
    )
    payload.add_argument(
        "--plain", action="store_true", help="send records as they are: THE BROKER READS THEM"
    )
    payload.add_argument(
        "--empty", action="store_true", help="send no records: who matches gets a number"
    )
    add_topic(parser).add_argument(
        "--topic-field", metavar="NAME", help="attribute of a record that is its topic"
    )
    parser.add_argument(
        "--to",
        metavar="CLIENT/NAME",
        action="append",
        default=[],
        help="a subscription with a seed of its own (FormulaMatch); again for each",
    )
    parser.add_argument("--ledger", metavar="FILE", help="of used rounds, for one-time matchers")
    parser.add_argument("--skip", metavar="N", type=int, default=0, help="leave out N records")
    parser.add_argument(
        "--first", metavar="N", type=int, default=0, help="least number, if the state was lost"
    )


def _run(arguments: Namespace) -> int:
    matcher = read_matcher(arguments.matcher)
    outgoing = Outgoing(matcher, arguments.key, arguments.ledger, arguments.to)
    publishing = _Publishing(arguments, outgoing)
    try:
        with connected(arguments) as client:
            for batch in batches(arguments.records, arguments.format, matcher.schema):
                publishing.publish(client, batch)
    except (CcbpsError, OSError, KeyboardInterrupt):
        # So that somebody can go on from there.
        print(f"published {publishing.count:,}; go on with --skip {publishing.done}")
        raise
    print(f"published {publishing.count:,}")
    return 0


class _Publishing:
    """Records on their way.

    Attributes:
        done: records that were left out or published.
        count: records that were published.
    """

    def __init__(self, arguments: Namespace, outgoing: Outgoing) -> None:
        self._arguments, self._outgoing = arguments, outgoing
        self.done = self.count = 0
        self._waited = False
        if min(arguments.skip, arguments.first) < 0:
            raise ParameterError("--skip and --first must be at least 0")
        self._seed = None if arguments.seal is None else master(FileKey(arguments.seal))
        self._tokens = tokens_of(arguments, (arguments.topic or arguments.topic_field) is not None)

    def publish(self, client: MqttClient, batch: list[Record]) -> None:
        """Publish what is not to be left out."""
        left_out = min(len(batch), max(0, self._arguments.skip - self.done))
        self.done += left_out
        batch = batch[left_out:]
        if not batch:
            return
        for publication in self._encoded(batch):
            self._send(client, publication)
            self.done += 1
            self.count += 1

    def _encoded(self, batch: list[Record]) -> list[Publication]:
        arguments = self._arguments
        numbers = take_numbers(arguments.state, arguments.name, len(batch), arguments.first)
        tokens = [self._token(record.values) for record in batch]
        payloads = [b"" if arguments.empty else record.text.encode() for record in batch]
        if self._seed is not None:
            payloads = sealed_payloads(self._seed, payloads, numbers)
        values = [record.values for record in batch]
        try:
            return self._outgoing.publications(values, numbers, payloads, tokens)
        except EventError as error:
            place = self.done + (error.row or 0)
            raise EventError(f"in the records from {self.done} on: {error}", row=place) from None

    def _token(self, values: dict[str, Any]) -> bytes | None:
        if self._tokens is None:
            return None
        field = self._arguments.topic_field
        if field is None:
            return self._tokens.one(self._arguments.topic)
        if not isinstance(values.get(field), str):
            raise EventError(f"a record has no text {field!r}, which is to be its topic")
        return self._tokens.one(values[field])

    def _send(self, client: MqttClient, publication: Publication) -> None:
        """Publish; wait where the broker asks for that, and say so once."""
        pause = FIRST_PAUSE
        while True:
            try:
                client.publish(publication)
                return
            except RefusedError as error:
                if error.reason not in _LATER:
                    raise
                if not self._waited:
                    print(f"ccbps: waiting, for the broker says: {error}", file=sys.stderr)
                self._waited = True
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


PUBLISH: Final = Command(
    "publish",
    "encrypt records of a file, or of standard input, and send them to a broker",
    "Takes records, JSON lines or CSV, encodes them with the publisher's key, and publishes them\n"
    "one after another; each one is on the broker's disk, if it has a file, when the next one is\n"
    "sent. Numbers of publications go on where they ended, by the file of --state. Where the\n"
    "broker asks for patience, this waits.\n\n"
    "Those who match get the record: encrypted with --seal, and then the broker cannot read it.\n"
    "With --plain it can, whatever the matcher hides. With --empty nobody gets any.",
    'echo \'{"issue": "IBM", "price": 119}\' | ccbps publish --matcher quotes.matcher \\\n'
    "    --key feed.key --url mqtt://127.0.0.1:1883 --name feed --password-file feed.password \\\n"
    "    --topic quotes --filter topics.key --seal payloads.seed --state feed.state",
    _add_arguments,
    _run,
)
