"""``ccbps check-predicate``: what a predicate means, who takes it, and what it finds."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import Final

from ccbps.cli.command import Command, Parser
from ccbps.cli.matchers import read_matcher, table_of
from ccbps.cli.normal_text import box_text, normal_text
from ccbps.cli.records import add_records, batches
from ccbps.cli.schemas import SCHEMA_HELP, read_schema
from ccbps.cli.values import settings, text_of
from ccbps.errors import PredicateError
from ccbps.matching import Matcher
from ccbps.matching.schemes import proposals
from ccbps.matching.words.words import WordMatcher
from ccbps.predicates import Predicate


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("predicate", metavar="TEXT", help="what you would write after WHERE")
    over = parser.add_mutually_exclusive_group(required=True)
    over.add_argument("--schema", metavar="TEXT", help=SCHEMA_HELP)
    over.add_argument("--matcher", metavar="FILE", help="ask this matcher, over its schema")
    parser.add_argument(
        "--value",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="of a private constant :name",
    )
    add_records(parser, "--records", "count those that match, in a file or - for standard input")


def _run(arguments: Namespace) -> int:
    matcher = None if arguments.matcher is None else read_matcher(arguments.matcher)
    schema = read_schema(arguments.schema) if matcher is None else matcher.schema
    try:
        predicate = schema.parse(text_of(arguments.predicate))
        if arguments.value:
            predicate = predicate.bind(**settings("--value", arguments.value))
        if matcher is not None:
            matcher.prepare(predicate)
    except PredicateError as error:
        print(error, file=sys.stderr)
        return 1
    takers = [*proposals(schema, predicate)] if matcher is None else [matcher]
    print("\n".join(_meaning(predicate)))
    print("\n".join(_takers(predicate, takers)))
    if arguments.records is not None:
        print("\n".join(_counts(predicate, takers, arguments)))
    return 0 if takers else 1


def _meaning(predicate: Predicate) -> Iterator[str]:
    """Lines on what it means by itself."""
    if predicate.unbound_names:
        names = ", ".join(f":{name}" for name in predicate.unbound_names)
        yield f"template    private constants {names}; --value gives them values"
        return
    yield f"means       {normal_text(predicate)}"
    if predicate.never_matches:
        yield "matches     no event at all"
    try:
        predicate.box()
        yield "box         yes: an interval of every attribute"
    except PredicateError as error:
        yield f"box         no: {error.reason}"


def _takers(predicate: Predicate, takers: Iterable[Matcher]) -> Iterator[str]:
    """Lines on the matchers that take it, and on what those make of it that widen it."""
    title = "taken by"
    for matcher, line in table_of(takers):
        yield f"{title:<12}{line}"
        title = ""
        if isinstance(matcher, WordMatcher):
            widened = matcher.widened(predicate)
            if widened != predicate.box():
                yield f"{'':<12}  widened to {box_text(widened)}"


def _counts(predicate: Predicate, takers: Iterable[Matcher], arguments: Namespace) -> Iterator[str]:
    """Lines on records: how many match, and how many a matcher that widens lets through."""
    widening = [one for one in takers if isinstance(one, WordMatcher)]
    total, matched, let_through = 0, 0, [0] * len(widening)
    for batch in batches(arguments.records, arguments.format, predicate.schema):
        events = predicate.schema.encode([record.values for record in batch])
        total += len(batch)
        matched += int(predicate.evaluate(events).sum())
        for place, one in enumerate(widening):
            let_through[place] += int(one.meaning(predicate, events).sum())
    yield f"records     {matched:,} of {total:,} match"
    for matcher, count in zip(widening, let_through, strict=True):
        if count != matched:
            yield f"            {count:,} of {total:,} for {type(matcher).__name__}"


CHECK_PREDICATE: Final = Command(
    "check-predicate",
    "what a predicate means, which matchers take it, and which records match",
    "Reads a predicate, and says what it means in values, whatever way it was written; which\n"
    "matchers take it, and to what some of them widen it, so that the broker learns less or pays\n"
    "less; and how many records match. Status 1 if it cannot be used; the place is marked.\n\n"
    "Nothing is encrypted or sent. The constants of a predicate are secret: where others use\n"
    "this machine, write @FILE in place of the text.",
    "ccbps check-predicate \"issue = 'IBM' AND NOT price >= 120\" \\\n"
    '    --schema \'issue=Category(["AAPL", "IBM"]), price=UInt(16)\'\n'
    'echo \'{"issue": "IBM", "price": 119}\' | ccbps check-predicate "price < 120" \\\n'
    "    --matcher quotes.matcher --records -",
    _add_arguments,
    _run,
)
