"""``ccbps explain`` and ``ccbps check-predicate``: make a matcher, examine a predicate."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ccbps import matching
from ccbps.cli.command import JSON, REPEATED, Command, OneOf, Option, answer
from ccbps.cli.inputs import (
    SCHEMA,
    read_matcher,
    read_predicate,
    read_schema,
    read_settings,
    read_text,
)
from ccbps.cli.normal_text import box_text, normal_text
from ccbps.cli.records import FORMAT, read_records
from ccbps.cli.rejecting import usable
from ccbps.errors import ParameterError, PredicateError
from ccbps.matching import Matcher
from ccbps.matching.contract.scheme import Keying
from ccbps.matching.schemes import SCHEMES
from ccbps.matching.words.words import WordMatcher
from ccbps.planner import plan
from ccbps.planner.tables import first_of_kind
from ccbps.predicates import Predicate, Schema

MAKERS: Final = ("box", "hidden")
"""Class methods that make a matcher: ``FormulaMatch.box``."""
_REUSE: Final = {
    Keying.ROUNDS: "one-time",
    Keying.SERVER: "reusable",
    Keying.BROKERS: "reusable",
    Keying.SESSION: "session",
}


def _explain(arguments: Namespace) -> int:
    r"""Make a matcher, and show its costs and leakage.

    A matcher is public: it defines how events and predicates become messages, and all parties
    need the same one. The command makes a matcher from a schema, the types of events' attributes.
    It prints sizes, operations and the leakage card: the data that the broker learns, and known
    attacks. Which matcher to take, ccbps plan tells.

    Example:
        ccbps explain --schema 'issue=Category(["AAPL", "IBM"]), price=UInt(16)' \
            --scheme TagMatch --out quotes.matcher
    """
    if arguments.matcher is not None:
        return _show(arguments, read_matcher(arguments.matcher))
    schema = read_schema(arguments.schema)
    if arguments.scheme is None:
        raise ParameterError("--scheme NAME selects a matcher; ccbps plan compares all of them")
    options = read_settings("--option", arguments.option)
    if arguments.template is not None:
        options["template"] = read_text(arguments.template)
    return _show(arguments, _make_matcher(arguments, schema, options))


def _show(arguments: Namespace, matcher: Matcher) -> int:
    """Print a matcher's explanation, and write the matcher to a new file if --out names one."""
    text, path = matcher.explain(), arguments.out
    if path is not None:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(matcher.to_json() + "\n")
        text += f"\nwritten to {path}"
    costs = [{"role": cost.role, "per": cost.per, "work": str(cost)} for cost in matcher.costs]
    card, described = matcher.leakage.to_dict(), _described(matcher)
    answer(arguments, text, **described, costs=costs, leakage=card, written=path)
    return 0


def _described(matcher: Matcher) -> dict[str, Any]:
    """Return the facts of a line of `_table` by name."""
    return {
        "matcher": type(matcher).__name__,
        "attributes": [*matcher.schema],
        "parameters": matcher.parameters(),
        "fingerprint": matcher.fingerprint,
        "event_bytes": matcher.event_bytes,
        "interest_bytes": matcher.interest_bytes,
        "messages": _REUSE[matcher.keying],
        "security": matcher.leakage.security,
    }


def _make_matcher(arguments: Namespace, schema: Schema, options: dict[str, Any]) -> Matcher:
    """Make the matcher of --scheme: ``TagMatch``, or ``FormulaMatch.box``.

    Raises:
        ParameterError: there is no such matcher, it does not take these options, or it has a known
            attack and --broken is missing.
    """
    name = arguments.scheme
    scheme_name, _, maker = name.partition(".")
    scheme = {scheme.__name__: scheme for scheme in SCHEMES}.get(scheme_name)
    if scheme is None or (maker and (maker not in MAKERS or not hasattr(scheme, maker))):
        names = ", ".join(name for name in dir(matching) if name.endswith("Match"))
        raise ParameterError(f"there is no matcher {name}; there are {names}")
    make: Any = getattr(scheme, maker) if maker else scheme
    try:
        matcher: Matcher = make(schema, **options)
    except TypeError as error:
        raise ParameterError(f"{name} does not take these options: {error}") from None
    if matcher.leakage.security == "broken" and not arguments.broken:
        raise ParameterError(f"{name} has a known attack: pass --broken to make it all the same")
    return matcher


def _taking(predicate: Predicate) -> dict[Matcher, str]:
    """Return the matchers that take a predicate, the first of each kind, with their names."""
    found = plan(predicate.schema, predicate, events=1, subscriptions=1, brokers=3, timing=0)
    return {
        each.matcher: each.name
        for each in first_of_kind(found.candidates)
        if each.matcher is not None
    }


def _table(matchers: Mapping[Matcher, str]) -> Iterator[tuple[Matcher | None, str]]:
    """Yield a heading, and a line for each matcher: sizes, reuse and security."""
    yield None, "event bytes  interest bytes  messages  security       matcher"
    for matcher, name in matchers.items():
        yield (
            matcher,
            f"{matcher.event_bytes:>11,}  {matcher.interest_bytes:>14,}  "
            f"{_REUSE[matcher.keying]:<8}  {matcher.leakage.security:<13}  {name}",
        )


def _check_predicate(arguments: Namespace) -> int:
    r"""Show a predicate's meaning, the matchers that take it, and the records that match.

    The command prints the predicate's meaning in values, however it was written, and the matchers
    that take the predicate. Some of them widen it, so that the broker learns less, or works less.
    With --records it counts the records that match. The exit status is 1 if the predicate cannot
    be used; an error marks the place.

    Nothing is encrypted or sent. The constants of a predicate are secret: where others use this
    machine, write @FILE in place of the text.

    Example:
        ccbps check-predicate "issue = 'IBM' AND NOT price >= 120" \
            --schema 'issue=Category(["AAPL", "IBM"]), price=UInt(16)'
        echo '{"issue": "IBM", "price": 119}' | ccbps check-predicate "price < 120" \
            --matcher quotes.matcher --records -
    """
    try:
        matcher, predicate = read_predicate(arguments)
        if matcher is not None:
            matcher.prepare(predicate)
    except PredicateError as error:
        answer(arguments, str(error), aside=not arguments.json, usable=False, error=str(error))
        return 1
    matchers = _taking(predicate) if matcher is None else {matcher: repr(matcher).strip("<>")}
    lines = [*_meaning(predicate), *_takers(predicate, matchers)]
    values: dict[str, Any] = {"usable": True, "means": None, "private": predicate.unbound_names}
    if not predicate.unbound_names:
        values["means"] = normal_text(predicate)
    values["matchers"] = [_described(matcher) for matcher in matchers]
    if arguments.records is not None:
        if not arguments.json:
            print("\n".join(lines), flush=True)  # before records that may be slow to come
        total, matched, let_through = _counts(predicate, matchers, arguments)
        lines = [f"records     {matched:,} of {total:,} match"]
        for name, count in let_through.items():
            if count != matched:
                lines.append(f"            {count:,} of {total:,} for {name}")
        values |= {"records": total, "matches": matched, "widened": let_through}
    answer(arguments, "\n".join(lines), **values)
    return 0 if matchers else 1


def _meaning(predicate: Predicate) -> Iterator[str]:
    """Yield lines on the meaning of a predicate."""
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


def _takers(predicate: Predicate, matchers: Mapping[Matcher, str]) -> Iterator[str]:
    """Yield lines on the matchers that take a predicate, and on how some of them widen it."""
    title = "taken by"
    for matcher, line in _table(matchers):
        yield f"{title:<12}{line}"
        title = ""
        if isinstance(matcher, WordMatcher):
            widened = matcher.widened(predicate)
            if widened != predicate.box():
                yield f"{'':<12}  widened to {box_text(widened)}"


def _counts(
    predicate: Predicate, matchers: Iterable[Matcher], arguments: Namespace
) -> tuple[int, int, dict[str, int]]:
    """Count the records, those that match, and those that each widening matcher lets through."""
    total, matched = 0, 0
    widening = [matcher for matcher in matchers if isinstance(matcher, WordMatcher)]
    let_through = {type(matcher).__name__: 0 for matcher in widening}
    for block in read_records(arguments.records, arguments.format, predicate.schema):
        events, _ = usable(block, predicate.schema, None)
        total += len(block)
        matched += int(predicate.evaluate(events).sum())
        for matcher in widening:
            let_through[type(matcher).__name__] += int(matcher.meaning(predicate, events).sum())
    return total, matched, let_through


EXPLAIN: Final = Command(
    "explain",
    _explain,
    (
        OneOf(SCHEMA, Option("--matcher FILE", "explain the matcher in a file"), required=True),
        Option("--scheme NAME", "name such as TagMatch, FormulaMatch.box or FormulaMatch.hidden"),
        Option("--broken", "take matchers with a known attack, too", action="store_true"),
        Option("--template TEXT", "public predicate, with :name for private constants"),
        Option(
            "--option NAME=VALUE",
            "another argument of the matcher, as JSON: 'topic=[\"issue\"]'",
            **REPEATED,
        ),
        Option("--out FILE", "new file for the matcher, for all parties"),
        JSON,
    ),
)

CHECK_PREDICATE: Final = Command(
    "check-predicate",
    _check_predicate,
    (
        Option("predicate TEXT", "condition, as written after WHERE"),
        OneOf(SCHEMA, Option("--matcher FILE", "ask this matcher, over its schema"), required=True),
        Option("--value NAME=VALUE", "value of a private constant :name", **REPEATED),
        Option("--records FILE", "count the matching records of a file; - for standard input"),
        FORMAT,
        JSON,
    ),
)
