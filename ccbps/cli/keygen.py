"""``ccbps keygen``: files with keys."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from ccbps.cli.command import Command, Parser
from ccbps.cli.key_files import add_out, keep
from ccbps.cli.key_server_kinds import KEY_SERVER_KINDS
from ccbps.cli.passwords import new_password
from ccbps.keys.plain_key import FilterKey
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import FileKey, master


def _seed(arguments: Namespace) -> int:
    return keep(arguments, SharedSeed.generate)


def _add_master(parser: Parser) -> None:
    parser.add_argument("--master", metavar="FILE", required=True, help="the publisher's seed")


def _add_pair(parser: Parser) -> None:
    _add_master(parser)
    parser.add_argument("--label", required=True, help="client and subscription: alice/cheap")
    add_out(parser)


def _pair(arguments: Namespace) -> int:
    return keep(arguments, lambda: master(FileKey(arguments.master)).pair(arguments.label))


def _filter(arguments: Namespace) -> int:
    return keep(arguments, FilterKey.generate)


def _add_ledger(parser: Parser) -> None:
    _add_master(parser)
    add_out(parser)


def _ledger(arguments: Namespace) -> int:
    return keep(arguments, lambda: master(FileKey(arguments.master)).ledger_key())


def _add_password(parser: Parser) -> None:
    parser.add_argument("--name", required=True, help="the client's")
    parser.add_argument(
        "--users", metavar="FILE", required=True, help="passwords of all; made if it is not there"
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="new file, for the client")


def _password(arguments: Namespace) -> int:
    new_password(arguments.out, arguments.users, arguments.name)
    print(f"{arguments.out}: the password of {arguments.name}, which is in {arguments.users}, too")
    return 0


KEYGEN: Final = Command(
    "keygen",
    "make key files",
    "Makes files with keys, which only you may read, and overwrites none. Each holds one line\n"
    "of text: hand it over by a secret store, or in person. No key is ever an argument, and none\n"
    "is shown unless you say --print.\n\n"
    "Matchers whose messages are reusable have a key server: make its key first, then one for\n"
    "each party. With one-time matchers publisher and subscribers share a seed, from which each\n"
    "subscription of FormulaMatch has its own (pair). Whatever the matcher, payloads may have a\n"
    "seed, and topics a filter key; the broker gets neither.",
    "ccbps keygen server --matcher quotes.matcher --out server.key\n"
    "ccbps keygen broker --matcher quotes.matcher --server server.key --out broker.key\n"
    "ccbps keygen publisher --matcher quotes.matcher --server server.key --name feed \\\n"
    "    --out feed.key\n"
    "ccbps keygen subscriber --matcher quotes.matcher --server server.key --name alice \\\n"
    "    --out alice.key\n"
    "ccbps keygen seed --out payloads.seed\n"
    "ccbps keygen filter --out topics.key\n"
    "ccbps keygen password --name feed --users users --out feed.password\n"
    "ccbps keygen password --name alice --users users --out alice.password",
    kinds=(
        Command(
            "seed",
            "a seed that publisher and subscribers share; a publisher's master",
            "32 random bytes. For one-time matchers, and for payloads.",
            "ccbps keygen seed --out payloads.seed",
            add_out,
            _seed,
        ),
        Command(
            "pair",
            "one subscription's seed, from the publisher's master",
            "Nobody can derive another one's from it. The label is the client's name and the\n"
            "subscription's, which the publisher names in publish --to.",
            "ccbps keygen pair --master feed.seed --label alice/cheap --out alice.seed",
            _add_pair,
            _pair,
        ),
        *KEY_SERVER_KINDS,
        Command(
            "filter",
            "the key of topics' tokens",
            "Publishers and subscribers have it, and the broker, which sees tokens, does not.",
            "ccbps keygen filter --out topics.key",
            add_out,
            _filter,
        ),
        Command(
            "ledger",
            "the key of a ledger's server, from the publisher's master",
            "For `ccbps ledger`, which allots rounds to events and sees neither them nor the seed.",
            "ccbps keygen ledger --master feed.seed --out ledger.key",
            _add_ledger,
            _ledger,
        ),
        Command(
            "password",
            "a client's password at the server of `ccbps broker --local`",
            "Draws a password, and writes it into a file for the client and into the server's.",
            "ccbps keygen password --name alice --users users --out alice.password",
            _add_password,
            _password,
        ),
    ),
)
