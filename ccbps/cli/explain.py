"""``ccbps explain``: what a matcher is, what its broker learns, and which one to take."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from ccbps.cli.command import Command, Parser
from ccbps.cli.matchers import make_matcher, read_matcher, table_of
from ccbps.cli.schemas import SCHEMA_HELP, read_schema
from ccbps.cli.values import settings, text_of
from ccbps.errors import ParameterError
from ccbps.matching import Matcher
from ccbps.matching.schemes import proposals
from ccbps.predicates import Schema


def _add_arguments(parser: Parser) -> None:
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--schema", metavar="TEXT", help=SCHEMA_HELP)
    given.add_argument("--matcher", metavar="FILE", help="explain the matcher that is in a file")
    parser.add_argument(
        "--scheme", metavar="NAME", help="as TagMatch, or FormulaMatch.box and .hidden"
    )
    parser.add_argument(
        "--for",
        metavar="TEXT",
        dest="wanted",
        help="a predicate: list the matchers that take it, or make that of --scheme for it",
    )
    parser.add_argument(
        "--template", metavar="TEXT", help="public predicate, with :name for private constants"
    )
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="any other argument of the matcher, as JSON: 'topic=[\"issue\"]'",
    )
    parser.add_argument("--out", metavar="FILE", help="write the matcher there, for all parties")


def _run(arguments: Namespace) -> int:
    if arguments.matcher is not None:
        return _tell(arguments, read_matcher(arguments.matcher))
    schema = read_schema(arguments.schema)
    options = settings("--option", arguments.option)
    if arguments.template is not None:
        options["template"] = text_of(arguments.template)
    if arguments.wanted is not None:
        return _propose(arguments, schema, options)
    if arguments.scheme is None:
        raise ParameterError("--scheme NAME says which matcher, or --for TEXT for what")
    return _tell(arguments, make_matcher(schema, arguments.scheme, options))


def _propose(arguments: Namespace, schema: Schema, options: dict[str, Any]) -> int:
    if options:
        raise ParameterError("--for finds the options itself: leave out --template and --option")
    found = [*proposals(schema, schema.parse(text_of(arguments.wanted)))]
    if arguments.scheme is not None:
        chosen = [one for one in found if type(one).__name__ == arguments.scheme]
        if not chosen:
            raise ParameterError(f"no {arguments.scheme} takes this predicate")
        return _tell(arguments, chosen[0])
    if arguments.out is not None:
        raise ParameterError("--scheme says which of the matchers to write to --out")
    print("\n".join(line for _, line in table_of(found)))
    return 0 if found else 1


def _tell(arguments: Namespace, matcher: Matcher) -> int:
    print(matcher.explain())
    if arguments.out is not None:
        with Path(arguments.out).open("x", encoding="utf-8") as file:
            file.write(matcher.to_json() + "\n")
        print(f"written to {arguments.out}")
    return 0


EXPLAIN: Final = Command(
    "explain",
    "what a matcher costs and what its broker learns; which one takes a predicate",
    "A matcher is public: it says how events and predicates become messages, and all parties\n"
    "need the same one. This makes one from a schema, the types of events' attributes, and\n"
    "prints sizes, operations and its leakage card: what the broker learns, and known attacks.\n\n"
    "With --for and a predicate it lists the matchers that take it. A matcher may follow from\n"
    "the predicate: give one of the same form whose constants may be known.",
    'ccbps explain --schema \'issue=Category(["AAPL", "IBM"]), price=UInt(16)\' \\\n'
    "    --for \"issue = 'IBM' AND price < 120\"\n"
    'ccbps explain --schema \'issue=Category(["AAPL", "IBM"]), price=UInt(16)\' \\\n'
    "    --scheme TagMatch --out quotes.matcher",
    _add_arguments,
    _run,
)
