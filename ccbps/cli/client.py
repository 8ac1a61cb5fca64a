"""Common parts of publish and subscribe: the connection, keys, topics and payloads.

Payloads are encrypted under a seed that a publisher and its subscribers share and the broker does
not have. Each payload has a key of its own (`ccbps.delivery.PayloadSealer`), and travels with that
key, wrapped for the pair `PAIR`. The publication's number is bound to both, so nobody without the
seed can replace a payload by another.

Hazard: all who have the seed can read all payloads that they get, and could have sealed them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.broker import Hellos
from ccbps.cli.command import Option
from ccbps.cli.secret_files import SHARED_KEYS, VARIABLE, key_file, read_password
from ccbps.delivery.naive import KEY_BYTES, PayloadOpener, PayloadSealer
from ccbps.errors import ParameterError
from ccbps.filters.contents import ContentFilter
from ccbps.filters.tokens import TopicTokens
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import FileKey, client_key, filter_key, role_key, seeds
from ccbps.matching import Matcher
from ccbps.matching.contract.roles import MatcherRole
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.rounds.ledger_file import MarkedLedger

if TYPE_CHECKING:
    from ccbps.mqtt import MqttClient, MqttUrl

WAIT_SECONDS: Final = 10.0
"""Seconds that a request waits for the broker's answer."""
PAIR: Final = "payloads of the command line"

ACCESS: Final = (
    Option(
        "--password-file FILE",
        f"password at the MQTT server (default: the variable {VARIABLE})",
    ),
    SHARED_KEYS,
    Option("--ca FILE", "TLS certificates to trust (default: the system's)"),
    Option(
        "--mqtt", "MQTT version: 3 for 3.1.1 (default), or 5", type=int, choices=(3, 5), default=3
    ),
)
CLIENT: Final = (
    Option("--url URL", "MQTT server: mqtt://host:port or mqtts://host:port", required=True),
    Option("--name NAME", "your name at the server and the broker", required=True),
    *ACCESS,
)
TOPIC: Final = Option("--topic TEXT", "the topic (default: all topics)")
FILTER: Final = Option("--filter FILE", "key of topics, which hides them from the broker")
CONTENTS: Final = Option(
    "--contents FILE",
    "key of a content filter, keygen filter, for a broker with --masks: THE BROKER SEES which "
    "records and predicates are alike",
)
MARK: Final = Option(
    "--mark FILE", "mark of the ledger, on another disk, which notices an older copy"
)
LEDGER: Final = (
    Option("--ledger FILE", "ledger of used rounds, for one-time matchers"),
    MARK,
)


def mqtt_url(arguments: Namespace, name: str) -> MqttUrl:
    """Return the MQTT server's URL with a user's name and password."""
    from ccbps.mqtt import MqttUrl

    password = read_password(arguments)
    return MqttUrl(arguments.url, name, password, arguments.ca, arguments.mqtt)


@contextmanager
def naming_server(url: str) -> Iterator[None]:
    """Name the server in errors of the system that the block raises."""
    try:
        yield
    except OSError as error:
        raise OSError(f"no connection to {url}: {error.strerror or error}") from None


@contextmanager
def connected(arguments: Namespace, timeout: float | None = None) -> Iterator[MqttClient]:
    """Connect a client in the block.

    Args:
        arguments: options of `CLIENT`.
        timeout: seconds that a request waits for its answer; None for `WAIT_SECONDS`.

    Raises:
        OSError: the server cannot be reached, or refuses the client.
    """
    from ccbps.mqtt import MqttClient

    client = MqttClient(
        mqtt_url(arguments, arguments.name),
        timeout=WAIT_SECONDS if timeout is None else timeout,
        on_warning=lambda text: print(f"ccbps: warning: {text}", file=sys.stderr),
    )
    with naming_server(arguments.url):
        client.start()
    try:
        yield client
    finally:
        client.stop()


def marked(ledger: str | None, mark: str | None) -> str | MarkedLedger | None:
    """Return a ledger with its mark, if it has one.

    Raises:
        ParameterError: there is a mark and no ledger.
    """
    if mark is None:
        return ledger
    if ledger is None:
        raise ParameterError("--mark FILE is the mark of a ledger, and needs --ledger FILE")
    return MarkedLedger(ledger, mark)


def role_secret(matcher: Matcher, key: FileKey, ledger: str | None) -> Any:
    """Return the key or the seeds of a publisher or subscriber, as `Matcher.publisher` takes them.

    Args:
        matcher: the public parameters.
        key: source of the key.
        ledger: path of the ledger of used rounds; None for none.

    Raises:
        ParameterError: the matcher has rounds and no ledger is given, or it has sessions.
    """
    scheme = type(matcher).__name__
    if matcher.keying is Keying.SESSION:
        raise ParameterError(
            f"{scheme}'s publishers and subscribers talk first, and keep the result: write a "
            "program for them, as docs/matchers/oblivious_topic.md shows"
        )
    if matcher.keying is Keying.BROKERS:
        return client_key(key)
    if matcher.keying is Keying.SERVER:
        return role_key(key)
    if ledger is None:
        raise ParameterError(
            f"{scheme} uses each round once: --ledger FILE remembers the used ones; the file is "
            "made if it does not exist"
        )
    return seeds(key)


def greet(client: MqttClient, role: MatcherRole) -> None:
    """Let three brokers have the keys of a role, if the matcher has three."""
    if role.matcher.keying is Keying.BROKERS:
        client.greet(Hellos(role.hellos))


def sealed(role: MatcherRole, messages: Bytes) -> Bytes:
    """Return messages as they are sent: with three brokers, sealed for each of them."""
    return role.seal(messages) if role.matcher.keying is Keying.BROKERS else messages


def topic_tokens(arguments: Namespace, has_topic: bool) -> TopicTokens | None:
    """Return the maker of topics' tokens, or None if there are no topics.

    Raises:
        ParameterError: there is a topic without a key, or a key without a topic.
    """
    if has_topic != (arguments.filter is not None):
        raise ParameterError("a topic needs the key of topics, --filter FILE, and it needs a topic")
    return TopicTokens(filter_key(key_file(arguments, arguments.filter))) if has_topic else None


def content_filter(arguments: Namespace, matcher: Matcher) -> ContentFilter | None:
    """Return the maker of masks, or None if there are no masks.

    Raises:
        ParameterError: masks would show what the matcher hides, and no broker takes them.
    """
    if arguments.contents is None:
        return None
    if matcher.answers is not Answers.ALL:
        raise ParameterError(
            f"--contents shows the broker what {type(matcher).__name__} hides: leave it out"
        )
    key = filter_key(key_file(arguments, arguments.contents))
    return ContentFilter(matcher.schema, key)


def seal_payloads(seed: SharedSeed, payloads: list[bytes], numbers: range) -> list[bytes]:
    """Encrypt the payloads of publications. Each number is used once."""
    sealer = PayloadSealer(seed)
    wraps = sealer.wrap([*numbers], [*numbers], pairs=[PAIR] * len(numbers))
    sealed = sealer.seal(payloads, [*numbers])
    return [wrap.tobytes() + payload for wrap, payload in zip(wraps, sealed, strict=True)]


def open_payload(seed: SharedSeed, sealed: bytes, number: int) -> bytes:
    """Decrypt the payload of a publication.

    Raises:
        DecodeError: it was altered, or not sealed with this seed for this number.
    """
    wrap = np.frombuffer(sealed[:KEY_BYTES], dtype=np.uint8)[None]
    return PayloadOpener(seed.pair(PAIR)).open([sealed[KEY_BYTES:]], wrap, [number])[0]
