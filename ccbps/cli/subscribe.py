"""``ccbps subscribe``: a predicate, encrypted and sent to a broker; and what it delivers."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from argparse import Namespace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ccbps.broker import Delivery, Subscription
from ccbps.cli.command import Command, Parser
from ccbps.cli.connection import add_client, connected
from ccbps.cli.encoding import subscription
from ccbps.cli.matchers import read_matcher
from ccbps.cli.payloads import open_payload
from ccbps.cli.signals import interrupted_by_termination
from ccbps.cli.topics import add_topic, tokens_of
from ccbps.cli.values import text_of
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import FileKey, master

if TYPE_CHECKING:
    from ccbps.mqtt import MqttClient


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "predicate",
        metavar="TEXT",
        nargs="?",
        help="predicate, or values of private constants as JSON; without one, go on receiving",
    )
    parser.add_argument("--matcher", metavar="FILE", help="that explain --out wrote")
    parser.add_argument("--key", metavar="FILE", help="subscriber's key, or its seed")
    add_client(parser)
    parser.add_argument(
        "--as",
        metavar="NAME",
        dest="subscription",
        default="subscription",
        help="the subscription's name; it replaces an earlier one (default: subscription)",
    )
    add_topic(parser)
    parser.add_argument("--open", metavar="FILE", help="seed of payloads, as of publish --seal")
    parser.add_argument("--count", metavar="N", type=int, help="end after N deliveries")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, help="end when nothing came for so long"
    )
    parser.add_argument(
        "--forget", action="store_true", help="take the subscription back at the end"
    )
    parser.add_argument("--publisher", metavar="NAME", help="whose, for one-time matchers")
    parser.add_argument(
        "--rounds", metavar="FIRST:COUNT", help="which of its numbers, for one-time matchers"
    )
    parser.add_argument("--ledger", metavar="FILE", help="of used rounds, for one-time matchers")


def _run(arguments: Namespace) -> int:
    wanted = None if arguments.predicate is None else _subscription(arguments)
    seed = None if arguments.open is None else master(FileKey(arguments.open))
    if arguments.count is not None and arguments.count < 0:
        raise ParameterError(f"--count must be at least 0, got {arguments.count}")
    with interrupted_by_termination(), connected(arguments) as client:
        if wanted is not None:
            client.subscribe(wanted)
            print(f"ccbps: subscribed as {wanted.name}", file=sys.stderr)
        try:
            whole = _receive(client, seed, arguments.count, arguments.wait)
        except KeyboardInterrupt:
            whole = True  # the usual end
        finally:
            if arguments.forget:
                client.unsubscribe(arguments.subscription)
    return 0 if whole else 1


def _subscription(arguments: Namespace) -> Subscription:
    if arguments.matcher is None or arguments.key is None:
        raise ParameterError("a predicate needs --matcher FILE and --key FILE")
    matcher, interest = read_matcher(arguments.matcher), text_of(arguments.predicate)
    tokens = tokens_of(arguments, arguments.topic is not None)
    return subscription(
        matcher,
        arguments.key,
        interest if matcher.private_names is None else _values(interest),
        arguments.name,
        arguments.subscription,
        token=None if tokens is None else tokens.one(arguments.topic),
        ledger=arguments.ledger,
        publisher=arguments.publisher,
        rounds=None if arguments.rounds is None else _rounds(arguments.rounds),
    )


def _values(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text, parse_float=Decimal)
        if isinstance(found, dict):
            return found
    raise ParameterError(
        "this matcher has a public template, and takes values of its private constants as a JSON "
        'object, {"limit": 120}'
    )


def _rounds(text: str) -> range:
    first, colon, count = text.partition(":")
    if not colon or not first.isdecimal() or not count.isdecimal() or not int(count):
        raise ParameterError(f"--rounds takes FIRST:COUNT, such as 0:1000, got {text!r}")
    return range(int(first), int(first) + int(count))


def _receive(
    client: MqttClient, seed: SharedSeed | None, count: int | None, wait: float | None
) -> bool:
    """Print deliveries as they come; returns whether so many came as were wanted."""
    number = 0
    while number != count:
        try:
            delivery = client.receive(wait)
        except TimeoutError:
            return count is None
        print(json.dumps(_shown(delivery, seed)), flush=True)
        number += 1
    return True


def _shown(delivery: Delivery, seed: SharedSeed | None) -> dict[str, Any]:
    """A delivery as JSON. Whatever somebody published, it is one line, and not an error."""
    shown: dict[str, Any] = {
        "publisher": delivery.publisher,
        "number": delivery.number,
        "subscriptions": [*delivery.names],
    }
    payload = delivery.payload
    if not payload:
        return shown
    if seed is not None:
        try:
            payload = open_payload(seed, payload, delivery.number)
        except DecodeError as error:
            return shown | {"error": str(error)}
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(payload)
        json.dumps(record, allow_nan=False)
        return shown | {"record": record}
    return shown | {"payload": base64.b64encode(payload).decode()}


SUBSCRIBE: Final = Command(
    "subscribe",
    "send an encrypted predicate to a broker, and print what it delivers",
    "Encodes the predicate with the subscriber's key, sends it, and prints a line of JSON for\n"
    "each delivery: publisher and number, which name a publication for ever, and the record, if\n"
    "it came with one. Ends with Ctrl-C; the subscription stays, and what matches waits at the\n"
    "broker for the next run, unless you say --forget. A line may come twice, with the same\n"
    "number, if this was killed.\n\n"
    "The constants of a predicate are secret: where others use this machine, write @FILE.",
    "ccbps subscribe \"issue = 'IBM' AND price < 120\" --matcher quotes.matcher \\\n"
    "    --key alice.key --url mqtt://127.0.0.1:1883 --name alice \\\n"
    "    --password-file alice.password --topic quotes --filter topics.key \\\n"
    "    --open payloads.seed",
    _add_arguments,
    _run,
)
