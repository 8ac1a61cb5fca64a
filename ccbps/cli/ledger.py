"""``ccbps ledger``: a ledger of events for workers on other machines, until it is told to end."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Final

from ccbps.cli.command import Command, Parser
from ccbps.cli.signals import ended_by_signals
from ccbps.errors import ParameterError
from ccbps.keys.sources import FileKey
from ccbps.network.channel import split_address
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.remote_ledger import LedgerServer


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--file", metavar="FILE", required=True, help="the ledger")
    parser.add_argument("--new", action="store_true", help="make the file: a key's first ledger")
    parser.add_argument(
        "--key",
        metavar="FILE",
        action="append",
        required=True,
        help="of keygen ledger; again for each publisher",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:7400",
        help="for workers (default: 127.0.0.1:7400, for this machine)",
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, help="that subscribers have interests for"
    )


def _run(arguments: Namespace) -> int:
    host, port = split_address(arguments.listen)
    there = Path(arguments.file).exists()
    if there and arguments.new:
        raise ParameterError(f"{arguments.file} is there already: leave out --new")
    if not there and not arguments.new:
        raise ParameterError(
            f"{arguments.file} is not there. A new ledger begins with round 0: say --new where "
            "its key never had one; otherwise take a new seed"
        )
    with ended_by_signals() as ended:
        ledger = EventLedger(arguments.file, rounds=arguments.rounds)
        keys = [FileKey(path) for path in arguments.key]
        with LedgerServer(ledger, keys, host=host, port=port) as server:
            print(f"ledger {ledger.identity()}", flush=True)
            print(f"{ledger.used()} rounds used, at {server.address}", flush=True)
            ended.wait()
    print("ended")
    return 0


LEDGER: Final = Command(
    "ledger",
    "serve a ledger that allots rounds to events, for Spark's workers",
    "On a cluster whose machines share no file system with locks, one process has the ledger of\n"
    "events, and workers ask it: RemoteLedger('HOST:PORT', 'IDENTITY') in place of\n"
    "EventLedger('FILE'), with the identity of the file, which is shown first. They and the\n"
    "server know one another by certificates that follow from the ledger's key, and talk over\n"
    "TLS 1.3. Whoever has the key can make the publisher use a round twice, and so does a\n"
    "second ledger for it: have one server for a key, with one file, and never a copy of that.\n\n"
    "Ends with Ctrl-C or SIGTERM. Killed and started again it goes on with nothing lost; workers\n"
    "wait for it for a minute.",
    "ccbps keygen seed --out feed.seed\n"
    "ccbps keygen ledger --master feed.seed --out ledger.key\n"
    "ccbps ledger --file quotes.ledger --new --key ledger.key --rounds 1000000 \\\n"
    "    --listen 127.0.0.1:7400",
    _add_arguments,
    _run,
)
