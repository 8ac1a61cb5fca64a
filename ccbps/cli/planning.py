"""``ccbps plan``: compare all matchers for a predicate and a load."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Final

from ccbps.cli.command import JSON, REPEATED, Command, Option, answer
from ccbps.cli.inputs import SCHEMA_NEEDED, check_picture, read_schema, read_settings, read_text
from ccbps.planner import plan
from ccbps.planner.candidates import SECURITY
from ccbps.planner.planning import TIMING


def _plan(arguments: Namespace) -> int:
    r"""Compare all matchers for a predicate: bytes, seconds, keys, and what they show.

    The command lists the matchers that take the predicate, and plain alternatives, in the order in
    which to consider them: what shows strictly less is first, then what takes fewer bytes, then
    what takes fewer seconds. It says why others are refused. Bytes are exact. Seconds are measured
    on this machine, and kept in the user's cache folder. The exit status is 1 if no matcher is
    left.

    A matcher is public, and may follow from the predicate: give one of the form that you expect,
    whose constants may be known. With --out, the first matcher is written to a file, for all
    parties; --scheme chooses another one.

    Example:
        ccbps plan "issue = 'IBM' AND price < 120" --events 100000 --subscriptions 1000 \
            --schema 'issue=Category(["AAPL", "IBM"]), price=UInt(16)' \
            --hide constants --hide event --events-per-second 10
    """
    check_picture(arguments.plot)
    schema = read_schema(arguments.schema)
    predicate = schema.parse(read_text(arguments.predicate))
    if arguments.value:
        predicate = predicate.bind(**read_settings("--value", arguments.value))
    found = plan(
        schema,
        predicate,
        events=arguments.events,
        subscriptions=arguments.subscriptions,
        events_per_second=arguments.events_per_second,
        topics=arguments.topics,
        hide=arguments.hide,
        allow_leaks=arguments.allow_leak or None,
        security=arguments.security,
        brokers=arguments.brokers,
        budget_bytes=arguments.budget_bytes,
        timing=arguments.timing,
    )
    text = found.explain(every=arguments.every)
    if arguments.out is not None:
        matcher = found.best(arguments.scheme)
        with Path(arguments.out).open("x", encoding="utf-8") as file:
            file.write(matcher.to_json() + "\n")
        text += f"\n\n{matcher!r} written to {arguments.out}"
    if arguments.plot is not None:
        found.plot(arguments.plot)
        text += f"\n\npicture written to {arguments.plot}"
    answer(arguments, text, **found.to_dict(), written=arguments.out)
    return 0 if found.matchers else 1


PLAN: Final = Command(
    "plan",
    _plan,
    (
        Option("predicate TEXT", "condition, as written after WHERE"),
        SCHEMA_NEEDED,
        Option("--value NAME=VALUE", "value of a private constant :name", **REPEATED),
        Option("--events N", "number of events", type=int, required=True),
        Option("--subscriptions N", "subscriptions that each event meets", type=int, required=True),
        Option("--events-per-second X", "rate of events, for the cores needed", type=float),
        Option("--topics N", "topics of a publisher; by default as many as there are", type=int),
        Option(
            "--hide FACT",
            "fact that the broker may not learn: event, constants, attributes, formula, match, "
            "...; with subscribers: in front, one that other subscribers may not learn",
            **REPEATED,
        ),
        Option(
            "--allow-leak FACT",
            "fact that may be learned and does not count; all others are hidden then",
            **REPEATED,
        ),
        Option(
            "--security KIND",
            "least security: perfect, computational or broken",
            choices=SECURITY,
            default="computational",
        ),
        Option("--brokers N", "independent brokers: 1 or 3", type=int, choices=(1, 3), default=1),
        Option("--budget-bytes N", "greatest number of bytes on all links", type=int),
        Option(
            "--timing SECONDS",
            f"time for measuring candidates (default {TIMING:g}); 0 for none",
            type=float,
            default=TIMING,
        ),
        Option("--every", "list all parameters of each scheme", action="store_true"),
        Option("--scheme NAME", "for --out: take the first matcher of this scheme"),
        Option("--out FILE", "new file for the first matcher, for all parties"),
        Option("--plot FILE", "picture of bytes and cores over subscriptions (extra plot)"),
        JSON,
    ),
)
