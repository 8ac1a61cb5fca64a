"""``ccbps subscribe``: encrypt a predicate, send it to a broker, and print what it delivers.

With a key server, an interest is encoded once. With rounds, it is encoded ahead for the
publisher's coming numbers, which are the rounds.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any, Final

from ccbps import checks
from ccbps.broker import Delivery, Subscription
from ccbps.cli.client import (
    CLIENT,
    CONTENTS,
    FILTER,
    LEDGER,
    TOPIC,
    connected,
    content_filter,
    greet,
    marked,
    open_payload,
    role_secret,
    sealed,
    topic_tokens,
)
from ccbps.cli.command import Command, Option
from ccbps.cli.inputs import read_matcher, read_rounds, read_text, read_values
from ccbps.cli.secret_files import key_file
from ccbps.cli.signals import interrupted_by_termination
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import master
from ccbps.matching.contract.roles import Subscriber
from ccbps.matching.contract.scheme import Answers, Keying

if TYPE_CHECKING:
    from ccbps.mqtt import MqttClient


def _subscribe(arguments: Namespace) -> int:
    r"""Send an encrypted predicate to a broker, and print what it delivers.

    The command encodes the predicate with the subscriber's key and sends it. Then it prints a line
    of JSON for each delivery: the publisher and the number, which name a publication for ever, and
    the record, if the publication has one. It ends with Ctrl-C. The subscription stays, and
    deliveries wait at the broker for the next run, unless you pass --forget. If the command was
    killed, a line may come twice, with the same number.

    The constants of a predicate are secret: where others use this machine, write @FILE.

    Example:
        ccbps subscribe "issue = 'IBM' AND price < 120" --matcher quotes.matcher \
            --key alice.key --url mqtt://127.0.0.1:1883 --name alice \
            --password-file alice.password --topic quotes --filter topics.key \
            --open payloads.seed
    """
    role, subscription = None, None
    if arguments.predicate is not None:
        role, subscription = _subscription(arguments)
    seed = None if arguments.open is None else master(key_file(arguments, arguments.open))
    if arguments.count is not None:
        checks.whole("--count", arguments.count, 0)
    with interrupted_by_termination(), connected(arguments) as client:
        if role is not None and subscription is not None:
            greet(client, role)
            client.subscribe(subscription)
            print(f"ccbps: subscribed as {subscription.name}", file=sys.stderr)
        try:
            complete = _receive(client, seed, arguments.count, arguments.wait)
        except KeyboardInterrupt:
            complete = True  # the usual end
        finally:
            if arguments.forget:
                client.unsubscribe(arguments.subscription)
    return 0 if complete else 1


def _subscription(arguments: Namespace) -> tuple[Subscriber, Subscription]:
    """Encode the predicate, or the values of private constants; return the role, too.

    Raises:
        PredicateError: the predicate cannot be used.
        ParameterError: an option is missing, or does not fit the matcher.
    """
    if arguments.matcher is None or arguments.key is None:
        raise ParameterError("a predicate needs --matcher FILE and --key FILE")
    matcher, interest = read_matcher(arguments.matcher), read_text(arguments.predicate)
    tokens = topic_tokens(arguments, arguments.topic is not None)
    token = None if tokens is None else tokens.one(arguments.topic)
    contents = content_filter(arguments, matcher)
    values = interest if matcher.private_names is None else read_values(interest)
    rounds = None if arguments.rounds is None else read_rounds(arguments.rounds)
    secret = role_secret(matcher, key_file(arguments, arguments.key), arguments.ledger)
    ledger = marked(arguments.ledger, arguments.mark)
    subscriber: Subscriber = matcher.subscriber(secret, ledger=ledger)
    name, publisher = arguments.subscription, arguments.publisher
    if (matcher.keying is Keying.ROUNDS) != (rounds is not None and publisher is not None):
        raise ParameterError(
            "--publisher NAME and --rounds FIRST:COUNT are needed where messages are one-time, and "
            "only there"
        )
    if rounds is None:
        rows = sealed(subscriber, subscriber.encode(values))
        mask = None if contents is None else contents.interests([interest])[0].tobytes()
        return subscriber, Subscription(name, rows, token, mask=mask)
    label = f"{arguments.name}/{name}"
    pairs = [label] * len(rounds) if matcher.answers is Answers.ROUND else None
    rows = subscriber.encode(values, rounds, pairs=pairs)
    return subscriber, Subscription(name, rows, token, publisher, rounds.start)


def _receive(
    client: MqttClient, seed: SharedSeed | None, count: int | None, wait: float | None
) -> bool:
    """Print deliveries as they come, and return whether `count` of them came."""
    number = 0
    while number != count:
        try:
            delivery = client.receive(wait)
        except TimeoutError:
            return count is None
        print(json.dumps(_delivered(delivery, seed)), flush=True)
        number += 1
    return True


def _delivered(delivery: Delivery, seed: SharedSeed | None) -> dict[str, Any]:
    """Return a delivery as JSON, whatever its publisher sent: a bad payload is no error."""
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
    _subscribe,
    (
        Option(
            "predicate TEXT",
            "predicate, or values of private constants as JSON (default: only receive)",
            nargs="?",
        ),
        Option("--matcher FILE", "matcher that plan or explain wrote"),
        Option("--key FILE", "subscriber's key, or its seed"),
        *CLIENT,
        Option(
            "--as NAME",
            "name of the subscription; replaces one of the same name (default: subscription)",
            dest="subscription",
            default="subscription",
        ),
        TOPIC,
        FILTER,
        CONTENTS,
        Option("--open FILE", "seed of payloads, the same as for publish --seal"),
        Option("--count N", "end after N deliveries", type=int),
        Option("--wait SECONDS", "end if no delivery comes for this time", type=float),
        Option("--forget", "remove the subscription at the end", action="store_true"),
        Option("--publisher NAME", "publisher of the events, for one-time matchers"),
        Option("--rounds FIRST:COUNT", "publisher's numbers, for one-time matchers"),
        *LEDGER,
    ),
)
