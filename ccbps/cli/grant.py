"""``ccbps grant``: say, as the authority of three brokers, which events clients may see at all."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from ccbps.broker import SealedGrants
from ccbps.cli.client import CLIENT, connected
from ccbps.cli.command import JSON, Command, OneOf, Option, answer
from ccbps.cli.inputs import MATCHER, read_file, read_shares_matcher, read_text
from ccbps.cli.secret_files import key_file
from ccbps.cli.signals import interrupted_by_termination
from ccbps.errors import ParameterError
from ccbps.keys.sources import client_key
from ccbps.shares.grants import grant_number
from ccbps.shares.public_clients import PublicClient


def _grant(arguments: Namespace) -> int:
    r"""Say which events clients of three brokers may see at all.

    The authority gives a grant to each client, unknown to the brokers. A client gets what its
    subscriptions and its grant allow. A grant takes the place of the client's earlier one, also for
    subscriptions that are there: all three brokers change over between the same two events. With
    --nothing, the client sees nothing from here on, and keeps its subscriptions.

    A grant is a box: a range of values for each attribute. Its number must be greater than those of
    the client's earlier grants. By default it is the time in nanoseconds.

    Example:
        ccbps grant "price < 100" --to alice.public --matcher three.matcher --key authority.key \
            --url mqtt://127.0.0.1:1883 --name authority --password-file authority.password
    """
    matcher = read_shares_matcher(arguments.matcher)
    authority = matcher.authority(client_key(key_file(arguments, arguments.key)))
    predicate = None if arguments.nothing else read_text(arguments.predicate)
    clients = [PublicClient.from_text(read_file(path)) for path in arguments.to]
    for path, client in zip(arguments.to, clients, strict=True):
        if client.matcher != matcher.digest:
            raise ParameterError(f"{path} was made for another matcher: keygen public makes it")
    names = [client.name for client in clients]
    messages = authority.grant(predicate, names, number=arguments.number)
    with interrupted_by_termination(), connected(arguments, arguments.timeout) as connection:
        connection.grant(SealedGrants(messages))
    number = grant_number(messages[0].tobytes())
    text = f"grant {number} counts for {', '.join(arguments.to)}"
    answer(arguments, text, number=number, clients=[name.hex() for name in names])
    return 0


GRANT: Final = Command(
    "grant",
    _grant,
    (
        OneOf(
            Option("predicate TEXT", "the events that the clients may see", nargs="?"),
            Option("--nothing", "let the clients see no events", action="store_true"),
            required=True,
        ),
        Option("--to FILE", "public sides of the clients, keygen public", nargs="+", required=True),
        MATCHER,
        Option("--key FILE", "the authority's key, keygen client", required=True),
        *CLIENT,
        Option("--number N", "number of the grant (default: nanoseconds since 1970)", type=int),
        Option("--timeout SECONDS", "time to wait for the broker (default: 10)", type=float),
        JSON,
    ),
)
