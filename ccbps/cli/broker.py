"""``ccbps broker``: a matching broker behind an MQTT server, until it is told to end."""

from __future__ import annotations

import secrets
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ccbps.broker import MatchingBroker, Quota
from ccbps.broker.metrics import metrics_page
from ccbps.cli.command import Command, Parser
from ccbps.cli.connection import add_access, trying, url_of
from ccbps.cli.console import listen
from ccbps.cli.matchers import read_matcher
from ccbps.cli.passwords import read_users
from ccbps.cli.signals import ended_by_signals
from ccbps.cli.values import settings
from ccbps.errors import ParameterError
from ccbps.keys.sources import FileKey, role_key
from ccbps.matching import Matcher
from ccbps.matching.contract.scheme import Answers

QUOTAS: Final = tuple(one.name for one in fields(Quota))


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--matcher", metavar="FILE", required=True, help="that explain --out wrote")
    parser.add_argument("--key", metavar="FILE", help="broker's key; one-time matchers have none")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="MQTT server, mqtt:// or mqtts://, whose user broker this is")
    where.add_argument(
        "--local",
        metavar="PORT",
        type=int,
        help="run an MQTT server, too, for clients on this machine; 0 for any port",
    )
    parser.add_argument("--users", metavar="FILE", help="passwords for --local, of keygen password")
    add_access(parser)
    parser.add_argument(
        "--file", metavar="FILE", help="keeps all that must not be lost; else memory does"
    )
    parser.add_argument(
        "--prefilter",
        choices=("cuckoo", "bloom", "none"),
        default="cuckoo",
        help="filter of topics that is asked first (default: cuckoo)",
    )
    parser.add_argument(
        "--keep",
        metavar="N",
        type=int,
        default=0,
        help="publications that are kept for later subscribers (default: 0)",
    )
    parser.add_argument(
        "--when-full",
        choices=("drop", "refuse"),
        default="drop",
        help="a queue is full: drop its oldest delivery (default), or refuse publications for it",
    )
    parser.add_argument(
        "--quota",
        metavar="NAME=N",
        action="append",
        default=[],
        help=f"of each client: {', '.join(QUOTAS)}",
    )
    parser.add_argument(
        "--metrics", metavar="PORT", type=int, help="serve http://127.0.0.1:PORT/metrics"
    )


def _run(arguments: Namespace) -> int:
    from ccbps.mqtt import MqttService

    matcher = read_matcher(arguments.matcher)
    with ExitStack() as stack:
        # First in and last out: what is done at the end is done whole.
        ended = stack.enter_context(ended_by_signals())
        broker = _broker(arguments, matcher)
        stack.callback(broker.close)
        said = []
        if arguments.metrics is not None:
            page = stack.enter_context(metrics_page(broker, arguments.metrics))
            said.append(f"metrics at {page}")
        url = _url(arguments, stack)
        with trying(url.url):
            stack.enter_context(MqttService(broker, url))
        kept = f"kept in {arguments.file}" if arguments.file else "kept in memory only"
        print(", ".join([f"{repr(broker).strip('<>')}", f"at {url.url}", kept, *said]), flush=True)
        listen(broker)
        ended.wait()
    print("ended")
    return 0


def _broker(arguments: Namespace, matcher: Matcher) -> MatchingBroker:
    key = None if arguments.key is None else role_key(FileKey(arguments.key))
    quota: dict[str, Any] = settings("--quota", arguments.quota)
    if unknown := quota.keys() - {*QUOTAS}:
        raise ParameterError(f"--quota has no {min(unknown)}, but {', '.join(QUOTAS)}")
    if arguments.file is not None:
        # It tells who reads it what the broker knows.
        Path(arguments.file).touch(mode=0o600)
    return MatchingBroker(
        matcher if matcher.answers is Answers.SUBSCRIBER else matcher.broker(key),
        path=arguments.file,
        prefilter=None if arguments.prefilter == "none" else arguments.prefilter,
        keep=arguments.keep,
        quota=Quota(**quota),
        when_full=arguments.when_full,
    )


def _url(arguments: Namespace, stack: ExitStack) -> Any:
    """Where the broker's MQTT server is; with --local one that is started."""
    from ccbps.mqtt import LocalServer, MqttUrl
    from ccbps.mqtt.connection import BROKER as NAME

    if arguments.local is None:
        if arguments.users is not None:
            raise ParameterError("--users is for --local; another server has users of its own")
        return url_of(arguments, NAME)
    if arguments.users is None:
        raise ParameterError("--local needs --users FILE, which keygen password makes")
    users = read_users(arguments.users)
    if NAME in users:
        raise ParameterError(f"{arguments.users} must not have {NAME!r}, which is the broker's own")
    password = secrets.token_urlsafe()
    server = stack.enter_context(LocalServer({**users, NAME: password}, port=arguments.local))
    return MqttUrl(server.url, NAME, password)


BROKER: Final = Command(
    "broker",
    "run a matching broker behind an MQTT server",
    "Matches encrypted publications with encrypted subscriptions, and delivers. It is a client,\n"
    "named broker, of an MQTT server: any, by --url, or one that it runs itself for clients on\n"
    "this machine, --local. The MQTT server must let a client in as itself only, since\n"
    "clients are known by their names (docs/command_line.md has an access list for mosquitto).\n\n"
    "Ends with Ctrl-C or SIGTERM. With --file a broker that was killed goes on with nothing lost.\n"
    "On its standard input it takes these lines, from you alone:\n"
    "  revoke CLIENT         shut a client out: subscriptions, deliveries and all\n"
    "  admit CLIENT          let it in again\n"
    "  subscriptions CLIENT  names of its subscriptions\n"
    "  metrics               counts",
    "ccbps broker --matcher quotes.matcher --key broker.key --local 1883 --users users \\\n"
    "    --file broker.db --metrics 9100",
    _add_arguments,
    _run,
)
