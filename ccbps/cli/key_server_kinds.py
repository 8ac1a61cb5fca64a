"""Keys that a key server gives out; and what it does beside that."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Callable
from typing import Final

from ccbps.cli.command import Command, Parser
from ccbps.cli.key_files import add_out, keep
from ccbps.cli.matchers import read_matcher
from ccbps.cli.secret_files import replace_secret
from ccbps.cli.values import settings
from ccbps.keys.role_key import RoleKey
from ccbps.keys.sources import FileKey, role_key
from ccbps.matching.contract.key_server import KeyServer


def _add_matcher(parser: Parser) -> None:
    parser.add_argument("--matcher", metavar="FILE", required=True, help="that explain --out wrote")


def _add_server(parser: Parser) -> None:
    _add_matcher(parser)
    parser.add_argument(
        "--server", metavar="FILE", required=True, help="the key server's key; kept up to date"
    )


def _add_role(parser: Parser) -> None:
    _add_server(parser)
    parser.add_argument("--name", required=True, help="whose key it is")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what the matcher offers for keys, as group=2 of TagMatch",
    )
    add_out(parser)


def _add_broker(parser: Parser) -> None:
    _add_server(parser)
    add_out(parser)


def _add_new(parser: Parser) -> None:
    _add_matcher(parser)
    add_out(parser)


def _add_user(parser: Parser) -> None:
    _add_server(parser)
    parser.add_argument("--role", choices=("publisher", "subscriber"), required=True)
    parser.add_argument("--name", required=True, help="whose keys are to end")


def _server(arguments: Namespace) -> KeyServer:
    return read_matcher(arguments.matcher).key_server(role_key(FileKey(arguments.server)))


def _save(arguments: Namespace, server: KeyServer) -> None:
    """Write down a change of the key server before anybody hears of it."""
    if server.key != role_key(FileKey(arguments.server)):
        replace_secret(arguments.server, server.key.to_text() + "\n")


def _issue(arguments: Namespace, give: Callable[[KeyServer], RoleKey]) -> int:
    def make() -> RoleKey:
        server = _server(arguments)
        key = give(server)
        _save(arguments, server)
        return key

    return keep(arguments, make)


def _new(arguments: Namespace) -> int:
    return keep(arguments, lambda: read_matcher(arguments.matcher).key_server().key)


def _publisher(arguments: Namespace) -> int:
    options = settings("--option", arguments.option)
    return _issue(arguments, lambda server: server.publisher_key(arguments.name, **options))


def _subscriber(arguments: Namespace) -> int:
    options = settings("--option", arguments.option)
    return _issue(arguments, lambda server: server.subscriber_key(arguments.name, **options))


def _broker(arguments: Namespace) -> int:
    return _issue(arguments, lambda server: server.broker_key())


def _rotate(arguments: Namespace) -> int:
    server = _server(arguments)
    server.rotate()
    _save(arguments, server)
    print(f"{arguments.server}: epoch {server.epoch}; give everybody new keys")
    return 0


def _revoke(arguments: Namespace) -> int:
    server = _server(arguments)
    user = server.revoke(arguments.role, arguments.name)
    _save(arguments, server)
    print(f"revoke {shlex.quote(arguments.name)} {user.hex()}")
    return 0


_WITH: Final = "--matcher quotes.matcher --server server.key"

KEY_SERVER_KINDS: Final = (
    Command(
        "server",
        "a key server's master key, for a matcher that has one",
        "The master key: whoever has it can make all other keys, and read everything. Keep it\n"
        "where only the key server is, and keep copies of its latest state.",
        "ccbps keygen server --matcher quotes.matcher --out server.key",
        _add_new,
        _new,
    ),
    Command(
        "publisher",
        "a publisher's key, from the key server",
        "What a publisher encodes events with.",
        f"ccbps keygen publisher {_WITH} --name feed --out feed.key",
        _add_role,
        _publisher,
    ),
    Command(
        "subscriber",
        "a subscriber's key, from the key server",
        "What a subscriber encodes predicates with.",
        f"ccbps keygen subscriber {_WITH} --name alice --out alice.key",
        _add_role,
        _subscriber,
    ),
    Command(
        "broker",
        "a broker's key, from the key server",
        "What a broker checks and matches messages with; it reads nothing with it. Where users\n"
        "have keys of their own (KeywordMatch), make it after theirs: it says whom to serve.",
        f"ccbps keygen broker {_WITH} --out broker.key",
        _add_broker,
        _broker,
    ),
    Command(
        "revoke",
        "end the keys of one user, where users have keys of their own (KeywordMatch)",
        "The key server never gives this user a key again. What is printed is a line for the\n"
        "standard input of a running broker, which then refuses what was made with the key.\n"
        "For the next time that the broker is started, make it a new key.\n"
        "With other matchers, shut the client out at the broker; to make its key useless, too,\n"
        "rotate.",
        f"ccbps keygen revoke {_WITH} --role subscriber --name alice",
        _add_user,
        _revoke,
    ),
    Command(
        "rotate",
        "step to new keys for everybody",
        "From now on the key server gives out keys of the next epoch. Make new keys for all who\n"
        "are to stay, and start the broker with its new key and a new file.",
        f"ccbps keygen rotate {_WITH}",
        _add_server,
        _rotate,
    ),
)
