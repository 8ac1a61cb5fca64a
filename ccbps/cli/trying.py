"""``ccbps schema`` and ``ccbps try``: from a file of records to a match, without preparation."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from itertools import chain, islice
from shlex import quote
from typing import Any, Final

import numpy as np

from ccbps import Schema, SharedSeed, checks
from ccbps.cli.command import JSON, Command, Option, answer
from ccbps.cli.inputs import check_picture, read_schema, read_text
from ccbps.cli.records import FORMAT, read_records
from ccbps.errors import ParameterError
from ccbps.matching import FormulaMatch, Matcher
from ccbps.planner import plan
from ccbps.predicates import Predicate

SHOWN: Final = 5
"""Matching records that are printed."""
SUBSCRIPTIONS: Final = 100
"""Subscriptions of the plan."""
FILE: Final = Option("file FILE", "records: CSV with a line of names, JSON lines, or Parquet")


def _schema(arguments: Namespace) -> int:
    r"""Suggest a schema for the records of a file, and say why.

    Ranges are wider than those in the file, so that later records fit. A schema is public: read it
    before you give it away. It can be pasted behind --schema of the other commands.

    Example:
        ccbps schema quotes.csv
    """
    suggestion = Schema.suggest(_records(arguments))
    text = str(suggestion.schema).removeprefix("Schema(").removesuffix(")")
    answer(
        arguments,
        f"{suggestion.report}\n\n--schema {_quoted(text)}",
        schema=text,
        report=suggestion.report.splitlines(),
    )
    return 0


def _try(arguments: Namespace) -> int:
    r"""Encrypt the records of a file and a predicate, match them as a broker, and show it all.

    All three parties are played in this process: a publisher with the records, a subscriber with
    the predicate, and a broker that gets messages only. The command prints what the broker sees,
    which records match, whether the plaintext agrees, and the next commands. Nothing is kept.

    Without --schema, the schema is what `ccbps schema` suggests. The exit status is 1 if no record
    matches.

    Example:
        ccbps try quotes.csv "issue = 'IBM' AND price < 120"
        ccbps try quotes.csv "issue = 'IBM' AND price < 120" --plot plan.png
    """
    check_picture(arguments.plot)
    records = _records(arguments)
    if arguments.schema is None:
        schema = Schema.suggest(records).schema
    else:
        schema = read_schema(arguments.schema)
    predicate = schema.parse(read_text(arguments.predicate))
    matcher = _matcher(schema, predicate)
    seed, rounds = SharedSeed.generate(), np.arange(len(records))
    started = time.perf_counter()
    events = matcher.publisher(seed).encode(records, rounds)
    interests = matcher.subscriber(seed).encode(predicate, rounds)
    matched = matcher.broker().match(events, interests)
    took = time.perf_counter() - started
    plain = predicate.evaluate(schema.encode(records))
    agree = bool(np.array_equal(matched, plain))
    found = [records[place] for place in np.flatnonzero(matched).tolist()]
    shown = str(schema).removeprefix("Schema(").removesuffix(")")
    lines = [
        f"schema      {shown}",
        f"matcher     {matcher!r}",
        f"publisher   sends {len(records):,} messages of {matcher.event_bytes} bytes: "
        f"{_start(events)}",
        f"subscriber  sends {len(records):,} messages of {matcher.interest_bytes} bytes: "
        f"{_start(interests)}",
        f"broker      {len(found):,} of {len(records):,} match, after {1000 * took:,.0f} ms in all",
        *(f"            it learns {each}" for each in matcher.leakage.learns),
        f"plaintext   {'selects the same records' if agree else 'DISAGREES'}",
        "",
        *("  " + ", ".join(map(_shown, record.values())) for record in found[:SHOWN]),
    ]
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN:,} more")
    if arguments.plot is not None:
        load = plan(schema, predicate, events=len(records), subscriptions=SUBSCRIPTIONS, timing=0)
        load.plot(arguments.plot)
        lines += ["", f"plan for {SUBSCRIPTIONS} subscriptions drawn in {arguments.plot}"]
    lines += [
        "",
        "Next: what each matcher would cost and show, for numbers of yours:",
        f"  ccbps plan {_quoted(predicate.text)} --schema {_quoted(shown)} \\",
        f"      --events {len(records)} --subscriptions {SUBSCRIPTIONS}",
    ]
    answer(
        arguments,
        "\n".join(lines),
        schema=shown,
        matcher=type(matcher).__name__,
        event_bytes=matcher.event_bytes,
        interest_bytes=matcher.interest_bytes,
        records=len(records),
        matched=np.flatnonzero(matched).tolist(),
        agrees_with_plaintext=agree,
    )
    return 0 if found else 1


def _records(arguments: Namespace) -> list[dict[str, Any]]:
    """Return the records of a file; empty texts of CSV are missing values.

    Raises:
        ParameterError: there is none, or --rows is below 1 or too large.
    """
    most = checks.whole("--rows", arguments.rows, 1, sys.maxsize)
    blocks = read_records(arguments.file, arguments.format)
    rows = chain.from_iterable(block.rows() for block in blocks)
    records = [
        {name: None if value == "" else value for name, value in row.items()}
        for row in islice(rows, most)
    ]
    if not records:
        raise ParameterError(f"{arguments.file} has no records")
    if len(records[0]) == 1 and (others := {";", "\t", "|"} & {*next(iter(records[0]))}):
        raise ParameterError(
            f"{arguments.file} seems to have values with {min(others)!r} between them, and CSV has "
            "commas"
        )
    return records


def _matcher(schema: Schema, predicate: Predicate) -> Matcher:
    """Return the one-time matcher that takes a predicate, a box if it is one.

    Raises:
        ParameterError: there is none.
    """
    for matcher in FormulaMatch.propose(schema, predicate):
        return matcher
    raise ParameterError(
        f"FormulaMatch does not take this predicate over {len(schema)} attributes: pass a --schema "
        "with those that predicates need; or run ccbps plan, which lists what takes it"
    )


def _quoted(text: str) -> str:
    """Return a text as a shell takes it, in double quotes where it has single ones only."""
    return f'"{text}"' if "'" in text and not set('"$`\\!') & set(text) else quote(text)


def _shown(value: Any) -> str:
    """Return a value as text without characters that would control the terminal."""
    text = str(value)
    return text if text.isprintable() else ascii(text)[1:-1]


def _start(messages: Any) -> str:
    """Return the first bytes of the first message."""
    return f"{bytes(messages[0][:12]).hex()}..."


ROWS: Final = Option("--rows N", "records that are read at most (10,000)", type=int, default=10_000)
SCHEMA: Final = Command("schema", _schema, (FILE, FORMAT, ROWS, JSON))
TRY: Final = Command(
    "try",
    _try,
    (
        FILE,
        Option("predicate TEXT", "condition, as written after WHERE"),
        Option("--schema TEXT", "schema of events (default: what ccbps schema suggests)"),
        FORMAT,
        ROWS,
        Option("--plot FILE", "picture of the plan (pip install 'ccbps[plot]')"),
        JSON,
    ),
)
