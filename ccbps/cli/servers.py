"""``ccbps broker`` and ``ccbps ledger``: servers that run until a signal ends them."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import secrets
import shlex
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from ccbps import checks
from ccbps.broker import MatchingBroker, Quota
from ccbps.broker.metrics import metrics_page
from ccbps.cli.client import ACCESS, MARK, marked, mqtt_url, naming_server
from ccbps.cli.command import JSON, REPEATED, Command, OneOf, Option, answer
from ccbps.cli.inputs import MATCHER, read_matcher, read_settings
from ccbps.cli.secret_files import SHARED_KEYS, key_file, read_users
from ccbps.cli.signals import ended_by_signals
from ccbps.errors import CcbpsError, ParameterError, RefusedError
from ccbps.filters.contents import MaskLayout
from ccbps.keys.sources import role_key
from ccbps.matching import Broker, Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.network.channel import split_address
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.remote_ledger import LedgerServer
from ccbps.trio import Leader

QUOTAS: Final = tuple(field.name for field in fields(Quota))
ORDERS: Final = "revoke CLIENT [USER], bar CLIENT, admit CLIENT, subscriptions CLIENT, metrics"


def _broker(arguments: Namespace) -> int:
    r"""Run a matching broker behind an MQTT server.

    The broker matches encrypted publications with encrypted subscriptions, and delivers. It is a
    client of an MQTT server, with the name broker: of any server, with --url, or of one that it
    runs itself for clients on this machine, with --local. The MQTT server must let clients in
    under their own names only, since the broker knows clients by their names
    (docs/deployment.md has an access list for mosquitto).

    The broker ends with Ctrl-C or SIGTERM. With --file, a broker that was killed continues
    without loss. Its standard input takes these lines, from you alone:
      revoke CLIENT         shut a client out: its subscriptions and waiting deliveries end
      bar CLIENT            shut out a name that nobody has used yet
      admit CLIENT          let the client in again
      subscriptions CLIENT  print the names of its subscriptions
      metrics               print counts

    Example:
        ccbps broker --matcher quotes.matcher --key broker.key --local 1883 --users users \
            --file broker.db --metrics 9100
    """
    matcher = read_matcher(arguments.matcher)
    if matcher.keying is Keying.BROKERS:
        raise ParameterError(f"{type(matcher).__name__} has three brokers: run ccbps trio serve")

    def make() -> Broker | Matcher:
        key = None if arguments.key is None else role_key(key_file(arguments, arguments.key))
        return matcher if matcher.answers is Answers.SUBSCRIBER else matcher.broker(key)

    with ExitStack() as stack:
        # Entered first and left last, so that no signal interrupts the end of the others.
        wait = stack.enter_context(ended_by_signals())
        return run_broker(arguments, stack, make, wait)


def run_broker(
    arguments: Namespace,
    stack: ExitStack,
    make: Callable[[], Broker | Leader | Matcher],
    wait: Callable[[], None],
) -> int:
    """Run a matching broker behind an MQTT server, and return the exit status.

    Args:
        arguments: options of `server_options` and `BROKER_OPTIONS`.
        stack: stack that is left at the end of the command.
        make: function that makes the broker of the scheme, or broker 0 of three.
        wait: function that returns when the broker is to end.

    Raises:
        RefusedError: another service has taken the broker's place.
    """
    from ccbps.mqtt import MqttService

    lost = threading.Event()
    with stack:
        broker = _matching_broker(arguments, make)
        stack.callback(broker.close)
        metrics = None
        if arguments.metrics is not None:
            page = stack.enter_context(metrics_page(broker, arguments.metrics))
            metrics = page
        url = _broker_url(arguments, stack)
        with naming_server(url.url):
            stack.enter_context(MqttService(broker, url, on_lost=partial(_end, lost)))
        kept = f"kept in {arguments.file}" if arguments.file else "kept in memory only"
        text = f"{repr(broker).strip('<>')}, at {url.url}, {kept}"
        text += f", metrics at {metrics}" if metrics else ""
        answer(arguments, text, url=url.url, file=arguments.file, metrics=metrics)
        listen(broker, arguments)
        wait()
    if lost.is_set():
        raise RefusedError(
            f"another service has taken this one's place at {url.url}", reason="claimed"
        )
    answer(arguments, "ended", ended=True)
    return 0


def _end(why: threading.Event) -> None:
    """End this process as a signal from outside would, and note the reason."""
    why.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _matching_broker(
    arguments: Namespace, make: Callable[[], Broker | Leader | Matcher]
) -> MatchingBroker:
    quota: dict[str, Any] = read_settings("--quota", arguments.quota)
    for name in quota:
        checks.choice("--quota", name, QUOTAS)
    if arguments.file is not None:
        # The file tells its reader all that the broker knows.
        Path(arguments.file).touch(mode=0o600)
    return MatchingBroker(
        make(),
        path=arguments.file,
        prefilter=None if arguments.prefilter == "none" else arguments.prefilter,
        keep=arguments.keep,
        quota=Quota(**quota),
        when_full=arguments.when_full,
        masks=None if arguments.masks is None else MaskLayout.from_text(arguments.masks),
    )


def _broker_url(arguments: Namespace, stack: ExitStack) -> Any:
    """Return the URL of the broker's MQTT server. With --local, start the server."""
    from ccbps.mqtt import LocalServer, MqttUrl
    from ccbps.mqtt.connection import BROKER as NAME

    if arguments.local is None:
        if arguments.users is not None:
            raise ParameterError("--users is for --local; another server has users of its own")
        return mqtt_url(arguments, NAME)
    if arguments.users is None:
        raise ParameterError("--local needs --users FILE, which keygen password makes")
    users = read_users(arguments)
    if NAME in users:
        raise ParameterError(f"{arguments.users} must not have {NAME!r}, which is the broker's own")
    for name in ("amqtt", "transitions"):
        # They tell of each refused client at length.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    password = secrets.token_urlsafe()
    server = stack.enter_context(LocalServer({**users, NAME: password}, port=arguments.local))
    return MqttUrl(server.url, NAME, password)


def listen(broker: MatchingBroker, arguments: Namespace) -> None:
    """Obey the lines of standard input until it ends, in a thread.

    Only the user who started the broker, or who may write to the pipe that it reads, can shut a
    client out. No message over the network can.

    Args:
        broker: broker that obeys.
        arguments: options of the command.
    """
    try:
        # Not sys.stdin, whose lock the thread would still hold when Python ends.
        lines = io.FileIO(sys.stdin.fileno(), closefd=False)
    except (OSError, ValueError, AttributeError):
        return  # there is no standard input
    if hasattr(signal, "SIGTTIN") and os.isatty(lines.fileno()):
        # If a shell has put the broker into the background, reading would stop all of it.
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)

    def read() -> None:
        with contextlib.suppress(OSError):
            while line := lines.readline():
                if text := line.decode("utf-8", "replace").strip():
                    told = obey(broker, text)
                    kind = "error" if told.startswith("error: ") else "answer"
                    values: dict[str, Any] = {kind: told.removeprefix("error: ")}
                    answer(arguments, told, order=text, **values)

    threading.Thread(target=read, name="console", daemon=True).start()


def obey(broker: MatchingBroker, line: str) -> str:
    """Obey an order of the operator, and return the answer.

    =========================  =================================================================
    order                      effect; names with blanks are in quotes
    =========================  =================================================================
    ``revoke CLIENT``          shuts a client out: its subscriptions and waiting deliveries end
    ``revoke CLIENT USER``     also refuses messages made with the key of a user, which
                               ``ccbps keygen revoke`` printed
    ``bar CLIENT``             shuts out a name that nobody has used yet
    ``admit CLIENT``           lets the client in again; it must subscribe anew
    ``subscriptions CLIENT``   prints the names of the client's subscriptions
    ``metrics``                prints counts
    =========================  =================================================================
    """
    try:
        match shlex.split(line):
            case ["revoke", client, *user] if len(user) < 2:
                if not user and not broker.knows(client):
                    return (
                        f"error: no client {client} was ever here: nobody is shut out; to shut out "
                        "the name all the same, say bar"
                    )
                broker.revoke(client, bytes.fromhex(user[0]) if user else None)
                return f"{client} is shut out"
            case ["bar", client]:
                broker.revoke(client)
                return f"{client} is shut out"
            case ["admit", client]:
                broker.admit(client)
                return f"{client} is let in"
            case ["subscriptions", client]:
                return ", ".join(broker.subscriptions(client)) or f"{client} has none"
            case ["metrics"]:
                return broker.metrics().rstrip()
    except (CcbpsError, ValueError, ImportError) as error:
        return f"error: {error}"
    return f"error: a line is one of: {ORDERS}"


def _ledger(arguments: Namespace) -> int:
    r"""Serve a ledger that allots rounds to events, for Spark's workers.

    Use it on a cluster whose machines share no file system with locks. One process has the ledger
    of events, and workers ask it: RemoteLedger('HOST:PORT', 'IDENTITY') in place of
    EventLedger('FILE'). The command prints the identity of the file first. Workers and server
    know one another by certificates that follow from the ledger's key, and talk over TLS 1.3.

    Whoever has the key can make the publisher use a round twice, and so can a second ledger for
    it: run one server for each key, with one file, and never with a copy of the file.

    The server ends with Ctrl-C or SIGTERM. After a kill, start it again: it continues without
    loss, and workers wait for it for a minute.

    Example:
        ccbps keygen seed --out feed.seed
        ccbps keygen ledger --master feed.seed --out ledger.key
        ccbps ledger --file quotes.ledger --new --key ledger.key --rounds 1000000 \
            --listen 127.0.0.1:7400
    """
    host, port = split_address(arguments.listen)
    exists = Path(arguments.file).exists()
    if exists and arguments.new:
        raise ParameterError(f"{arguments.file} exists already: leave out --new")
    if not exists and not arguments.new:
        raise ParameterError(
            f"{arguments.file} does not exist. A new ledger begins with round 0: pass --new if its "
            "key never had a ledger; otherwise take a new seed"
        )
    with ended_by_signals() as wait:
        path: Any = marked(arguments.file, arguments.mark)
        ledger = EventLedger(path, rounds=arguments.rounds)
        keys = [key_file(arguments, path) for path in arguments.key]
        with LedgerServer(ledger, keys, host=host, port=port) as server:
            identity, used, address = ledger.identity(), ledger.used(), server.address
            text = f"ledger {identity}\n{used} rounds used, at {address}"
            answer(arguments, text, ledger=identity, used=used, address=address)
            wait()
    answer(arguments, "ended", ended=True)
    return 0


def server_options(required: bool) -> tuple[OneOf | Option, ...]:
    """Return the options that name the MQTT server, of which one may be required."""
    return (
        OneOf(
            Option("--url URL", "MQTT server, mqtt:// or mqtts://, that has a user named broker"),
            Option(
                "--local PORT",
                "run an MQTT server for clients on this machine; 0 for any free port",
                type=int,
            ),
            required=required,
        ),
        Option("--users FILE", "passwords for --local, which keygen password makes"),
    )


BROKER_OPTIONS: Final = (
    *ACCESS,
    Option("--file FILE", "database of all that must not be lost (default: memory only)"),
    Option(
        "--prefilter",
        "filter of topics that is asked first (default: cuckoo)",
        choices=("cuckoo", "bloom", "none"),
        default="cuckoo",
    ),
    Option(
        "--keep N",
        "number of publications kept for later subscribers (default: 0)",
        type=int,
        default=0,
    ),
    Option(
        "--masks LAYOUT",
        "test only what may match by the masks of a content filter; keygen masks prints its layout",
    ),
    Option(
        "--when-full",
        "if a queue is full, drop its oldest delivery (default) or refuse publications for it",
        choices=("drop", "refuse"),
        default="drop",
    ),
    Option("--quota NAME=N", f"limit of each client: {', '.join(QUOTAS)}", **REPEATED),
    Option("--metrics PORT", "serve http://127.0.0.1:PORT/metrics", type=int),
    JSON,
)

BROKER: Final = Command(
    "broker",
    _broker,
    (
        MATCHER,
        Option("--key FILE", "broker's key; one-time matchers have none"),
        *server_options(required=True),
        *BROKER_OPTIONS,
    ),
)

LEDGER: Final = Command(
    "ledger",
    _ledger,
    (
        Option("--file FILE", "the ledger", required=True),
        MARK,
        Option("--new", "make the file, for a key that never had a ledger", action="store_true"),
        Option(
            "--key FILE",
            "key of keygen ledger; once for each publisher",
            action="append",
            required=True,
        ),
        SHARED_KEYS,
        Option(
            "--listen HOST:PORT",
            "address for workers (default: 127.0.0.1:7400, for this machine)",
            default="127.0.0.1:7400",
        ),
        Option("--rounds N", "number of rounds that subscribers have interests for", type=int),
        JSON,
    ),
)
