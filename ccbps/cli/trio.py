"""``ccbps trio``: one of three brokers that match together, and learn nothing but the answers."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from ccbps.cli.command import Command, Option, answer
from ccbps.cli.inputs import (
    MATCHER,
    OPERATORS,
    read_file,
    read_operators,
    read_shares_matcher,
)
from ccbps.cli.secret_files import key_file
from ccbps.cli.servers import BROKER_OPTIONS, run_broker, server_options
from ccbps.cli.signals import ended_by_signals, interrupted_by_termination
from ccbps.errors import ParameterError
from ccbps.keys.plain_key import OperatorKey
from ccbps.keys.sources import operator_key
from ccbps.matching import Matcher
from ccbps.shares.public_clients import Authority
from ccbps.trio import Follower, Leader, Trio


def _trio(_: Namespace) -> int:
    r"""Run one of three brokers, no two of which work together.

    Three operators each make a key (keygen operator) and give the others its public file, as well
    as the matcher. Each runs one broker with serve. Clients have keys of their own (keygen client),
    made from the three public files, and none in common with one another.

    Example:
        ccbps trio serve --party 1 --key one.key --peers zero.operator one.operator two.operator \
            --matcher three.matcher --file one.db
    """
    raise NotImplementedError("the parser demands a kind")


def _serve(arguments: Namespace) -> int:
    r"""Run a broker until a signal ends it.

    Broker 0 is a client of an MQTT server, as `ccbps broker` is: publishers and subscribers talk to
    it, and it delivers. Their messages are sealed for brokers 1 and 2, which get their parts from
    broker 0. The three match together over connections of their own. Each broker listens at the
    port of its public file and at the ports above it, one for each worker.

    Where the matcher demands grants, all three operators name the same authority, whose grants
    count. It gives them with `ccbps grant`.

    It does not matter which broker starts first. One that was killed may be started again: with
    --file nothing is lost, and no answer changes.

    Example:
        ccbps trio serve --party 0 --key zero.key --peers zero.operator one.operator two.operator \
            --matcher three.matcher --file zero.db --local 1883 --users users
    """
    matcher, authority = read_shares_matcher(arguments.matcher), None
    if arguments.authority is not None:
        authority = Authority.from_text(read_file(arguments.authority))
    trio = Trio(read_operators(arguments.peers), arguments.workers, authority)
    key = operator_key(key_file(arguments, arguments.key))
    if arguments.party == 0:
        return _lead(arguments, trio, key, matcher)
    if arguments.url is not None or arguments.local is not None:
        raise ParameterError("--url and --local are for broker 0, which clients talk to")
    with ended_by_signals() as wait:
        if arguments.file is not None:
            Path(arguments.file).touch(mode=0o600)
        with Follower(arguments.party, trio, key, matcher, path=arguments.file) as broker:
            kept = f"kept in {arguments.file}" if arguments.file else "kept in memory only"
            text = f"broker {arguments.party} of {matcher!r}, at {broker.address}, {kept}"
            values: dict[str, Any] = {"party": arguments.party, "file": arguments.file}
            answer(arguments, text, address=broker.address, **values)
            wait()
    answer(arguments, "ended", ended=True)
    return 0


def _lead(arguments: Namespace, trio: Trio, key: OperatorKey, matcher: Matcher) -> int:
    """Run broker 0."""
    if arguments.url is None and arguments.local is None:
        raise ParameterError("broker 0 needs --url or --local: clients talk to it over MQTT")
    with ExitStack() as stack:
        with interrupted_by_termination():
            leader = Leader(trio, key, matcher)
            try:
                answer(arguments, "waiting for brokers 1 and 2", waiting=[1, 2])
                leader.meet()
            except BaseException:
                leader.close()
                raise
        # Entered before all that it protects from signals.
        wait = stack.enter_context(ended_by_signals())
        stack.callback(leader.close)
        return run_broker(arguments, stack, lambda: leader, wait)


TRIO: Final = Command(
    "trio",
    _trio,
    kinds=(
        Command(
            "serve",
            _serve,
            (
                Option(
                    "--party N", "number of this broker", type=int, choices=(0, 1, 2), required=True
                ),
                MATCHER,
                Option("--key FILE", "key of its operator, keygen operator", required=True),
                Option("--peers FILE", OPERATORS, nargs=3, required=True),
                Option(
                    "--authority FILE",
                    "public side of the authority, keygen public; for matchers with grants",
                ),
                Option(
                    "--workers N",
                    "worker processes, as many as the other two brokers have (default: 1)",
                    type=int,
                    default=1,
                ),
                *server_options(required=False),
                *BROKER_OPTIONS,
            ),
        ),
    ),
)
