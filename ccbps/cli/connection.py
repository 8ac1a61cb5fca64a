"""How a command finds its MQTT server, and as whom it goes there."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ccbps.cli.command import Parser
from ccbps.cli.passwords import VARIABLE, read_password

if TYPE_CHECKING:
    from ccbps.mqtt import MqttClient, MqttUrl

WAIT_SECONDS: Final = 10.0
"""For an answer of the broker, each of three times."""


def add_access(parser: Parser) -> None:
    """The arguments on how to be let in."""
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"with the password at the MQTT server; else the variable {VARIABLE} has it",
    )
    parser.add_argument("--ca", metavar="FILE", help="TLS: certificates to trust, not the system's")
    parser.add_argument(
        "--mqtt", type=int, choices=(3, 5), default=3, help="version: 3 for 3.1.1 (default), or 5"
    )


def add_client(parser: Parser) -> None:
    """The arguments of a publisher or subscriber."""
    parser.add_argument("--url", required=True, help="MQTT server: mqtt://host:port, mqtts://...")
    parser.add_argument("--name", required=True, help="yours, at the server and the broker")
    add_access(parser)


def url_of(arguments: Namespace, name: str) -> MqttUrl:
    """Where to go, and as whom."""
    from ccbps.mqtt import MqttUrl

    password = read_password(arguments.password_file)
    return MqttUrl(arguments.url, name, password, arguments.ca, arguments.mqtt)


@contextmanager
def trying(url: str) -> Iterator[None]:
    """Errors of the system in the block name the server."""
    try:
        yield
    except OSError as error:
        raise OSError(f"no connection to {url}: {error.strerror or error}") from None


@contextmanager
def connected(arguments: Namespace) -> Iterator[MqttClient]:
    """A client, in its connection.

    Raises:
        OSError: there is no server, or it refuses.
    """
    from ccbps.mqtt import MqttClient

    client = MqttClient(url_of(arguments, arguments.name), timeout=WAIT_SECONDS)
    with trying(arguments.url):
        client.start()
    try:
        yield client
    finally:
        client.stop()
