"""``ccbps keygen``: make files with keys, and change the keys that a key server gives out."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Callable
from functools import wraps
from typing import Final, TypeAlias

from ccbps.cli.command import JSON, REPEATED, Command, OneOf, Option, answer
from ccbps.cli.inputs import (
    MATCHER,
    OPERATORS,
    read_matcher,
    read_operators,
    read_settings,
    read_shares_matcher,
)
from ccbps.cli.secret_files import (
    SHARED_KEYS,
    add_password,
    key_file,
    new_secret_file,
    replace_secret,
)
from ccbps.filters.contents import ContentFilter
from ccbps.keys.plain_key import ClientKey, FilterKey, LedgerKey, OperatorKey
from ccbps.keys.role_key import RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import client_key, filter_key, master, role_key
from ccbps.keys.text_form import KINDS, read_key
from ccbps.matching.contract.key_server import KeyServer
from ccbps.shares.operators import Operator
from ccbps.shares.public_clients import Authority, PublicClient

Key: TypeAlias = SharedSeed | RoleKey | FilterKey | LedgerKey | OperatorKey | ClientKey


def _keygen(_: Namespace) -> int:
    r"""Make key files.

    Only you may read the files, and none is ever overwritten. Each file holds one line of text:
    hand it over by a secret store, or in person. No key is ever an argument, and none is shown
    unless you pass --print.

    Matchers with reusable messages have a key server: make its key first, then a key for each
    party. With one-time matchers, publisher and subscribers share a seed; with FormulaMatch, each
    subscription has a seed of its own, derived from it (pair). With any matcher, payloads may have
    a seed, and topics a filter key; the broker gets neither.

    Example:
        ccbps keygen server --matcher quotes.matcher --out server.key
        ccbps keygen broker --matcher quotes.matcher --server server.key --out broker.key
        ccbps keygen publisher --matcher quotes.matcher --server server.key --name feed \
            --out feed.key
        ccbps keygen subscriber --matcher quotes.matcher --server server.key --name alice \
            --out alice.key
        ccbps keygen seed --out payloads.seed
        ccbps keygen filter --out topics.key
        ccbps keygen password --name feed --users users --out feed.password
        ccbps keygen password --name alice --users users --out alice.password
    """
    raise NotImplementedError("the parser demands a kind of key")


def _kept(make: Callable[[Namespace], Key]) -> Callable[[Namespace], int]:
    """Return a command's function that makes a key and keeps it where --out says."""

    @wraps(make)
    def run(arguments: Namespace) -> int:
        if arguments.print:
            text = make(arguments).to_text()
            answer(arguments, text, key=text)
            return 0
        # The file comes first, so that no key is given out that cannot be kept.
        with new_secret_file(arguments.out) as file:
            key = make(arguments)
            file.write(key.to_text() + "\n")
        kind, _ = read_key(key.to_text())
        title, fingerprint, path = KINDS[kind], key.fingerprint, arguments.out
        text = f"{path}: {title}, fingerprint {fingerprint}"
        answer(arguments, text, file=path, key=title, fingerprint=fingerprint)
        return 0

    return run


@_kept
def _seed(_: Namespace) -> SharedSeed:
    """Make a seed that publisher and subscribers share; a publisher's master seed.

    32 random bytes, for one-time matchers and for payloads.

    Example:
        ccbps keygen seed --out payloads.seed
    """
    return SharedSeed.generate()


@_kept
def _pair(arguments: Namespace) -> SharedSeed:
    """Make one subscription's seed, from the publisher's master seed.

    Nobody can derive another subscription's seed from it. The label consists of the names of the
    client and the subscription; the publisher passes it to publish --to.

    Example:
        ccbps keygen pair --master feed.seed --label alice/cheap --out alice.seed
    """
    return master(key_file(arguments, arguments.master)).pair(arguments.label)


@_kept
def _server(arguments: Namespace) -> RoleKey:
    """Make a key server's master key, for a matcher that has one.

    Whoever has the master key can make all other keys, and read everything. Keep it on the key
    server only, and keep copies of its latest state.

    Example:
        ccbps keygen server --matcher quotes.matcher --out server.key
    """
    return read_matcher(arguments.matcher).key_server().key


@_kept
def _publisher(arguments: Namespace) -> RoleKey:
    r"""Make a publisher's key, from the key server.

    A publisher encodes events with its key.

    Example:
        ccbps keygen publisher --matcher quotes.matcher --server server.key --name feed \
            --out feed.key
    """
    return _issue(arguments, "publisher")


@_kept
def _subscriber(arguments: Namespace) -> RoleKey:
    r"""Make a subscriber's key, from the key server.

    A subscriber encodes predicates with its key.

    Example:
        ccbps keygen subscriber --matcher quotes.matcher --server server.key --name alice \
            --out alice.key
    """
    return _issue(arguments, "subscriber")


@_kept
def _broker(arguments: Namespace) -> RoleKey:
    """Make a broker's key, from the key server.

    A broker checks and matches messages with its key, and cannot read them. Where users have keys
    of their own (KeywordMatch), make it after theirs: it lists the users to serve.

    Example:
        ccbps keygen broker --matcher quotes.matcher --server server.key --out broker.key
    """
    return _issue(arguments, "broker")


def _issue(arguments: Namespace, role: str) -> RoleKey:
    server = _key_server(arguments)
    if role == "broker":
        key = server.broker_key()
    else:
        settings = read_settings("--option", arguments.option)
        key = getattr(server, f"{role}_key")(arguments.name, **settings)
    _save(arguments, server)
    return key


def _key_server(arguments: Namespace) -> KeyServer:
    return read_matcher(arguments.matcher).key_server(
        role_key(key_file(arguments, arguments.server))
    )


def _save(arguments: Namespace, server: KeyServer) -> None:
    """Save a change of the key server, before anybody hears of it."""
    if server.key != role_key(key_file(arguments, arguments.server)):
        replace_secret(arguments.server, server.key.to_text() + "\n")


def _revoke(arguments: Namespace) -> int:
    r"""End the keys of one user, where users have keys of their own (KeywordMatch).

    The key server never gives this user a key again. The command prints a line for the standard
    input of a running broker, which then refuses messages made with the key. Make the broker a new
    key before it is started again.

    With other matchers, revoke the client at the broker. To make its key useless as well, rotate.

    Example:
        ccbps keygen revoke --matcher quotes.matcher --server server.key --role subscriber \
            --name alice
    """
    server = _key_server(arguments)
    user = server.revoke(arguments.role, arguments.name)
    _save(arguments, server)
    line = f"revoke {shlex.quote(arguments.name)} {user.hex()}"
    answer(arguments, line, line=line, name=arguments.name, user=user.hex())
    return 0


def _rotate(arguments: Namespace) -> int:
    """Step to new keys for everybody.

    From now on the key server gives out keys of the next epoch. Make new keys for all who are to
    stay, and start the broker with its new key and a new file.

    Example:
        ccbps keygen rotate --matcher quotes.matcher --server server.key
    """
    server = _key_server(arguments)
    server.rotate()
    _save(arguments, server)
    text = f"{arguments.server}: epoch {server.epoch}; give everybody new keys"
    answer(arguments, text, file=arguments.server, epoch=server.epoch)
    return 0


@_kept
def _filter(_: Namespace) -> FilterKey:
    """Make the key of topics' tokens.

    Publishers and subscribers have it. The broker does not, and sees tokens only.

    Example:
        ccbps keygen filter --out topics.key
    """
    return FilterKey.generate()


def _masks(arguments: Namespace) -> int:
    """Print the layout of a content filter's masks, for the broker.

    Publishers and subscribers have the key of the filter, and pass it with --contents. The broker
    gets the layout, which is public.

    Example:
        ccbps keygen masks --matcher quotes.matcher --filter contents.key
    """
    key = filter_key(key_file(arguments, arguments.filter))
    text = ContentFilter(read_matcher(arguments.matcher).schema, key).layout.to_text()
    answer(arguments, text, masks=text)
    return 0


@_kept
def _ledger(arguments: Namespace) -> LedgerKey:
    """Make the key of a ledger's server, from the publisher's master seed.

    It is for `ccbps ledger`, which allots rounds to events and sees neither them nor the seed.

    Example:
        ccbps keygen ledger --master feed.seed --out ledger.key
    """
    return master(key_file(arguments, arguments.master)).ledger_key()


@_kept
def _operator(arguments: Namespace) -> OperatorKey:
    r"""Make the key of the operator of one of three brokers, and its public file.

    The other two operators and all clients get the public file, and nobody the key: two of the
    three keys open every message. The address is that of the broker, as the other two reach it.

    Example:
        ccbps keygen operator --address 127.0.0.1:7501 --public one.operator --out one.key
    """
    key = OperatorKey.generate()
    public = Operator.of(key, arguments.address).to_text()
    with new_secret_file(arguments.public) as file:
        file.write(public + "\n")
    return key


@_kept
def _client(arguments: Namespace) -> ClientKey:
    r"""Make the key of a client of three brokers, from their operators' public files.

    It serves for publishing and subscribing. Clients have no key in common.

    Example:
        ccbps keygen client --operators zero.operator one.operator two.operator --out alice.key
    """
    return ClientKey.generate([one.public for one in read_operators(arguments.operators)])


def _public(arguments: Namespace) -> int:
    r"""Write the public side of a client's key, for grants at three brokers.

    The authority gets the public sides of clients, and grants by them what each may see. With
    --authority, the file is the public side of the authority itself, for the three operators. These
    files hold no secrets. But take care whose file it is that you grant something to.

    Example:
        ccbps keygen public --key alice.key --matcher three.matcher --out alice.public
        ccbps keygen public --key authority.key --matcher three.matcher --authority \
            --out authority.public
    """
    matcher, key = read_shares_matcher(arguments.matcher), key_file(arguments, arguments.key)
    public: Authority | PublicClient
    if arguments.authority:
        public = Authority(matcher.digest, matcher.authority(client_key(key)).hellos)
    else:
        public = PublicClient(matcher.digest, matcher.subscriber(client_key(key)).client)
    with new_secret_file(arguments.out) as file:
        file.write(public.to_text() + "\n")
    name, path = public.name.hex(), arguments.out
    answer(arguments, f"{path}: {public.what}, {name}", file=path, client=name)
    return 0


def _password(arguments: Namespace) -> int:
    """Make a client's password at the server of `ccbps broker --local`.

    The password is drawn at random, and written to a file for the client and to the server's file.

    Example:
        ccbps keygen password --name alice --users users --out alice.password
    """
    add_password(arguments)
    name, path, users = arguments.name, arguments.out, arguments.users
    text = f"{path}: the password of {name}, also written to {users}"
    answer(arguments, text, file=path, name=name, users=users)
    return 0


OUT: Final = (
    OneOf(
        Option("--out FILE", "new file for the key, which only you may read"),
        Option("--print", "show the secret on the screen", action="store_true"),
        required=True,
    ),
    JSON,
)
MASTER: Final = (Option("--master FILE", "the publisher's seed", required=True), SHARED_KEYS)
SERVER: Final = (
    MATCHER,
    Option("--server FILE", "the key server's key, which is kept up to date", required=True),
    SHARED_KEYS,
)
ROLE: Final = (
    *SERVER,
    Option("--name NAME", "owner of the key", required=True),
    Option(
        "--option NAME=VALUE", "setting of the matcher, such as group=2 of TagMatch", **REPEATED
    ),
    *OUT,
)
USER_ROLES: Final = ("publisher", "subscriber")

KEYGEN: Final = Command(
    "keygen",
    _keygen,
    kinds=(
        Command("seed", _seed, OUT),
        Command(
            "pair",
            _pair,
            (*MASTER, Option("--label LABEL", "client/subscription", required=True), *OUT),
        ),
        Command("server", _server, (MATCHER, *OUT)),
        Command("publisher", _publisher, ROLE),
        Command("subscriber", _subscriber, ROLE),
        Command("broker", _broker, (*SERVER, *OUT)),
        Command(
            "revoke",
            _revoke,
            (
                *SERVER,
                Option("--role", "role of the user", choices=USER_ROLES, required=True),
                Option("--name NAME", "user whose keys end", required=True),
                JSON,
            ),
        ),
        Command("rotate", _rotate, (*SERVER, JSON)),
        Command("filter", _filter, OUT),
        Command(
            "masks",
            _masks,
            (
                MATCHER,
                Option("--filter FILE", "key of the filter, keygen filter", required=True),
                SHARED_KEYS,
                JSON,
            ),
        ),
        Command("ledger", _ledger, (*MASTER, *OUT)),
        Command(
            "operator",
            _operator,
            (
                Option("--address HOST:PORT", "address of the broker", required=True),
                Option("--public FILE", "new file for the others", required=True),
                *OUT,
            ),
        ),
        Command(
            "client",
            _client,
            (Option("--operators FILE", OPERATORS, nargs=3, required=True), *OUT),
        ),
        Command(
            "public",
            _public,
            (
                Option("--key FILE", "the client's key, keygen client", required=True),
                MATCHER,
                Option("--authority", "write that of the authority", action="store_true"),
                Option("--out FILE", "new file for the others", required=True),
                SHARED_KEYS,
                JSON,
            ),
        ),
        Command(
            "password",
            _password,
            (
                Option("--name NAME", "name of the client", required=True),
                Option(
                    "--users FILE", "passwords of all; made if it does not exist", required=True
                ),
                Option("--out FILE", "new file for the client", required=True),
                SHARED_KEYS,
                JSON,
            ),
        ),
    ),
)
