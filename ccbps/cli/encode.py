"""``ccbps encode``: encrypt the records or the predicates of a file as messages."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ccbps.arrays import Rounds
from ccbps.cli.client import LEDGER, marked, role_secret
from ccbps.cli.command import JSON, REPEATED, Command, OneOf, Option, answer
from ccbps.cli.files import writer_of
from ccbps.cli.inputs import (
    MATCHER,
    numbers_from,
    read_matcher,
    read_rounds,
    read_text,
    read_value,
    read_values,
)
from ccbps.cli.records import FORMAT, OUT, Block, Table, read_records
from ccbps.cli.rejecting import ON_ERROR, Rejects, set_aside, usable
from ccbps.cli.secret_files import SHARED_KEYS, key_file
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError, PredicateError
from ccbps.keys.seeds import SeedRing
from ccbps.matching import Matcher
from ccbps.matching.contract.roles import interest_column
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.predicates import Events

MESSAGES: Final = 1 << 16
"""Messages that are encoded at a time."""


def _encode(_: Namespace) -> int:
    r"""Encrypt the records or the predicates of a file as messages, in a file.

    The messages are those that publish and subscribe would send: match finds the pairs that match,
    as a broker would. They are hexadecimal in CSV and JSON lines, and binary in Parquet.

    Example:
        printf 'issue,price\nIBM,119\nIBM,121\n' > quotes.csv
        ccbps encode events quotes.csv --matcher quotes.matcher --key feed.key --out events.csv
        ccbps encode interests --predicate "price < 120" --as cheap --matcher quotes.matcher \
            --key alice.key --out interests.csv
    """
    raise NotImplementedError("the parser demands events or interests")


def _encode_events(arguments: Namespace) -> int:
    r"""Encrypt records as event messages.

    With a key server, a message has the number of its record, event. With rounds, the first record
    has the round --first, and each other the next one. If each subscription has a seed of its own
    (FormulaMatch), each record has a message for each --to.

    Example:
        ccbps encode events quotes.csv --matcher quotes.matcher --key feed.key --out events.parquet
    """
    matcher = read_matcher(arguments.matcher)
    if (matcher.answers is Answers.PAIRS) != bool(arguments.to):
        raise ParameterError(
            "--to LABEL, for each subscription, is needed where each has a seed of its own, as "
            "with FormulaMatch, and only there"
        )
    first = numbers_from("--first", arguments.first).start
    secret: Any = role_secret(matcher, key_file(arguments, arguments.key), arguments.ledger)
    publisher: Any = matcher.publisher(secret, ledger=marked(arguments.ledger, arguments.mark))
    path, form, count = arguments.records, arguments.format, 0
    with Rejects(arguments) as rejects, writer_of(arguments, path, form) as writer:
        for block in read_records(path, form, matcher.schema, rejects.note):
            events, block = usable(block, matcher.schema, rejects.note)
            numbers = np.array(block.numbers, dtype=np.uint64)
            if matcher.keying is Keying.ROUNDS:
                numbers_from("--first", first, block.following)
            for table in _event_tables(publisher, events, numbers, first, arguments.to):
                writer.write(table)
                count += len(table)
    _tell(arguments, "events", count, rejects)
    return 0


def _event_tables(
    publisher: Any, events: Events, numbers: Rounds, first: int, labels: list[str]
) -> Iterator[Table]:
    """Yield messages of events, in batches.

    Args:
        publisher: role that encodes.
        events: events of a block.
        numbers: number of each event's record.
        first: round of record 0, where there are rounds.
        labels: labels of the subscriptions with seeds of their own; none where there are none.
    """
    step = max(1, MESSAGES // max(1, len(labels)))
    # Also without events, since a file without messages has columns.
    for start in range(0, max(1, len(events)), step):
        rows = np.arange(start, min(start + step, len(events)))
        columns: dict[str, Any] = {}
        if labels:
            columns["subscription"] = labels * len(rows)
            rows = np.repeat(rows, len(labels))
        part = events.take(rows)
        if publisher.matcher.keying is Keying.ROUNDS:
            columns["round"] = rounds = numbers[rows] + np.uint64(first)
            messages = publisher.encode(part, rounds, pairs=columns.get("subscription"))
        else:
            columns["event"] = numbers[rows]
            messages = publisher.encode(part)
        yield Table(range(len(rows)), 0, {**columns, "message": messages})


def _encode_interests(arguments: Namespace) -> int:
    r"""Encrypt predicates as interest messages.

    A file of predicates has the fields subscription and predicate. If the matcher has a public
    template, its private constants are fields in place of the predicate: in CSV, each is JSON, or
    else a text. --predicate gives one predicate, for the subscription --as. With rounds, each
    predicate is encrypted for each round.

    The constants of a predicate are secret: where others use this machine, write @FILE.

    Example:
        ccbps encode interests --predicate "price < 120" --as cheap --matcher quotes.matcher \
            --key alice.key --out interests.parquet
    """
    matcher = read_matcher(arguments.matcher)
    secret = role_secret(matcher, key_file(arguments, arguments.key), arguments.ledger)
    if (arguments.rounds is None) == (matcher.keying is Keying.ROUNDS):
        raise ParameterError("--rounds FIRST:COUNT is needed where messages are one-time, only")
    if arguments.predicate is None and arguments.subscription is not None:
        raise ParameterError(
            "--as NAME is for --predicate: the records of a file have the field subscription"
        )
    rounds = None if arguments.rounds is None else read_rounds(arguments.rounds)
    # A subscription's own seed is not derived by its name.
    has_labels = matcher.answers is Answers.ROUND or isinstance(secret, SeedRing)
    ledger = marked(arguments.ledger, arguments.mark)
    subscriber: Any = matcher.subscriber(secret, ledger=ledger)
    path = arguments.records or "-"
    count = 0
    with Rejects(arguments) as rejects, writer_of(arguments, path, arguments.format) as writer:
        for names, interests in _interests(arguments, matcher, rejects):
            for numbers in _parts(rounds, len(names)):
                columns: dict[str, Any] = {"subscription": names}
                if numbers is None:
                    messages = subscriber.encode(interests)
                else:
                    # Each interest in all of these rounds.
                    columns["subscription"] = [name for name in names for _ in numbers]
                    columns["round"] = np.tile(numbers, len(names))
                    index = np.repeat(interests.index, len(numbers))
                    repeated = DictionaryColumn(interests.values, index)
                    pairs = columns["subscription"] if has_labels else None
                    messages = subscriber.encode(repeated, columns["round"], pairs=pairs)
                columns["message"] = messages
                writer.write(Table(range(len(messages)), 0, columns))
                count += len(messages)
    _tell(arguments, "interests", count, rejects)
    return 0


def _interests(
    arguments: Namespace, matcher: Matcher, rejects: Rejects
) -> Iterator[tuple[list[str], DictionaryColumn[Any]]]:
    """Yield names of subscriptions and their interests, in blocks."""
    if arguments.predicate is not None:
        text = read_text(arguments.predicate)
        interest = text if matcher.private_names is None else read_values(text)
        yield [arguments.subscription or "subscription"], interest_column([interest])
        return
    private = matcher.private_names
    for block in read_records(arguments.records, arguments.format, reject=rejects.note):
        named = ["subscription", "predicate"] if private is None else ["subscription"]
        block = _with_texts(block, named, rejects)
        names, rows = block.python_values("subscription"), list[Any]()
        if private is None:
            rows = block.python_values("predicate")
        else:
            columns = [_constants(block, name) for name in private]
            rows = [dict(zip(private, row, strict=True)) for row in zip(*columns, strict=True)]
        yield _prepared(matcher, block, names, interest_column(rows), rejects)


def _prepared(
    matcher: Matcher,
    block: Block,
    names: list[str],
    interests: DictionaryColumn[Any],
    rejects: Rejects,
) -> tuple[list[str], DictionaryColumn[Any]]:
    """Return the interests that the matcher takes, each distinct one examined once.

    Raises:
        PredicateError: it does not take one, which is not rejected.
    """
    good = np.ones(len(interests.values), dtype=np.bool_)
    for place, interest in enumerate(interests.values):
        try:
            matcher.prepare(interest)
        except PredicateError as error:
            good[place] = False
            for row in np.flatnonzero(interests.index == place).tolist():
                set_aside(rejects.note, block.numbers[row], error.summary, type(error))
    chosen = good[interests.index]
    names = [name for name, here in zip(names, chosen.tolist(), strict=True) if here]
    return names, DictionaryColumn(interests.values, interests.index[chosen]).used()


def _with_texts(block: Block, names: Sequence[str], rejects: Rejects) -> Block:
    """Return the records that have texts in some fields.

    Raises:
        EventError: one has not, and is not rejected.
    """
    good = np.ones(len(block), dtype=np.bool_)
    for name in names:
        for place, value in enumerate(block.python_values(name)):
            if good[place] and not isinstance(value, str):
                good[place] = False
                set_aside(rejects.note, block.numbers[place], f"{name} must be a text")
    return block if good.all() else block.take(good)


def _constants(block: Block, name: str) -> list[Any]:
    """Return values of a private constant; texts of CSV are JSON, or else texts."""
    values = block.python_values(name)
    if isinstance(block, Table) and isinstance(block.columns[name], list):
        distinct = {text: read_value(text) for text in {*values}}
        values = [distinct[text] for text in values]
    return values


def _parts(rounds: range | None, interests: int) -> Iterator[Rounds | None]:
    """Yield rounds in parts, each of which makes a batch of messages with the interests."""
    if rounds is None:
        yield None
        return
    if not interests:
        rounds = rounds[:1]  # the batch is empty, but has columns
    step = max(1, MESSAGES // max(1, interests))
    for start in range(rounds.start, rounds.stop, step):
        yield np.arange(start, min(start + step, rounds.stop), dtype=np.uint64)


def _tell(arguments: Namespace, kind: str, count: int, rejects: Rejects) -> None:
    text = f"{count:,} messages of {kind}{rejects}"
    answer(arguments, text, aside=arguments.out == "-", messages=count, rejected=rejects.count)


_COMMON: Final = (
    MATCHER,
    SHARED_KEYS,
    *LEDGER,
    FORMAT,
    *OUT,
    *ON_ERROR,
    JSON,
)

ENCODE: Final = Command(
    "encode",
    _encode,
    kinds=(
        Command(
            "events",
            _encode_events,
            (
                Option("records FILE", "records; - for standard input"),
                Option("--key FILE", "publisher's key, or its seed", required=True),
                Option("--first N", "round of the first record", type=int, default=0),
                Option(
                    "--to LABEL",
                    "subscription with a seed of its own (FormulaMatch); once for each",
                    **REPEATED,
                ),
                *_COMMON,
            ),
        ),
        Command(
            "interests",
            _encode_interests,
            (
                OneOf(
                    Option("records FILE", "predicates; - for standard input", nargs="?"),
                    Option("--predicate TEXT", "one predicate, or values of private constants"),
                    required=True,
                ),
                Option(
                    "--as NAME",
                    "name of the subscription of --predicate (default: subscription)",
                    dest="subscription",
                ),
                Option("--key FILE", "subscriber's key, or its seed", required=True),
                Option("--rounds FIRST:COUNT", "rounds, for one-time matchers"),
                *_COMMON,
            ),
        ),
    ),
)
